"""Demand is what the jobs table says, however often and in whatever order jobs are read."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store import jobs
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.jobs import HOUR_S, AccountedJob, DemandHour, demand, record_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOON = 1_800_000_000 // HOUR_S * HOUR_S
JOB = AccountedJob(
    job_id="4711",
    submitted_at=NOON + 600.0,
    user_key="ab12",
    partition="gpu",
    gres_type="h100",
    n_gpus=4,
    n_nodes=1,
    eligible_at=NOON + 600.0,
    started_at=NOON + 3000.0,
    ended_at=NOON + 9000.0,
    seen_at=NOON + 9000.0,
    time_limit_min=120.0,
    state="COMPLETED",
    exit_code=0,
    signal=0,
)
RUNNING = JOB._replace(ended_at=None, seen_at=NOON + 5000.0, state="RUNNING")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def every_hour(connection: sqlite3.Connection) -> list[DemandHour]:
    return [hour for hour in demand(connection, 0.0, 1e12) if any(hour[3:])]


def stored(connection: sqlite3.Connection) -> list[AccountedJob]:
    return [AccountedJob(*row) for row in connection.execute("SELECT * FROM jobs")]


def test_a_job_is_demand_in_every_hour_that_it_waited_or_ran(
    connection: sqlite3.Connection,
) -> None:
    assert record_jobs(connection, [JOB]) == 1
    assert every_hour(connection) == [
        DemandHour(NOON, "gpu", "h100", 1, 4, 2400.0, 9600.0),
        DemandHour(NOON + HOUR_S, "gpu", "h100", 0, 0, 14400.0, 0.0),
        DemandHour(NOON + 2 * HOUR_S, "gpu", "h100", 0, 0, 7200.0, 0.0),
    ]


def test_a_job_that_never_started_waited_until_it_ended(connection: sqlite3.Connection) -> None:
    record_jobs(
        connection, [JOB._replace(started_at=None, ended_at=NOON + 1600.0, seen_at=NOON + 1600.0)]
    )
    assert every_hour(connection) == [DemandHour(NOON, "gpu", "h100", 1, 4, 0.0, 4000.0)]
    assert connection.execute("SELECT count(*) FROM waits").fetchone() == (0,)


def test_a_running_job_counts_up_to_when_it_was_read_and_then_to_its_end(
    connection: sqlite3.Connection,
) -> None:
    record_jobs(connection, [RUNNING])
    assert sum(hour.held_gpu_s for hour in every_hour(connection)) == 4 * 2000.0
    record_jobs(connection, [JOB])
    assert sum(hour.held_gpu_s for hour in every_hour(connection)) == 4 * 6000.0


def test_an_older_reading_changes_nothing(connection: sqlite3.Connection) -> None:
    record_jobs(connection, [JOB])
    assert record_jobs(connection, [RUNNING]) == 0
    record_jobs(connection, [RUNNING._replace(job_id="5")])
    assert record_jobs(connection, [RUNNING._replace(job_id="5", seen_at=NOON + 4000.0)]) == 0
    assert {job.job_id: job.seen_at for job in stored(connection)} == {
        "4711": NOON + 9000.0,
        "5": NOON + 5000.0,
    }


def test_what_only_one_reading_knew_of_a_job_is_kept(connection: sqlite3.Connection) -> None:
    record_jobs(connection, [RUNNING._replace(serves="script", decision_id="k3f9")])
    record_jobs(connection, [JOB])
    assert stored(connection) == [JOB._replace(serves="script", decision_id="k3f9")]


def test_an_exit_code_that_a_later_reading_does_not_tell_is_kept(
    connection: sqlite3.Connection,
) -> None:
    record_jobs(connection, [JOB._replace(state="FAILED", exit_code=3)])
    assert record_jobs(connection, [JOB._replace(state="FAILED")]) == 0
    assert stored(connection) == [JOB._replace(state="FAILED", exit_code=3)]


def test_gpus_without_a_type_are_a_type_of_their_own(connection: sqlite3.Connection) -> None:
    record_jobs(connection, [JOB._replace(gres_type=None)])
    assert {hour.gres_type for hour in every_hour(connection)} == {""}


TIMES = st.integers(NOON, NOON + 5 * HOUR_S)


@st.composite
def accounted(draw: st.DrawFn) -> AccountedJob:
    submitted, eligible, started, ended = sorted(draw(st.tuples(TIMES, TIMES, TIMES, TIMES)))
    has_started, has_ended = draw(st.booleans()), draw(st.booleans())
    return JOB._replace(
        job_id=str(draw(st.integers(1, 6))),
        submitted_at=float(NOON),
        partition=draw(st.sampled_from(["gpu", "long"])),
        gres_type=draw(st.sampled_from([None, "h100"])),
        n_gpus=draw(st.integers(1, 8)),
        eligible_at=float(max(submitted, eligible)),
        started_at=float(started) if has_started or not has_ended else None,
        ended_at=float(ended) if has_ended else None,
        seen_at=float(ended),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(readings=st.lists(st.lists(accounted(), max_size=8), max_size=5))
def test_demand_is_the_sum_over_the_jobs_that_are_stored(
    connection: sqlite3.Connection, readings: list[list[AccountedJob]]
) -> None:
    connection.execute("DELETE FROM jobs")
    connection.execute("DELETE FROM demand")
    for reading in readings:
        record_jobs(connection, reading)
        assert record_jobs(connection, stored(connection)) == 0
    seconds: Counter[tuple[int, str, str]] = Counter()
    n_jobs: Counter[str] = Counter()
    for job in stored(connection):
        n_jobs[job.partition] += 1
        for second in range(int(job.started_at or 0), int(job.seen_at) if job.started_at else 0):
            hour = second // HOUR_S * HOUR_S
            seconds[hour, job.partition, job.gres_type or ""] += job.n_gpus
    found = every_hour(connection)
    assert {hour[:3]: hour.held_gpu_s for hour in found if hour.held_gpu_s} == dict(seconds)
    assert sum(hour.n_jobs for hour in found) == n_jobs.total()


def test_a_batch_that_cannot_be_written_adds_no_demand(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed: n_gpus > 0"):
        record_jobs(connection, [JOB, JOB._replace(job_id="5", n_gpus=0)])
    assert stored(connection) == every_hour(connection) == []


def test_old_jobs_and_old_hours_are_deleted_the_oldest_first(
    connection: sqlite3.Connection,
) -> None:
    record_jobs(
        connection,
        [
            JOB._replace(job_id=str(i), submitted_at=NOON + i * HOUR_S, started_at=None)
            for i in range(4)
        ],
    )
    n_hours = len(every_hour(connection))
    assert jobs.delete_before(connection, NOON + 3 * HOUR_S, limit=2) == 4
    assert {job.job_id for job in stored(connection)} == {"2", "3"}
    assert len(every_hour(connection)) == n_hours - 2


def test_demand_that_cannot_be_read_is_a_store_error() -> None:
    with closing(sqlite3.connect(":memory:")) as empty, pytest.raises(StoreError) as caught:
        list(demand(empty, 0.0, 1.0))
    assert str(caught.value) == "demand cannot be read: no such table: demand"
