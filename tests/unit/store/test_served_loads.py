"""Loads that were measured in decided jobs become their user's, one a job, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.decide.usage import ServedLoad
from omnipilot_slurm.records import Arm, Outcome, Verdict
from omnipilot_slurm.store.benchmarks import Benchmark, Load, RunOutcome, record_benchmarks
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.decisions import Decided, Subject, insert, row_of, words_of
from omnipilot_slurm.store.outcomes import JobOutcome, LinkedBy, record_outcomes
from omnipilot_slurm.store.served_loads import served_loads
from omnipilot_slurm.store.server_starts import ServerStart, record_server_starts
from omnipilot_slurm.store.setups import Setup, content_hash
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

SETUP = Setup(
    model="Qwen/Qwen2.5-7B-Instruct", arm=Arm(partition=None, gpu="h100", gres_type=None, n_gpus=1)
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def decide(connection: sqlite3.Connection, decision_id: str, at: float, **who: Any) -> None:
    subject = Subject(
        **({"user_name": "alice", "account": "nlp"} | who),
        partition="h100",
        job_name="serve",
        script_sha256="ab" * 32,
        script_bytes=120,
    )
    decided = Decided(
        id=decision_id,
        at=at,
        subject=subject,
        verdict="pass",
        would_be="pass",
        code="starts",
        generation=1,
        elapsed_ms=1.0,
        words=words_of(Outcome(verdict=Verdict.PASS)),
    )
    insert(connection, [row_of(decided)])


def end(connection: sqlite3.Connection, job_id: str, decision_id: str) -> None:
    ended = JobOutcome(
        job_id=job_id,
        submitted_at=1.0,
        decision_id=decision_id,
        linked_by=LinkedBy.TAG,
        started_at=2.0,
        ended_at=3.0,
        state="COMPLETED",
        outcome=LaunchOutcome.OK,
        evidence="log",
    )
    record_outcomes(connection, [ended])


def measure(connection: sqlite3.Connection, at: float, job_id: str | None, **run: Any) -> None:
    load = Load(
        mode="online_closed_loop",
        isl=run.pop("isl", 1000.0),
        osl=200.0,
        concurrency=run.pop("concurrency", 16.0),
        requests_per_s=run.pop("requests_per_s", None),
    )
    benchmark = Benchmark(
        content_hash=content_hash([at, job_id]),
        source="collect",
        setup=SETUP,
        load=load,
        targets={"output_tok_s": 1000.0},
        measured_at=at,
        job_id=job_id,
        **run,
    )
    record_benchmarks(connection, [benchmark], at=at)


def test_stretches_of_one_job_are_one_load_and_the_newest_job_comes_first(
    connection: sqlite3.Connection,
) -> None:
    decide(connection, "d1", 5.0)
    decide(connection, "d2", 6.0, user_name="bob", account=None)
    end(connection, "11", "d1")
    end(connection, "12", "d2")
    measure(connection, 10.0, "11", concurrency=10.0, requests_per_s=2.0)
    measure(connection, 11.0, "11", concurrency=30.0, requests_per_s=4.0)
    measure(connection, 20.0, "12", isl=300.0)
    assert list(served_loads(connection, 0.0)) == [
        ServedLoad("bob", None, 300.0, 200.0, 16.0, None),
        ServedLoad("alice", "nlp", 1000.0, 200.0, 20.0, 3.0),
    ]
    assert [load.user_name for load in served_loads(connection, 15.0)] == ["bob"]


def test_job_that_still_runs_counts_once_its_server_was_watched(
    connection: sqlite3.Connection,
) -> None:
    decide(connection, "d1", 5.0)
    measure(connection, 10.0, "11")
    assert list(served_loads(connection, 0.0)) == []
    start = ServerStart(
        content_hash="s",
        started_at=6.0,
        observed_at=7.0,
        setup=SETUP,
        outcome=LaunchOutcome.OK,
        job_id="11",
        decision_id="d1",
    )
    record_server_starts(connection, [start])
    end(connection, "11", "d1")
    assert [load.user_name for load in served_loads(connection, 0.0)] == ["alice"]


def test_what_is_nobodys_load_does_not_count(connection: sqlite3.Connection) -> None:
    decide(connection, "d1", 5.0)
    decide(connection, "d2", 5.0, user_name=None)
    end(connection, "11", "d1")
    end(connection, "12", "d2")
    measure(connection, 10.0, None)
    measure(connection, 11.0, "12")
    measure(connection, 12.0, "11", outcome=RunOutcome.OOM)
    measure(connection, 13.0, "11", concurrency=None)
    measure(connection, 14.0, "11", isl=0.0)
    # of a job of the same number before that decision
    measure(connection, 4.0, "11")
    assert list(served_loads(connection, 0.0)) == []
