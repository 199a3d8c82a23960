"""The launches and waits tables: what the site's own jobs teach the launch prior and the queue.

In: rows from accounting, or a connection of database. Out: LaunchCounts and WaitHistory. Written by
whoever reads accounting and logs; read where a Site is made.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One job that started: how long it was eligible before."""

    job_id: str
    submitted_at: float
    partition: str
    gres_type: str | None
    n_gpus: int
    wait_s: float


def record_launches(connection: sqlite3.Connection, launches: Iterable[FinishedLaunch]) -> int:
    """Write launches in one transaction and return how many are new or say something new.

    Raises: sqlite3.Error; nothing is written then.
    """
    return _upsert(
        connection,
        "launches",
        "job_id, submitted_at, decision_id, gpu, n_gpus, tensor_parallel, precision, "
        "engine_version, outcome, checked",
        [
            (
                one.job_id,
                one.submitted_at,
                one.decision_id,
                one.gpu,
                one.n_gpus,
                one.tensor_parallel,
                one.precision,
                one.engine_version,
                one.outcome.value,
                int(one.checked),
            )
            for one in launches
        ],
    )


def record_waits(connection: sqlite3.Connection, jobs: Iterable[QueuedJob]) -> int:
    """Write waits in one transaction and return how many are new or say something new.

    Raises: sqlite3.Error; nothing is written then.
    """
    return _upsert(
        connection,
        "waits",
        "job_id, submitted_at, partition, gres_type, n_gpus, wait_s",
        [
            (job.job_id, job.submitted_at, job.partition, job.gres_type, job.n_gpus, job.wait_s)
            for job in jobs
        ],
    )


def _upsert(
    connection: sqlite3.Connection, table: str, columns: str, rows: Sequence[tuple[object, ...]]
) -> int:
    """Write rows over those of the same key, the first two columns."""
    names = columns.split(", ")
    others = names[2:]
    theirs = ", ".join(f"excluded.{name}" for name in others)
    marks = ", ".join("?" * len(names))
    sql = (
        f"INSERT INTO {table} ({columns}) VALUES ({marks}) "  # noqa: S608 (constants)
        f"ON CONFLICT (job_id, submitted_at) DO UPDATE SET ({', '.join(others)}) = ({theirs}) "
        f"WHERE ({', '.join(others)}) IS NOT ({theirs})"
    )
    with transaction(connection):
        return connection.executemany(sql, rows).rowcount


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
    """Delete up to `limit` launches, and as many waits, submitted before a Unix time.

    Returns how many went.
    """
    return sum(
        connection.execute(
            f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608 (constants)
            f"(SELECT rowid FROM {table} WHERE submitted_at < ? ORDER BY submitted_at LIMIT ?)",
            (at, limit),
        ).rowcount
        for table in ("launches", "waits")
    )
