"""`omnipilot explain ID` shows a stored decision again, with its arms and what they are worth."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from decided_store import CHEAPER, JOBS, row, written

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.records import Mode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fields = {"usd_per_token": 0.0, "partition": "h100", "account": "nlp", "name": "serve"}
    return written(
        tmp_path / "o.db",
        [
            row("k3f9", CHEAPER, at=86_400.0, mode=Mode.ENFORCE, **fields),
            row("off", JOBS["off"], at=86_400.0),
            row("again", CHEAPER, at=86_500.0, repeats="k3f9", **fields),
            row("lost", CHEAPER, at=86_500.0, repeats="gone", **fields),
        ],
    )


def run(capsys: pytest.CaptureFixture[str], store: Path, *words: str) -> tuple[int, str, str]:
    code = main(["explain", "--store", str(store), *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_who_why_arms_worths_and_picture_are_shown(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capsys, store, "k3f9")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("decision k3f9 of 1970-01-02 ")
    assert lines[0].endswith("job serve of alice nlp h100")
    assert lines[1].startswith("verdict: rewrite (worth_more): ")
    (head,) = (i for i, line in enumerate(lines) if line.startswith("partition  arm"))
    arms = lines[head + 1 : lines.index("", head)]
    assert len(arms) == 13
    assert sum(line.endswith("<- chosen") for line in arms) == 1
    (head,) = (i for i, line in enumerate(lines) if line.startswith("worth in $"))
    worths = lines[head + 1 : lines.index("", head)]
    assert len(worths) == 13
    assert sum(line.endswith("  yours") for line in worths) == 1
    # tokens are worth nothing, so the best one is what costs least
    assert worths[0].endswith("  chosen")
    assert all("(assumed)" in line for line in worths)
    assert " O yours   X proposed " in lines[-1]


def test_the_tag_of_a_job_names_its_decision(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged = run(capsys, store, "omnipilot=k3f9:rewrite")
    assert tagged == run(capsys, store, "k3f9")
    assert tagged[0] == 0


def test_json_is_the_whole_record(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, store, "--json", "again")
    record = json.loads(out)
    assert (code, record["id"], record["at"]) == (0, "again", 86_500.0)
    assert record["chosen"]["utility_terms_usd"]["value"] == 0.0


def test_a_job_that_was_let_through_has_neither_arms_nor_picture(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, store, "off")
    assert code == 0
    lines = out.splitlines()
    assert lines[1:] == [
        "verdict: pass (opted_out): the user wrote `off`",
        "mode: observe, so what was done is: pass",
    ]


def test_what_is_not_there_is_said(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, store, "nope")
    assert code == 1
    hint = "it may be older than daemon.retention_days, or of another controller"
    assert said == f"error: decision 'nope' is not in {store}\nhint: {hint}\n"
    code, _, said = run(capsys, store, "lost")
    assert code == 1
    assert said == f"error: the reasons of decision 'lost' are no longer stored in {store}\n"


def test_a_png_without_matplotlib_is_a_usage_error(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    # another test may have loaded it
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, said = run(capsys, store, "k3f9", "--png", str(tmp_path / "p.png"))
    assert code == 2
    assert said == (
        "error: --png needs matplotlib, which is not installed here\n"
        "hint: pip install 'omnipilot_slurm[plots]'\n"
    )
