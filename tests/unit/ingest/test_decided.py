"""Jobs find the decision on them, and only that, and their ends feed the launch prior."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sacct_job_for_tests import JOB, NOON

from omnipilot_slurm.decide.success import LaunchGroup, Outcomes
from omnipilot_slurm.ingest.decided import DecidedJobs
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.outcomes import JobOutcome, LinkedBy, outcomes
from omnipilot_slurm.store.site_tables import LaunchOutcome, launch_counts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from omnipilot_slurm.ingest.sacct_job import SacctJob

ARM = {"gpu": "h100", "n_gpus": 4, "tensor_parallel": 4, "precision": "bf16", "starts": "starts"}
RECORD = {
    "asked": ARM,
    "chosen": ARM | {"gpu": "h200", "n_gpus": 2, "tensor_parallel": 2},
    "launch": {"model": "m", "vllm_version": "0.10.1"},
}
DECIDED = JOB._replace(
    ended_at=NOON + 120.0, state="FAILED", exit_code=1, admin_comment="omnipilot=k3f9:advise"
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def decide(connection: sqlite3.Connection, decision_id: str, **changes: object) -> None:
    cells: dict[str, object] = {
        "id": decision_id,
        "at": NOON + 0.4,
        "verdict": "advise",
        "user_name": "alice",
        "job_name": "serve",
        "script_sha256": "",
        "script_bytes": 0,
        "generation": 1,
        "elapsed_ms": 1.0,
        "answer": "{}",
        "record": json.dumps(RECORD),
    }
    cells |= changes
    connection.execute(
        f"INSERT INTO decisions ({', '.join(cells)}) VALUES ({', '.join('?' * len(cells))})",
        list(cells.values()),
    )


def record(connection: sqlite3.Connection, *jobs: SacctJob, log: str = "") -> list[JobOutcome]:
    DecidedJobs(read=lambda _job: log).record(connection, jobs)
    return list(outcomes(connection, 0.0))


def test_a_tagged_job_ends_as_its_log_says_and_counts_for_the_prior(
    connection: sqlite3.Connection,
) -> None:
    decide(connection, "k3f9")
    log = "vLLM API server version 0.11.0\nCUDA out of memory"
    (found,) = record(connection, DECIDED, log=log)
    assert (found.decision_id, found.linked_by) == ("k3f9", LinkedBy.TAG)
    assert (found.outcome, found.evidence) == (LaunchOutcome.OOM, "log_cuda_out_of_memory")
    assert launch_counts(connection, 0.0).by_group == {
        LaunchGroup(4, "h100", 4, "bf16", "0.11"): Outcomes(0, 1)
    }


def test_a_job_that_was_changed_ran_on_the_chosen_arm(connection: sqlite3.Connection) -> None:
    decide(connection, "k3f9", verdict="rewrite")
    record(connection, DECIDED._replace(state="COMPLETED"))
    assert launch_counts(connection, 0.0).by_group == {
        LaunchGroup(2, "h200", 2, "bf16", "0.10"): Outcomes(1, 0)
    }


def test_a_launch_that_had_failed_a_check_does_not_count(connection: sqlite3.Connection) -> None:
    fails = RECORD | {"asked": ARM | {"starts": "fails"}}
    decide(connection, "k3f9", record=json.dumps(fails))
    assert len(record(connection, DECIDED)) == 1
    assert launch_counts(connection, 0.0).by_group == {}


def test_a_decision_without_an_arm_has_an_outcome_and_no_launch(
    connection: sqlite3.Connection,
) -> None:
    decide(connection, "k3f9", record=json.dumps({"asked": None, "launch": None}))
    assert len(record(connection, DECIDED)) == 1
    assert connection.execute("SELECT count(*) FROM launches").fetchone() == (0,)


def test_a_job_that_still_runs_has_no_outcome_yet(connection: sqlite3.Connection) -> None:
    decide(connection, "k3f9")
    assert record(connection, DECIDED._replace(ended_at=None, state="RUNNING")) == []


def test_an_answer_that_was_given_again_is_that_decision(connection: sqlite3.Connection) -> None:
    decide(connection, "first")
    decide(connection, "k3f9", repeats="first", answer=None, record=None, at=NOON + 1.0)
    assert [one.decision_id for one in record(connection, DECIDED)] == ["k3f9"]
    assert len(launch_counts(connection, 0.0).by_group) == 1


def test_a_tag_of_a_decision_that_is_not_here_is_passed_over(
    connection: sqlite3.Connection,
) -> None:
    assert record(connection, DECIDED) == []


# without a tag

PLAIN = DECIDED._replace(admin_comment="")


@pytest.mark.parametrize("after_s", [0.0, 5.0])
def test_a_job_without_a_tag_is_found_by_user_name_and_time(
    connection: sqlite3.Connection, after_s: float
) -> None:
    decide(connection, "k3f9")
    (found,) = record(connection, PLAIN._replace(submitted_at=NOON + after_s))
    assert (found.decision_id, found.linked_by) == ("k3f9", LinkedBy.SUBMISSION)


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "bob"},
        {"name": "other"},
        {"submitted_at": NOON - 1.0},
        {"submitted_at": NOON + 6.0},
    ],
)
def test_another_job_is_not_linked(
    connection: sqlite3.Connection, changes: dict[str, object]
) -> None:
    decide(connection, "k3f9")
    assert record(connection, PLAIN._replace(**changes)) == []


def test_two_submissions_in_the_same_seconds_link_to_none(connection: sqlite3.Connection) -> None:
    decide(connection, "k3f9")
    decide(connection, "k3fa")
    assert record(connection, PLAIN, PLAIN._replace(job_id="4712")) == []


def test_two_jobs_cannot_be_the_one_that_was_decided_on(connection: sqlite3.Connection) -> None:
    decide(connection, "k3f9")
    assert record(connection, PLAIN, PLAIN._replace(job_id="4712")) == []


def test_the_tasks_of_an_array_were_one_submission(connection: sqlite3.Connection) -> None:
    decide(connection, "k3f9")
    found = record(connection, *(PLAIN._replace(job_id=f"4711_{i}") for i in range(3)))
    assert [one.job_id for one in found] == ["4711_0", "4711_1", "4711_2"]
