"""The launches table and the waits of jobs: what the launch prior and the queue are taught.

In: launches, or a connection of database. Out: LaunchCounts and WaitHistory. Launches are written
by whoever reads accounting and logs, waits follow from the jobs table; read where a Site is made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide.success import LaunchCounts, LaunchGroup, Outcomes, minor_version
from omnipilot_slurm.decide.wait_history import WaitGroup, WaitHistory, WaitSample
from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.upsert import upsert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

#: quantiles kept of a group of waits
N_QUANTILES: Final = 20
_S_PER_H: Final = 3600.0


class LaunchOutcome(StrEnum):
    """How the start of a server ended, whatever its job did later."""

    OK = "ok"
    OOM = "oom"
    INCOMPATIBLE = "incompatible"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NODE_FAILURE = "node_failure"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLaunch:
    """One start of a server; times are Unix seconds, `job_id` is as sacct writes it.

    `checked`: it had passed every check before, so that it counts for the launch prior.
    """

    job_id: str
    submitted_at: float
    decision_id: str | None
    gpu: str
    n_gpus: int
    tensor_parallel: int
    precision: str
    engine_version: str | None
    outcome: LaunchOutcome
    checked: bool


def record_launches(connection: sqlite3.Connection, launches: Iterable[FinishedLaunch]) -> int:
    """Write launches, all or nothing, and return how many are new or say something new.

    Raises: sqlite3.Error.
    """
    names = tuple(FinishedLaunch.__slots__)
    rows = [
        [getattr(one, name) for name in names[:-2]] + [one.outcome.value, int(one.checked)]
        for one in launches
    ]
    with transaction(connection):
        return upsert(connection, "launches", names, rows, n_key=2)


def launch_counts(connection: sqlite3.Connection, since: float) -> LaunchCounts:
    """Count the checked launches submitted at a Unix time or later; cancelled ones tell nothing.

    Raises: StoreError.
    """
    by_group: dict[LaunchGroup, Outcomes] = defaultdict(lambda: Outcomes(0, 0))
    for n_gpus, gpu, tensor_parallel, precision, version, n_ok, n_failed in fetched(
        connection,
        "launches",
        "SELECT n_gpus, gpu, tensor_parallel, precision, engine_version, "
        "sum(outcome = 'ok'), sum(outcome != 'ok') "
        "FROM launches WHERE checked AND outcome != 'cancelled' AND submitted_at >= ? "
        "GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
        (since,),
    ):
        group = LaunchGroup(n_gpus, gpu, tensor_parallel, precision, minor_version(version))
        before = by_group[group]
        by_group[group] = Outcomes(before.n_ok + n_ok, before.n_failed + n_failed)
    return LaunchCounts(by_group=dict(by_group))


def wait_history(connection: sqlite3.Connection, since: float) -> WaitHistory:
    """Return how long jobs submitted at a Unix time or later waited, by partition, size and type.

    Raises: StoreError.
    """
    rows = fetched(
        connection,
        "waits",
        "SELECT partition, n_gpus, gres_type, wait_s FROM waits WHERE submitted_at >= ? "
        "ORDER BY 1, 2, 3, 4",
        (since,),
    )
    return WaitHistory(
        by_group={
            WaitGroup(*key): _sample([row[3] / _S_PER_H for row in group])
            for key, group in groupby(rows, key=lambda row: row[:3])
        }
    )


def _sample(hours: Sequence[float]) -> WaitSample:
    """Return sorted waits as a sample of at most N_QUANTILES of them: those of the nearest rank."""
    n = len(hours)
    n_kept = min(n, N_QUANTILES)
    # the level (j + 1/2) / n_kept of n waits, rounded up, counted from 0
    kept = tuple(hours[-(-n * (2 * j + 1) // (2 * n_kept)) - 1] for j in range(n_kept))
    return WaitSample(n, math.fsum(hours) / n, kept)


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` launches submitted before a Unix time and return how many went."""
    oldest = "SELECT rowid FROM launches WHERE submitted_at < ? ORDER BY submitted_at LIMIT ?"
    return connection.execute(
        f"DELETE FROM launches WHERE rowid IN ({oldest})",  # noqa: S608 (constants)
        (at, limit),
    ).rowcount
