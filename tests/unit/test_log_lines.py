"""A log line is one line, whatever a user wrote, and can be taken apart again."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm import log


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=30)))
def test_every_value_is_read_back_from_its_line(fields: dict[str, str]) -> None:
    fields.pop("event", None)
    line = log.line("decision", **fields)
    assert len(line.splitlines()) == 1
    pairs = re.findall(r' ([a-z_]+)=("(?:[^"\\]|\\.)*"|\S+)', line)
    read = {key: json.loads(text) if text[0] == '"' else text for key, text in pairs}
    assert read == fields


def test_absent_values_are_left_out_and_numbers_are_short() -> None:
    assert log.line("stopped", code=None, ms=0.123456, n=3) == "stopped ms=0.123 n=3"


@pytest.mark.parametrize(
    ("journal", "pattern"),
    [
        (False, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING peer refused uid=7\n"),
        (True, r"<4>peer refused uid=7\n"),
    ],
)
def test_a_line_has_the_time_or_the_journals_mark(
    journal: bool, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    package = logging.getLogger("omnipilot_slurm")
    before = package.handlers[:], package.level, package.propagate
    try:
        log.set_up("info", journal=journal)
        logging.getLogger("omnipilot_slurm.x").warning(log.line("peer refused", uid=7))
        logging.getLogger("omnipilot_slurm.x").debug("not shown")
    finally:
        package.handlers[:], package.level, package.propagate = before
    assert re.fullmatch(pattern, stream.getvalue())
