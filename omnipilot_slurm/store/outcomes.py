"""The outcomes table: how each job that was decided on ended.

In: JobOutcomes. Out: the same again. Written by `omnipilot ingest sacct`, from accounting and the
last lines of the job's log; read by drift, tune and the reports.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.site_tables import LaunchOutcome
from omnipilot_slurm.store.upsert import upsert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator


class LinkedBy(StrEnum):
    """How a job was found to be the one that was decided on."""

    TAG = "tag"
    SUBMISSION = "submission"


class JobOutcome(NamedTuple):
    """How a decided job ended; times are Unix seconds, `state` is Slurm's.

    `outcome` is of its server's start: a server that came up is ok, however its job ended.
    `evidence` names the sign that told, of the log or of the accounting. A job array has an outcome
    for each task, a requeued job one for each time.
    """

    job_id: str
    submitted_at: float
    decision_id: str
    linked_by: LinkedBy
    started_at: float | None
    ended_at: float
    state: str
    outcome: LaunchOutcome
    evidence: str


def record_outcomes(connection: sqlite3.Connection, outcomes: Iterable[JobOutcome]) -> int:
    """Write outcomes, all or nothing; return how many are new or say something new.

    Raises: sqlite3.Error.
    """
    rows = [
        one._replace(linked_by=one.linked_by.value, outcome=one.outcome.value)  # type: ignore[arg-type]  # SQLite takes plain texts
        for one in outcomes
    ]
    with transaction(connection):
        return upsert(connection, "outcomes", JobOutcome._fields, rows, n_key=2)


def outcomes(connection: sqlite3.Connection, since: float) -> Iterator[JobOutcome]:
    """Yield the outcomes of jobs that ended at a Unix time or later, in that order.

    Raises: StoreError.
    """
    sql = (
        f"SELECT {', '.join(JobOutcome._fields)} FROM outcomes "  # noqa: S608 (constants)
        "WHERE ended_at >= ? ORDER BY ended_at, job_id"
    )
    for row in fetched(connection, "outcomes", sql, (since,)):
        one = JobOutcome(*row)
        yield one._replace(linked_by=LinkedBy(one.linked_by), outcome=LaunchOutcome(one.outcome))


def has_outcome(connection: sqlite3.Connection, job_id: str, submitted_at: float) -> bool:
    """Return whether a job is known to have been decided on."""
    row = connection.execute(
        "SELECT 1 FROM outcomes WHERE job_id = ? AND submitted_at = ?", (job_id, submitted_at)
    ).fetchone()
    return row is not None


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` outcomes of jobs that ended before a Unix time; return how many went."""
    oldest = (
        "SELECT job_id, submitted_at FROM outcomes WHERE ended_at < ? ORDER BY ended_at LIMIT ?"
    )
    return connection.execute(
        f"DELETE FROM outcomes WHERE (job_id, submitted_at) IN ({oldest})",  # noqa: S608 (constants)
        (at, limit),
    ).rowcount
