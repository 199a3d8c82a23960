"""A real browser shows the site's report without complaint: `make check-page`, needs chromium.

Not a part of the gate, whose machines have no browser; what the page is made of is tested there.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.report.page import as_html
from omnipilot_slurm.report.sections import Bar, Section

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = (
    Section(title="Words <b>", note="a & b", rows=(("", "n"), ("first", "1"))),
    Section(
        title="Bars", bars=(Bar(label="x", share=0.7, lo=0.6, hi=0.9, text="7 of 10"),), mark=0.8
    ),
)
WIDTH = 1100


def chromium(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    page = tmp_path / "page.html"
    page.write_text(as_html(SECTIONS, "made on a day"), encoding="utf-8")
    return subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", *words, page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )  # fmt: skip


def test_the_page_is_shown_whole_and_nothing_is_refused(tmp_path: Path) -> None:
    done = chromium(tmp_path, "--dump-dom")
    assert done.stdout.count("<section>") == len(SECTIONS)
    assert "Words &lt;b&gt;" in done.stdout
    # what the page's own policy refuses, and what cannot be read, is told on the console
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize("height", [700, 2000])
def test_the_page_can_be_drawn(tmp_path: Path, height: int) -> None:
    picture = tmp_path / "page.png"
    chromium(tmp_path, f"--window-size={WIDTH},{height}", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
