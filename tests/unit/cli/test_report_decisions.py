"""`omnipilot report decisions` counts what is in the daemon's store, or says why it cannot."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from decided_store import CHEAPER, JOBS, LLAMA_70B, row, script, written

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.records import Mode
from omnipilot_slurm.store.choices import Choice, Did, Option, record_choices
from omnipilot_slurm.store.database import open_for_writing, schema
from omnipilot_slurm.store.outcomes import JobOutcome, LinkedBy, record_outcomes
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    from pathlib import Path

NOW = time.time()
HOUR_S = 3600


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Five kinds of jobs in observe mode, two of them again in enforce mode, one long ago."""
    rows = [row(name, text, at=NOW - 6 * HOUR_S) for name, text in JOBS.items()]
    rows += [
        row("moved2", JOBS["moved"], at=NOW - 5 * HOUR_S, repeats="moved"),
        row("moved3", JOBS["moved"], at=NOW - HOUR_S, mode=Mode.ENFORCE, user_name="bob"),
        row("refused2", JOBS["refused"], at=NOW - 60, mode=Mode.ENFORCE, user_name="bob"),
        row("old", JOBS["moved"], at=NOW - 30 * 24 * HOUR_S),
    ]
    return written(tmp_path / "o.db", rows)


def run(capsys: pytest.CaptureFixture[str], store: Path, *words: str) -> tuple[int, str, str]:
    code = main(["report", "decisions", "--store", str(store), *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def found(capsys: pytest.CaptureFixture[str], store: Path, *words: str) -> dict[str, Any]:
    code, out, _ = run(capsys, store, "--json", *words)
    assert code == 0
    plain: dict[str, Any] = json.loads(out)
    return plain


def test_decisions_are_counted_by_what_they_would_be_and_by_mode(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = found(capsys, store)
    assert (report["n"], report["n_users"]) == (8, 2)
    assert report["would_be_by_mode"] == {
        "abstain": {"observe": 1},
        "pass": {"observe": 1},
        "reject": {"enforce": 1, "observe": 1},
        "rewrite": {"enforce": 1, "observe": 3},
    }
    # in observe mode everything is let through
    assert report["by_verdict"] == {"pass": 6, "reject": 1, "rewrite": 1}


def test_starts_that_fail_are_counted_at_the_hours_and_the_price_they_hold(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = found(capsys, store)
    done, not_done = report["done"], report["not_done"]
    assert (done["n_rewrites"], done["n_rejects"], done["n_failing"]) == (1, 1, 2)
    assert (not_done["n_rewrites"], not_done["n_rejects"], not_done["n_failing"]) == (3, 1, 3)
    # one A100 of the 70B job and the three of the refused one, 0.1 h each, at $1.5/h
    assert done["failing_gpu_hours"] == pytest.approx(0.1 * (1 + 3))
    assert done["failing_usd"] == pytest.approx(0.1 * 1.5 * (1 + 3))
    assert not_done["failing_gpu_hours"] == pytest.approx(0.1 * (1 + 1 + 3))
    assert 0 < done["risk_gpu_hours"] < 0.1 * 8


def test_a_move_for_its_worth_counts_with_its_gain_and_its_gpu_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"usd_per_token": 0.0, "partition": "h100", "at": NOW}
    enforced = row("a", CHEAPER, mode=Mode.ENFORCE, **fields)
    advised = row("b", CHEAPER.replace("auto ", ""), **fields)
    report = found(capsys, written(tmp_path / "o.db", [enforced, advised]))
    for effect in (report["done"], report["advised"]):
        assert (effect["n_gains"], effect["n_failing"]) == (1, 0)
        # ten hours of 4 H100 at $3 against those of 1 A100 at $1.5, if it starts and waits as often
        assert effect["gpu_hours_asked"] == 40
        assert effect["gpu_hours_moved"] == 10
        assert effect["gain_usd_mid"] == pytest.approx(10 * (12.0 - 1.5), rel=0.1)
        # tokens that are worth nothing leave nothing uncertain
        assert effect["gain_usd_lo"] == effect["gain_usd_hi"]
    assert "  dollars gained (80 % bounds)" in run(capsys, tmp_path / "o.db")[1]


def test_reasons_abstentions_and_opt_outs_are_listed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = found(capsys, store)
    codes = {(each["verdict"], each["code"]): each["n"] for each in report["reasons"]}
    assert codes["abstain", "model_unknown"] == 1
    assert codes["rewrite", "tp_absent"] == 1
    assert max(codes.values()) == report["reasons"][0]["n"] == 3
    assert report["abstained"] == {"model_unknown": 1}
    assert report["opted_out"] == {"n": 1, "n_users": 1}


def test_only_decisions_of_the_time_asked_are_counted(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(capsys, store, "--since", "52w")["n"] == 9
    assert found(capsys, store, "--since", "1970-01-02")["n"] == 9
    assert found(capsys, store, "--since", "5.5h")["n"] == 3
    assert found(capsys, store, "--since", "0.1d")["n"] == 2


def test_what_users_did_is_counted_by_kind(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = Option(arm={"gpu": "h100"}, utility_terms_usd={"value": 1.0})
    choice = Choice(decision_id="moved", at=NOW, did=Did.ACCEPTED, proposed=option, own=None)
    with closing(open_for_writing(store)) as connection:
        record_choices(connection, [choice])
    assert found(capsys, store)["choices"] == {"accepted": 1}
    assert "what users did with proposals: accepted 1" in run(capsys, store)[1]


def ended(decision_id: str, outcome: LaunchOutcome, *, job_id: str = "1") -> JobOutcome:
    return JobOutcome(
        job_id=f"{job_id}-{decision_id}",
        submitted_at=NOW,
        decision_id=decision_id,
        linked_by=LinkedBy.TAG,
        started_at=NOW,
        ended_at=NOW,
        state="COMPLETED",
        outcome=outcome,
        evidence="log",
    )


def test_how_servers_really_started_is_held_against_what_was_said(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [
        # let through in observe mode, though said to fail
        ended("moved", LaunchOutcome.OOM),
        ended("moved2", LaunchOutcome.OK),
        ended("refused", LaunchOutcome.CANCELLED),
        # really moved, as an array of two
        ended("moved3", LaunchOutcome.OK),
        ended("moved3", LaunchOutcome.TIMEOUT, job_id="2"),
        ended("filled", LaunchOutcome.OK),
        # neither an arm nor an old decision counts
        ended("off", LaunchOutcome.OK),
        ended("old", LaunchOutcome.OK),
    ]
    with closing(open_for_writing(store)) as connection:
        record_outcomes(connection, outcomes)
    assert found(capsys, store)["started"] == {
        "fails": {"n_up": 1, "n_failed": 1, "n_unknown": 1},
        "moved": {"n_up": 1, "n_failed": 1, "n_unknown": 0},
        "starts": {"n_up": 1, "n_failed": 0, "n_unknown": 0},
    }
    words = [line.split() for line in run(capsys, store)[1].splitlines()]
    assert ["said", "to", "fail", "for", "certain", "1", "1", "1"] in words
    assert ["moved", "to", "where", "it", "starts", "1", "1", "0"] in words


def test_the_text_has_the_tables_an_admin_reads(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, store)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("8 decisions on jobs of 2 users, ")
    assert lines[2].split("  ")[0] == "verdict in enforce mode"
    words = [line.split() for line in lines]
    assert ["rewrite", "3", "0", "1", "1"] in words
    assert ["jobs", "refused", "1", "1", "0"] in words
    assert "abstentions: model_unknown 1" in lines
    assert "opted out: 1 job of 1 user" in lines
    assert lines[-1] == "what users did with proposals: nothing is known yet"
    assert "a start that fails is taken to hold its GPUs for 0.1 h (failed_launch_hours)" in lines


def test_an_empty_store_says_that_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "o.db"
    open_for_writing(store).close()
    code, out, _ = run(capsys, store, "--since", "2026-11-01")
    assert (code, out) == (0, f"no decisions since 2026-11-01 00:00 in {store}\n")
    assert found(capsys, store)["n"] == 0


def test_the_store_is_the_one_that_the_settings_name(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    own = site / "omnipilot.yaml"
    own.write_text(f"schema: 1\ndaemon: {{store: {store}}}\n")
    assert main(["report", "decisions", "--config", str(site), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 8
    own.write_text("schema: 1\ndaemon: {store: null}\n")
    assert main(["report", "decisions", "--config", str(site)]) == 2
    said = "error: daemon.store is null: no decisions are kept\nhint: see omnipilot.yaml\n"
    assert capsys.readouterr().err == said


def test_a_failed_launch_costs_what_the_site_says(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "utility.yaml").write_text("schema: 1\nutility: {failed_launch_hours: 1}\n")
    report = found(capsys, store, "--config", str(site))
    assert report["done"]["failing_gpu_hours"] == pytest.approx(4)


def test_a_missing_store_says_who_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "none.db"
    code, _, said = run(capsys, store)
    assert code == 1
    hint = "omnipilotd creates it with the first decision; daemon.store names it"
    assert said == f"error: {store}: there is no database\nhint: {hint}\n"


def test_a_locked_store_is_said_not_waited_for(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        code, _, said = run(capsys, store)
    assert code == 1
    hint = "run this as root or the daemon's user"
    assert said == f"error: {store}: cannot be read: database is locked\nhint: {hint}\n"


def test_a_store_of_an_older_release_says_how_it_is_brought_up_to_date(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA user_version = 1")
    code, _, said = run(capsys, store)
    assert code == 1
    assert said == (
        f"error: {store}: has schema 1, this release reads {max(schema())}\n"
        "hint: restart omnipilotd, which brings the database up to date\n"
    )


def test_a_file_that_is_no_database_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "o.db"
    store.write_text("hello, this is a text that is long enough to be looked at")
    code, _, said = run(capsys, store)
    assert code == 1
    assert said.startswith(f"error: {store}: cannot be read: file is not a database\n")


@pytest.mark.parametrize("text", ["7", "7x", "d", "yesterday", "2026-13-01", ""])
def test_a_time_that_cannot_be_read_shows_the_forms(
    text: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = run(capsys, store, "--since", text)
    assert code == 2
    forms = "must be a span (12h, 7d, 2w) or a date (2026-11-29)"
    assert said == f"error: --since {forms}, was {text!r}\n"


def test_a_record_without_reasons_is_counted_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = row("a", script("gpu:a100:1", LLAMA_70B), at=NOW - 9)
    store = written(tmp_path / "o.db", [first, row("b", JOBS["off"], at=NOW, repeats="gone")])
    report = found(capsys, store)
    assert report["n"] == 2
    assert report["would_be_by_mode"]["pass"] == {"unknown": 1}
    assert "in mode unknown" in run(capsys, store)[1]
