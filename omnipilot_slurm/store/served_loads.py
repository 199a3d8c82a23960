"""What earlier servers were asked: the runs measured in jobs, with whose jobs they were.

In: a connection of database. Out: ServedLoads, one a job, the newest first. Read where a Site is
made. A run is a job's by the decision on it, which knows user and account: of a server that was
watched, or of a job that has ended. Runs of benchmarks outside of decided jobs are nobody's load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide.usage import ServedLoad
from omnipilot_slurm.store.database import fetched

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_LOADS: Final = """
WITH decided AS (
    SELECT job_id, decision_id FROM outcomes
    UNION SELECT job_id, decision_id FROM server_starts
    WHERE job_id IS NOT NULL AND decision_id IS NOT NULL
)
SELECT d.user_name, d.account, avg(b.isl), avg(b.osl), avg(b.concurrency), avg(b.requests_per_s)
FROM benchmarks AS b
JOIN decided AS j ON j.job_id = b.job_id
JOIN decisions AS d ON d.id = j.decision_id AND d.at <= b.measured_at
WHERE b.measured_at >= ? AND b.outcome = 'ok' AND d.user_name IS NOT NULL
    AND b.isl > 0 AND b.osl > 0 AND b.concurrency IS NOT NULL
GROUP BY b.job_id, d.id ORDER BY max(b.measured_at) DESC, b.job_id
"""


def served_loads(connection: sqlite3.Connection, since: float) -> Iterator[ServedLoad]:
    """Yield what servers measured at a Unix time or later were asked, the newest job first.

    Raises: StoreError.
    """
    return (ServedLoad(*row) for row in fetched(connection, "served loads", _LOADS, (since,)))
