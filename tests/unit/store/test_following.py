"""What users made of proposals is told by real decisions in a store, and by how their jobs ran."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from decided_store import CHEAPER, row, written

from omnipilot_slurm.records import Mode
from omnipilot_slurm.store.choices import Did, preference_pairs, record_choices
from omnipilot_slurm.store.database import open_for_reading, open_for_writing
from omnipilot_slurm.store.following import EARLY_S, WINDOW_S, choices_since
from omnipilot_slurm.store.jobs import AccountedJob, record_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.store.choices import Choice
    from omnipilot_slurm.store.decisions import Row

NOW = 1_700_000_000.0
#: the same server, the site's to place or the user's own choice
OWN = CHEAPER.replace("auto ", "")


def decision(
    decision_id: str, text: str, *, after: float = 0.0, mode: Mode = Mode.ENFORCE, **fields: Any
) -> Row:
    fields = {"usd_per_token": 0.0, "partition": "h100", "name": "serve", **fields}
    return row(decision_id, text, at=NOW + after, mode=mode, **fields)


def job(
    decision_id: str, *, state: str, ran_s: float | None, waited_s: float = 30.0
) -> AccountedJob:
    started = None if ran_s is None else NOW + waited_s
    ended = NOW + waited_s + (ran_s or 0.0)
    return AccountedJob(
        job_id="4711",
        submitted_at=NOW,
        user_key=None,
        partition="a100",
        gres_type="a100",
        n_gpus=1,
        n_nodes=1,
        eligible_at=NOW,
        started_at=started,
        ended_at=None if state == "RUNNING" else ended,
        seen_at=ended,
        time_limit_min=600.0,
        state=state,
        exit_code=0,
        signal=0,
        decision_id=decision_id,
    )


def made(folder: Path, rows: list[Row], *jobs: AccountedJob, at: float = NOW) -> list[Choice]:
    store = written(folder / "o.db", rows)
    with closing(open_for_writing(store)) as connection:
        record_jobs(connection, jobs)
    with closing(open_for_reading(store)) as connection:
        return choices_since(connection, at)


def test_a_moved_job_that_runs_on_was_accepted(tmp_path: Path) -> None:
    rows = [decision("a", CHEAPER)]
    (choice,) = made(tmp_path, rows, job("a", state="RUNNING", ran_s=EARLY_S + 1))
    assert (choice.decision_id, choice.did) == ("a", Did.ACCEPTED)
    assert (choice.proposed.arm["gpu"], choice.proposed.arm["n_gpus"]) == ("a100-40g", 1)
    assert choice.own is not None
    assert (choice.own.arm["gpu"], choice.own.arm["n_gpus"]) == ("h100", 4)
    assert choice.own.utility_terms_usd["gpu_cost"] == 120.0
    assert choice.own.weights == {"value": 0.0, "slo": 10.0, "wait": 1.0, "failure": 0.1}
    assert 0.5 < choice.own.p_launch < 1


@pytest.mark.parametrize(
    ("state", "ran_s", "waited_s", "did"),
    [
        ("CANCELLED", 60.0, 3600.0, Did.CANCELLED_EARLY),
        ("CANCELLED", None, 60.0, Did.CANCELLED_EARLY),
        ("CANCELLED", EARLY_S + 1, 30.0, Did.ACCEPTED),
        ("COMPLETED", EARLY_S + 1, 30.0, Did.ACCEPTED),
        # waited for long and given up, failed at once, has only begun: tells nothing
        ("CANCELLED", None, 36_000.0, None),
        ("FAILED", 5.0, 30.0, None),
        ("RUNNING", 5.0, 30.0, None),
    ],
)
def test_how_a_moved_job_ran_tells_what_was_made_of_the_move(
    tmp_path: Path, state: str, ran_s: float | None, waited_s: float, did: Did | None
) -> None:
    one = job("a", state=state, ran_s=ran_s, waited_s=waited_s)
    found = made(tmp_path, [decision("a", CHEAPER)], one)
    assert [choice.did for choice in found] == ([] if did is None else [did])


def test_off_on_the_next_submission_of_that_name_opts_out(tmp_path: Path) -> None:
    off = CHEAPER.replace("#OMNIPILOT auto", "#OMNIPILOT off")
    rows = [decision("a", CHEAPER), decision("b", off, after=60)]
    # whatever became of the job that was moved
    (choice,) = made(tmp_path, rows, job("a", state="RUNNING", ran_s=EARLY_S + 1))
    assert (choice.decision_id, choice.did, choice.at) == ("a", Did.OPTED_OUT, NOW + 60)
    assert choice.own is not None
    assert choice.own.arm["gpu"] == "h100"


ADVISED = OWN.replace("h100:4", "a100:1").replace("-tp 4", "-tp 1")
ELSEWHERE = OWN.replace("h100:4", "h200:1").replace("-tp 4", "-tp 1")


def test_going_where_it_was_advised_accepts_and_elsewhere_overrides(tmp_path: Path) -> None:
    went = [decision("a", OWN), decision("b", ADVISED, after=60, partition="a100")]
    (choice,) = made(tmp_path, went)
    assert (choice.decision_id, choice.did) == ("a", Did.ACCEPTED)
    (tmp_path / "o.db").unlink()
    elsewhere = [decision("a", OWN), decision("b", ELSEWHERE, after=60, partition="h200")]
    found = {choice.decision_id: choice for choice in made(tmp_path, elsewhere)}
    assert found["a"].did is Did.OVERRIDDEN
    own = found["a"].own
    assert own is not None
    assert own.arm["gpu"] == "h200"


@pytest.mark.parametrize(
    "later",
    [
        # the same script again, another job, another user, another model, too late
        decision("b", OWN, after=60),
        decision("b", ADVISED, after=60, partition="a100", name="other"),
        decision("b", ADVISED, after=60, partition="a100", user_name="bob"),
        decision("b", ADVISED.replace("3.1-8B", "3.2-3B"), after=60, partition="a100"),
        decision("b", ADVISED, after=WINDOW_S + 1, partition="a100"),
    ],
)
def test_what_says_nothing_about_the_proposal_is_no_choice(tmp_path: Path, later: Row) -> None:
    found = made(tmp_path, [decision("a", OWN), later])
    assert [choice for choice in found if choice.decision_id == "a"] == []


def test_a_job_that_was_only_advised_on_says_nothing_by_how_it_runs(tmp_path: Path) -> None:
    assert made(tmp_path, [decision("a", OWN)], job("a", state="CANCELLED", ran_s=5.0)) == []


def test_what_was_only_observed_cannot_be_answered(tmp_path: Path) -> None:
    rows = [
        decision("a", OWN, mode=Mode.OBSERVE),
        decision("b", ADVISED, after=60, partition="a100", mode=Mode.OBSERVE),
    ]
    assert made(tmp_path, rows, job("a", state="RUNNING", ran_s=EARLY_S + 1)) == []


def test_choices_read_again_are_recorded_once_and_become_pairs_with_their_user(
    tmp_path: Path,
) -> None:
    store = written(tmp_path / "o.db", [decision("a", CHEAPER)])
    with closing(open_for_writing(store)) as connection:
        record_jobs(connection, [job("a", state="RUNNING", ran_s=EARLY_S + 1)])
        found = choices_since(connection, NOW)
        assert [record_choices(connection, found) for _ in range(2)] == [1, 0]
        (pair,) = preference_pairs(connection, 0.0)
    assert (pair.user_name, pair.did) == ("alice", Did.ACCEPTED)
    assert pair.preferred == found[0].proposed
    assert pair.other == found[0].own


def test_a_failing_choice_of_ones_own_has_no_worth_to_compare(tmp_path: Path) -> None:
    fails = CHEAPER.replace("8B-Instruct", "70B-Instruct").replace("h100:4", "h100:1")
    rows = [decision("a", fails.replace("-tp 4", "-tp 1"))]
    (choice,) = made(tmp_path, rows, job("a", state="RUNNING", ran_s=EARLY_S + 1))
    assert (choice.did, choice.own) == (Did.ACCEPTED, None)
