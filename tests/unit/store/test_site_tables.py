"""What the site's jobs teach is written once, however often it is read, and summed as promised."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnipilot_slurm.decide.success import LaunchGroup, Outcomes
from omnipilot_slurm.decide.wait_history import WaitGroup
from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store import choices, database, site_tables
from omnipilot_slurm.store.choices import Choice, Did, Option, preference_pairs, record_choices
from omnipilot_slurm.store.database import open_for_writing, schema, transaction
from omnipilot_slurm.store.jobs import AccountedJob, record_jobs
from omnipilot_slurm.store.site_tables import (
    N_QUANTILES,
    FinishedLaunch,
    LaunchOutcome,
    launch_counts,
    record_launches,
    wait_history,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_800_000_000.0
LAUNCH = FinishedLaunch(
    job_id="4711",
    submitted_at=NOW,
    decision_id="k3f9",
    gpu="h100",
    n_gpus=4,
    tensor_parallel=4,
    precision="fp8",
    engine_version="0.11.0",
    outcome=LaunchOutcome.OK,
    checked=True,
)
JOB = AccountedJob(
    job_id="4711",
    submitted_at=NOW,
    user_key="ab12",
    partition="gpu",
    gres_type="h100",
    n_gpus=4,
    n_nodes=1,
    eligible_at=NOW,
    started_at=NOW + 3600.0,
    ended_at=NOW + 7200.0,
    seen_at=NOW + 7200.0,
    time_limit_min=120.0,
    state="COMPLETED",
    exit_code=0,
    signal=0,
)
PROPOSED = Option(arm={"gpu": "h100", "n_gpus": 2}, utility_terms_usd={"value": 9.0, "wait": -1.0})
OWN = Option(arm={"gpu": "a100-80g", "n_gpus": 4}, utility_terms_usd={"value": 8.0, "wait": -0.5})
CHOICE = Choice(decision_id="k3f9", at=NOW, did=Did.ACCEPTED, proposed=PROPOSED, own=OWN)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def launches(*outcomes: LaunchOutcome, **changes: object) -> list[FinishedLaunch]:
    return [
        replace(LAUNCH, job_id=f"{sorted(changes.items())}{i}", outcome=outcome, **changes)
        for i, outcome in enumerate(outcomes)
    ]


# launches


def test_launches_are_counted_by_group_and_minor_version(connection: sqlite3.Connection) -> None:
    ok, oom = LaunchOutcome.OK, LaunchOutcome.OOM
    record_launches(connection, launches(ok, ok, oom))
    record_launches(connection, launches(oom, engine_version="0.11.2"))
    record_launches(connection, launches(ok, engine_version=None))
    record_launches(connection, launches(ok, gpu="h200"))
    fp8 = LaunchGroup(4, "h100", 4, "fp8", "0.11")
    assert launch_counts(connection, 0.0).by_group == {
        fp8: Outcomes(2, 2),
        fp8._replace(engine=None): Outcomes(1, 0),
        fp8._replace(gpu="h200"): Outcomes(1, 0),
    }


def test_every_way_of_not_coming_up_is_a_failure_but_a_cancellation(
    connection: sqlite3.Connection,
) -> None:
    record_launches(connection, launches(*LaunchOutcome))
    (counted,) = launch_counts(connection, 0.0).by_group.values()
    assert counted == Outcomes(1, len(LaunchOutcome) - 2)


def test_launches_that_had_not_passed_the_checks_do_not_count(
    connection: sqlite3.Connection,
) -> None:
    record_launches(connection, launches(LaunchOutcome.OOM, checked=False))
    assert launch_counts(connection, 0.0).by_group == {}


def test_only_launches_since_a_time_count(connection: sqlite3.Connection) -> None:
    record_launches(connection, launches(LaunchOutcome.OK, submitted_at=NOW - 1.0))
    record_launches(connection, launches(LaunchOutcome.OOM))
    assert [*launch_counts(connection, NOW).by_group.values()] == [Outcomes(0, 1)]


def test_a_launch_that_is_read_again_is_not_counted_again(connection: sqlite3.Connection) -> None:
    assert record_launches(connection, [LAUNCH]) == 1
    assert record_launches(connection, [LAUNCH, replace(LAUNCH, job_id="4712")]) == 1
    (counted,) = launch_counts(connection, 0.0).by_group.values()
    assert counted == Outcomes(2, 0)


def test_what_is_learned_later_of_a_launch_replaces_what_was_known(
    connection: sqlite3.Connection,
) -> None:
    record_launches(connection, [replace(LAUNCH, outcome=LaunchOutcome.OTHER)])
    assert record_launches(connection, [replace(LAUNCH, outcome=LaunchOutcome.OOM)]) == 1
    rows = connection.execute("SELECT outcome FROM launches").fetchall()
    assert rows == [("oom",)]


def test_a_job_id_that_is_used_again_years_later_is_another_job(
    connection: sqlite3.Connection,
) -> None:
    assert record_launches(connection, [LAUNCH, replace(LAUNCH, submitted_at=NOW + 1e8)]) == 2


def test_a_batch_with_a_bad_row_is_not_written_at_all(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed: n_gpus > 0"):
        record_launches(connection, [LAUNCH, replace(LAUNCH, job_id="4712", n_gpus=0)])
    assert launch_counts(connection, 0.0).by_group == {}
    assert not connection.in_transaction


def test_an_empty_batch_is_written(connection: sqlite3.Connection) -> None:
    assert record_launches(connection, []) == record_choices(connection, []) == 0


def test_what_is_written_inside_another_transaction_goes_with_it(
    connection: sqlite3.Connection,
) -> None:
    def write_and_fail() -> None:
        with transaction(connection):
            record_launches(connection, [LAUNCH])
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert launch_counts(connection, 0.0).by_group == {}


# waits


def jobs(waits_s: list[float], **changes: object) -> list[AccountedJob]:
    job = JOB._replace(**changes)
    return [
        job._replace(
            job_id=f"{sorted(changes.items())}{i}",
            eligible_at=job.submitted_at,
            started_at=job.submitted_at + wait_s,
            ended_at=job.submitted_at + wait_s,
            seen_at=job.submitted_at + wait_s,
        )
        for i, wait_s in enumerate(waits_s)
    ]


def test_waits_are_kept_apart_by_partition_size_and_type(connection: sqlite3.Connection) -> None:
    record_jobs(connection, jobs([3600.0, 7200.0]))
    record_jobs(connection, jobs([1800.0], partition="long"))
    record_jobs(connection, jobs([900.0], n_gpus=8))
    record_jobs(connection, jobs([0.0], gres_type=None))
    by_group = wait_history(connection, 0.0).by_group
    assert {group: sample.quantiles_h for group, sample in by_group.items()} == {
        WaitGroup("gpu", 4, "h100"): (1.0, 2.0),
        WaitGroup("gpu", 4, None): (0.0,),
        WaitGroup("gpu", 8, "h100"): (0.25,),
        WaitGroup("long", 4, "h100"): (0.5,),
    }
    assert by_group[WaitGroup("gpu", 4, "h100")].mean_h == 1.5
    assert by_group[WaitGroup("gpu", 4, "h100")].n == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waits_s=st.lists(st.integers(0, 10**7), min_size=1, max_size=150))
def test_quantiles_are_the_nearest_ranks_of_evenly_spaced_levels(
    connection: sqlite3.Connection, waits_s: list[int]
) -> None:
    connection.execute("DELETE FROM jobs")
    record_jobs(connection, jobs(waits_s))
    (sample,) = wait_history(connection, 0.0).by_group.values()
    n = len(waits_s)
    n_kept = min(n, N_QUANTILES)
    ranks = [math.ceil(n * (2 * j - 1) / (2 * n_kept)) for j in range(1, n_kept + 1)]
    expected = [sorted(waits_s)[rank - 1] / 3600.0 for rank in ranks]
    assert list(sample.quantiles_h) == pytest.approx(expected)
    assert sample.n == n
    assert sample.mean_h == pytest.approx(sum(waits_s) / n / 3600.0)


def test_only_waits_since_a_time_count(connection: sqlite3.Connection) -> None:
    record_jobs(connection, jobs([9.0], submitted_at=NOW - 1.0))
    record_jobs(connection, jobs([3600.0]))
    (sample,) = wait_history(connection, NOW).by_group.values()
    assert (sample.n, sample.quantiles_h) == (1, (1.0,))


# choices


def test_an_accepted_proposal_is_preferred_to_the_users_own_choice(
    connection: sqlite3.Connection,
) -> None:
    record_choices(connection, [CHOICE])
    (pair,) = preference_pairs(connection, 0.0)
    assert (pair.preferred, pair.other) == (PROPOSED, OWN)
    assert (pair.decision_id, pair.at, pair.did) == ("k3f9", NOW, Did.ACCEPTED)


@pytest.mark.parametrize("did", [Did.OVERRIDDEN, Did.OPTED_OUT, Did.CANCELLED_EARLY])
def test_whoever_does_not_accept_prefers_their_own(
    connection: sqlite3.Connection, did: Did
) -> None:
    record_choices(connection, [replace(CHOICE, did=did)])
    (pair,) = preference_pairs(connection, 0.0)
    assert (pair.preferred, pair.other, pair.did) == (OWN, PROPOSED, did)


def test_a_choice_for_something_unknown_tells_nothing(connection: sqlite3.Connection) -> None:
    assert record_choices(connection, [replace(CHOICE, did=Did.CANCELLED_EARLY, own=None)]) == 1
    assert preference_pairs(connection, 0.0) == ()


def test_a_choice_is_written_once_and_the_last_word_counts(connection: sqlite3.Connection) -> None:
    assert record_choices(connection, [CHOICE]) == 1
    assert record_choices(connection, [CHOICE]) == 0
    assert record_choices(connection, [replace(CHOICE, did=Did.CANCELLED_EARLY)]) == 1
    (pair,) = preference_pairs(connection, 0.0)
    assert pair.did is Did.CANCELLED_EARLY


def test_pairs_come_in_the_order_of_the_choices_since_a_time(
    connection: sqlite3.Connection,
) -> None:
    record_choices(
        connection,
        [
            replace(CHOICE, decision_id=name, at=at)
            for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0))
        ],
    )
    assert [pair.decision_id for pair in preference_pairs(connection, 2.0)] == ["b", "c"]


# all of them


def test_a_database_of_schema_1_keeps_its_decisions_and_gets_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sections = tmp_path / "o.db", schema()
    with monkeypatch.context() as patch:
        patch.setattr(database, "schema", lambda: {1: sections[1]})
        with closing(open_for_writing(path)) as old:
            old.execute(
                "INSERT INTO decisions (id, at, verdict, script_sha256, script_bytes, generation, "
                "elapsed_ms, answer, record) VALUES ('a', 1.0, 'pass', '', 0, 1, 0.1, '{}', '{}')"
            )
    with closing(open_for_writing(path)) as new:
        assert new.execute("SELECT id FROM decisions").fetchall() == [("a",)]
        assert record_launches(new, [LAUNCH]) == record_jobs(new, [JOB]) == 1
        assert [*wait_history(new, 0.0).by_group] == [WaitGroup("gpu", 4, "h100")]
        assert record_choices(new, [CHOICE]) == 1


def test_what_is_too_old_is_deleted_the_oldest_first(connection: sqlite3.Connection) -> None:
    times = [float(at) for at in range(5)]
    record_launches(connection, [replace(LAUNCH, submitted_at=at) for at in times])
    record_choices(connection, [replace(CHOICE, decision_id=str(at), at=at) for at in times])
    assert site_tables.delete_before(connection, 4.0, limit=2) == 2
    assert choices.delete_before(connection, 4.0, limit=2) == 2
    for table, column in (("launches", "submitted_at"), ("choices", "at")):
        kept = connection.execute(f"SELECT {column} FROM {table} ORDER BY 1").fetchall()
        assert kept == [(2.0,), (3.0,), (4.0,)]
    assert site_tables.delete_before(connection, 4.0, limit=100) == 2


@pytest.mark.parametrize(
    ("read", "what"),
    [(launch_counts, "launches"), (wait_history, "waits"), (preference_pairs, "choices")],
)
def test_a_table_that_cannot_be_read_is_a_store_error(read, what: str) -> None:
    with closing(sqlite3.connect(":memory:")) as empty, pytest.raises(StoreError) as caught:
        read(empty, 0.0)
    assert str(caught.value) == f"{what} cannot be read: no such table: {what}"
