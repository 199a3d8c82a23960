"""The jobs and demand tables: what accounting says of jobs with GPUs, and of GPUs hour by hour.

In: AccountedJobs. Out: demand by hour, and the waits view that the queue's priors are made of.
Written by `omnipilot ingest sacct`; read by the reports. Spec section 8, the cluster store: it says
how GPUs were held, not what ran on them.

Demand is kept in step with jobs: a job that is read again takes back what it had added before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.store.database import fetched, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

HOUR_S: Final = 3600


class AccountedJob(NamedTuple):
    """One job, as the columns of its row; times are Unix seconds, None where there was none.

    `seen_at` is when a job that still runs was read, else when it ended. `serves` tells by which
    sign it was taken for a vLLM server (script, name), or that its script is none (no).
    """

    job_id: str
    submitted_at: float
    user_key: str | None
    partition: str
    gres_type: str | None
    n_gpus: int
    n_nodes: int
    eligible_at: float | None
    started_at: float | None
    ended_at: float | None
    seen_at: float
    time_limit_min: float | None
    state: str
    exit_code: int
    signal: int
    serves: str | None = None
    decision_id: str | None = None


class DemandHour(NamedTuple):
    """GPUs of one type in one partition in the hour that starts at `hour`, Unix time in s.

    Jobs submitted in it and the GPUs they asked for; GPU seconds held, and waited for, in it.
    """

    hour: int
    partition: str
    gres_type: str
    n_jobs: int
    n_gpus: int
    held_gpu_s: float
    queued_gpu_s: float


_COLUMNS: Final = AccountedJob._fields
_INSERT: Final = (
    f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)}) "  # noqa: S608 (constants)
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_FIND: Final = f"SELECT {', '.join(_COLUMNS)} FROM jobs WHERE job_id = ? AND submitted_at = ?"  # noqa: S608
_ADD: Final = (
    "INSERT INTO demand VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "n_jobs = n_jobs + excluded.n_jobs, n_gpus = n_gpus + excluded.n_gpus, "
    "held_gpu_s = held_gpu_s + excluded.held_gpu_s, "
    "queued_gpu_s = queued_gpu_s + excluded.queued_gpu_s"
)
_Hour = tuple[int, str, str]


def record_jobs(connection: sqlite3.Connection, jobs: Iterable[AccountedJob]) -> int:
    """Write jobs and what they add to demand; return how many are new or say something new.

    All or nothing. Raises: sqlite3.Error.
    """
    changed: dict[tuple[str, float], AccountedJob] = {}
    added: defaultdict[_Hour, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    with transaction(connection):
        for job in jobs:
            key = job[:2]
            before = changed.get(key) or _stored(connection, key)
            now = job if before is None else _merged(before, job)
            if now == before:
                continue
            if before is not None:
                _count(added, before, -1)
            _count(added, now, 1)
            changed[key] = now
        connection.executemany(_INSERT, changed.values())
        connection.executemany(_ADD, ((*hour, *sums) for hour, sums in added.items()))
    return len(changed)


def looked_at(connection: sqlite3.Connection, job_id: str, submitted_at: float) -> bool:
    """Return whether a job's script was read before."""
    row = connection.execute(
        "SELECT serves FROM jobs WHERE job_id = ? AND submitted_at = ?", (job_id, submitted_at)
    ).fetchone()
    return row is not None and row[0] in {"script", "no"}


def set_serves(
    connection: sqlite3.Connection, keys: Iterable[tuple[str, float]], *, is_server: bool
) -> None:
    """Write what the script of jobs says, in the caller's transaction."""
    serves = "script" if is_server else "no"
    connection.executemany(
        "UPDATE jobs SET serves = ? WHERE job_id = ? AND submitted_at = ?",
        ((serves, *key) for key in keys),
    )


def demand(connection: sqlite3.Connection, since: float, until: float) -> Iterator[DemandHour]:
    """Yield the hours that start in [since, until), in order; hours without jobs are not there.

    Raises: StoreError.
    """
    sql = (
        f"SELECT {', '.join(DemandHour._fields)} FROM demand "  # noqa: S608 (constants)
        "WHERE hour >= ? AND hour < ? ORDER BY hour, partition, gres_type"
    )
    for row in fetched(connection, "demand", sql, (since, until)):
        yield DemandHour(*row)


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` jobs submitted before a Unix time, and as many rows of demand.

    Returns how many went.
    """
    return sum(
        connection.execute(
            f"DELETE FROM {table} WHERE ({key}) IN "  # noqa: S608 (constants)
            f"(SELECT {key} FROM {table} WHERE {time} < ? ORDER BY {time} LIMIT ?)",
            (at, limit),
        ).rowcount
        for table, key, time in (
            ("jobs", "job_id, submitted_at", "submitted_at"),
            ("demand", "hour, partition, gres_type", "hour"),
        )
    )


def _stored(connection: sqlite3.Connection, key: tuple[str, float]) -> AccountedJob | None:
    row = connection.execute(_FIND, key).fetchone()
    return None if row is None else AccountedJob(*row)


def _merged(before: AccountedJob, job: AccountedJob) -> AccountedJob:
    """Return what is known of a job: the later reading, and what only the earlier one knew."""
    is_older = job.ended_at is None and (
        before.ended_at is not None or job.seen_at < before.seen_at
    )
    later, earlier = (before, job) if is_older else (job, before)
    if not (later.exit_code or later.signal) and later.ended_at == earlier.ended_at:
        # sacct --json of 22.05 tells no exit codes
        later = later._replace(exit_code=earlier.exit_code, signal=earlier.signal)
    return later._replace(
        serves=_surer(earlier.serves, later.serves),
        decision_id=later.decision_id or earlier.decision_id,
    )


def _surer(one: str | None, other: str | None) -> str | None:
    """Return what is known of a job's script: what was read in it counts before its name."""
    return one if one in {"script", "no"} or other is None else other


def _count(added: defaultdict[_Hour, list[float]], job: AccountedJob, sign: int) -> None:
    """Add a job's demand to its hours, or take it back."""
    gres_type = job.gres_type or ""
    n_gpus = sign * job.n_gpus
    sums = added[_hour(job.submitted_at), job.partition, gres_type]
    sums[0] += sign
    sums[1] += n_gpus
    started, until = job.started_at, job.seen_at
    if started is not None:
        for hour, span_s in _spans(started, until):
            added[hour, job.partition, gres_type][2] += n_gpus * span_s
    if job.eligible_at is not None:
        for hour, span_s in _spans(job.eligible_at, until if started is None else started):
            added[hour, job.partition, gres_type][3] += n_gpus * span_s


def _hour(at: float) -> int:
    return int(at // HOUR_S) * HOUR_S


def _spans(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Yield each hour that [start, end) touches, with how many seconds of it."""
    hour = _hour(start)
    while hour + HOUR_S < end:
        yield hour, hour + HOUR_S - max(start, hour)
        hour += HOUR_S
    if end > max(start, hour):
        yield hour, end - max(start, hour)
