"""The site's report says what the database holds, as text and as a page that loads nothing."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from decided_store import CHEAPER, JOBS, row, written

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.predict.drift import Group, Outcome, drifts
from omnipilot_slurm.priors_file import load_priors
from omnipilot_slurm.report.page import as_html
from omnipilot_slurm.report.sections import Bar, Section, as_text
from omnipilot_slurm.report.site_sections import Period, site_sections
from omnipilot_slurm.store.database import open_for_reading, open_for_writing
from omnipilot_slurm.store.jobs import AccountedJob, record_jobs
from omnipilot_slurm.store.site_tables import FinishedLaunch, LaunchOutcome, record_launches

if TYPE_CHECKING:
    from pathlib import Path

TITLES = [
    "Decisions",
    "Savings",
    "Starts, against what was said of them",
    "Launches that had passed the checks",
    "Calibration of the 80 % intervals",
    "Drift",
    "Abstentions by axis",
    "Queue waits, in hours",
    "What to measure next",
]
PERIOD = Period(since=0.0, until=1.8e9, failed_launch_hours=0.1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decisions of every kind, launches and waits."""
    rows = [row(f"d{i}", text, at=1.7e9 + i) for i, text in enumerate([*JOBS.values(), CHEAPER])]
    path = written(tmp_path_factory.mktemp("report") / "o.db", rows)
    with closing(open_for_writing(path)) as connection:
        record_launches(connection, [launch(i, ok=i > 0) for i in range(5)])
        record_jobs(connection, [job(i) for i in range(3)])
    return path


def launch(number: int, *, ok: bool) -> FinishedLaunch:
    return FinishedLaunch(
        job_id=str(number),
        submitted_at=1.7e9,
        decision_id=None,
        gpu="h100",
        n_gpus=2,
        tensor_parallel=2,
        precision="bf16",
        engine_version="0.11.0",
        outcome=LaunchOutcome.OK if ok else LaunchOutcome.OTHER,
        checked=True,
    )


def job(number: int) -> AccountedJob:
    return AccountedJob(
        job_id=str(100 + number),
        submitted_at=1.7e9,
        user_key=None,
        partition="gpu<b>",
        gres_type="h100",
        n_gpus=2,
        n_nodes=1,
        eligible_at=1.7e9,
        started_at=1.7e9 + 3600 * (number + 1),
        ended_at=1.7e9 + 9e4,
        seen_at=1.7e9 + 9e4,
        time_limit_min=600.0,
        state="COMPLETED",
        exit_code=0,
        signal=0,
        serves=None,
        decision_id=None,
    )


def live() -> list[Outcome]:
    group = Group("output_tok_s", "h100|1", "0.12")
    return [Outcome(group, float(i), -0.5, is_inside=i < 2) for i in range(12)]


@pytest.fixture(scope="module")
def sections(store: Path) -> tuple[Section, ...]:
    with closing(open_for_reading(store)) as connection:
        return site_sections(connection, PERIOD, load_priors([]), live(), drifts(live()))


def by_title(sections: tuple[Section, ...], title: str) -> Section:
    return next(each for each in sections if each.title == title)


def test_every_part_is_there_in_order(sections: tuple[Section, ...]) -> None:
    assert [each.title for each in sections] == TITLES


def test_decisions_are_counted_by_verdict(sections: tuple[Section, ...]) -> None:
    section = by_title(sections, "Decisions")
    assert section.note.startswith(f"{len(JOBS) + 1} on jobs of ")
    assert sum(int(bar.text) for bar in section.bars) == len(JOBS) + 1
    assert sum(bar.share for bar in section.bars) == pytest.approx(1.0)


def test_launches_stand_beside_what_is_expected_of_them(sections: tuple[Section, ...]) -> None:
    (bar,) = by_title(sections, "Launches that had passed the checks").bars
    assert (bar.label, bar.share) == ("2 x h100 TP 2 bf16 0.11", 0.8)
    assert bar.lo is not None
    assert bar.hi is not None
    # the prior, fitted on five launches, holds more than they do
    assert 0.8 < bar.lo < bar.hi < 1
    assert bar.text.startswith("4 of 5 came up; expected of the next ")


def test_calibration_and_drift_say_what_was_measured(sections: tuple[Section, ...]) -> None:
    (bar,) = by_title(sections, "Calibration of the 80 % intervals").bars
    assert (bar.label, bar.text) == ("output_tok_s", "2 of 12 inside")
    (_, drifted) = by_title(sections, "Drift").rows
    assert drifted[0] == "output_tok_s h100|1 0.12"
    assert "2 of 12 inside their 80 % intervals" in drifted[-1]


def test_waits_are_told_in_hours(sections: tuple[Section, ...]) -> None:
    rows = by_title(sections, "Queue waits, in hours").rows
    assert rows[1] == ("gpu<b>, 2 GPUs", "3", "2.00", "2.00", "3.00")


def test_an_arm_that_rings_is_to_be_measured_again(sections: tuple[Section, ...]) -> None:
    rows = by_title(sections, "What to measure next").rows
    assert ("h100|1", rows[-1][1], "the arm again, then `omnipilot adapt`") == rows[-1]


def test_an_empty_site_has_a_report_too(tmp_path: Path) -> None:
    with closing(open_for_writing(tmp_path / "o.db")):
        pass
    with closing(open_for_reading(tmp_path / "o.db")) as connection:
        found = site_sections(connection, PERIOD, load_priors([]), [], ())
    assert [each.title for each in found] == TITLES
    assert by_title(found, "Decisions").note.startswith("0 on jobs of 0 users")
    assert by_title(found, "What to measure next").note == "nothing stands out"
    assert as_text(found).count("\n---") == len(TITLES)
    assert as_html(found, "now").count("<section>") == len(TITLES)


class Strict(HTMLParser):
    """Notes tags, and fails where one is closed that is not open."""

    VOID = frozenset({"meta", "rect", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_loads_nothing_and_escapes(sections: tuple[Section, ...]) -> None:
    page = as_html(sections, "made on a day")
    parser = Strict()
    parser.feed(page)
    assert parser.open == []
    tags = {tag for tag, _ in parser.seen}
    assert not tags & {"script", "link", "img", "iframe", "object", "b"}
    assert not any({"src", "href", "onload", "onclick"} & attrs.keys() for _, attrs in parser.seen)
    assert "url(" not in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "gpu<b>, 2 GPUs" in parser.text
    for tag, attrs in parser.seen:
        if tag == "rect":
            assert 0 <= float(attrs["width"] or "nan") <= 300
    for title in TITLES:
        assert title in parser.text


def test_the_text_draws_bars_with_their_mark() -> None:
    bars = (Bar(label="a", share=0.5, text="half"), Bar(label="long", share=1.0))
    text = as_text(
        [Section(title="T", note="n", rows=(("", "x"), ("r", "1")), bars=bars, mark=0.8)]
    )
    assert text == (
        "T\n-\nn\n   x\nr  1\n"
        f"a     [{'#' * 20}{'.' * 12}|{'.' * 7}] half\n"
        f"long  [{'#' * 32}|{'#' * 7}]"
    )


def test_bare_report_prints_and_html_writes_a_page(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "omnipilot.yaml").write_text('{"schema": 1, "daemon": {"model": null}}')
    words = ["report", "--config", str(tmp_path / "etc"), "--store", str(store)]
    assert main([*words, "--since", "2023-01-01"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(.+)\n-+$", out, re.MULTILINE) == TITLES
    page = tmp_path / "page.html"
    assert main([*words, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_without_jinja2_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError) as caught:
        as_html([], "now")
    assert str(caught.value) == "--html needs jinja2"
    assert caught.value.hint == "pip install 'omnipilot_slurm[report]'"
