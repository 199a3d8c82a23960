"""Scripts are told apart in what sacct -B prints, whatever stands in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.ingest.batch_scripts import split_scripts

RULE = b"-" * 80 + b"\n"


def split(text: bytes, *asked: str) -> dict[str, bytes]:
    return dict(split_scripts(text.splitlines(keepends=True), frozenset(asked)))


def test_scripts_of_22_05_and_24_11_are_told_apart() -> None:
    old = (
        b"Batch Script for 10\n" + RULE + b"#!/bin/bash\nsrun true\n\n"
        b"Batch Script for 4_2\n" + RULE + b"#!/bin/bash\n"
    )
    assert split(old, "10", "4_2") == {"10": b"#!/bin/bash\nsrun true\n\n", "4_2": b"#!/bin/bash\n"}
    new = old.replace(b"true\n\n", b"true\n")
    assert split(new, "10", "4_2", "11+0") == {
        "10": b"#!/bin/bash\nsrun true\n",
        "4_2": b"#!/bin/bash\n",
    }


def test_a_script_that_prints_headings_is_one_script() -> None:
    script = b"#!/bin/bash\nBatch Script for 11\n" + RULE + b"Batch Script for 10\n" + RULE
    text = b"Batch Script for 10\n" + RULE + script
    assert split(text, "10") == {"10": script}


def test_a_heading_at_the_end_belongs_to_its_script() -> None:
    text = b"Batch Script for 10\n" + RULE + b"x\nBatch Script for 11\n"
    assert split(text, "10", "11") == {"10": b"x\nBatch Script for 11\n"}


def test_jobs_without_a_script_have_none() -> None:
    text = b"Batch Script for 10\n" + RULE + b"NONE\n\nBatch Script for 11\n" + RULE
    assert split(text, "10", "11") == {}
    assert split(b"", "10") == {}


@given(st.lists(st.binary(min_size=1).filter(bytes.strip), min_size=1, max_size=4))
def test_any_scripts_come_back_as_they_were(scripts: list[bytes]) -> None:
    scripts = [b"#!" + script.replace(b"Batch", b"batch") + b"\n" for script in scripts]
    text = b"".join(
        b"Batch Script for %d\n" % i + RULE + script for i, script in enumerate(scripts)
    )
    lines = [line + b"\n" for line in text.split(b"\n")[:-1]]
    asked = frozenset(map(str, range(len(scripts))))
    assert list(dict(split_scripts(lines, asked)).values()) == scripts
