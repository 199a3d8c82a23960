"""Prometheus' text format is read as it is written, and what is not of it is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.collect.exposition import read_exposition
from omnipilot_slurm.errors import DataError

NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,20}", fullmatch=True)
LABELS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text())
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@given(NAMES, LABELS, st.floats(allow_nan=False), st.sampled_from(["", " 1732900000000"]))
def test_a_sample_is_read_back(name: str, labels: dict[str, str], value: float, at: str) -> None:
    # the format has no other line ends than \n
    labels = {key: "".join(text.splitlines()) for key, text in labels.items()}
    written = ",".join(f'{key}="{text.translate(ESCAPES)}"' for key, text in labels.items())
    scrape = read_exposition(f"# HELP {name} a help\n{name}{{{written}}} {value!r}{at}\n")
    (sample,) = scrape.samples[name]
    assert (dict(sample.labels), sample.value) == (labels, value)


def test_engines_are_added_up_and_the_first_name_there_counts() -> None:
    scrape = read_exposition('new{engine="0"} 2\nnew{engine="1"} 3.5\nold 9\ngone NaN\n')
    assert scrape.total("newest", "new", "old") == 5.5
    assert scrape.highest("new") == 3.5
    assert scrape.total("gone") is None
    assert scrape.highest("none") is None
    assert scrape.label("new", "engine") == "0"
    assert scrape.label("none", "engine") is None


def test_buckets_are_added_up_by_their_bound() -> None:
    scrape = read_exposition(
        'h_bucket{engine="0",le="0.5"} 1\nh_bucket{engine="1",le="0.5"} 2\nh_bucket{le="+Inf"} 4\n'
    )
    assert scrape.buckets("h") == {0.5: 3.0, math.inf: 4.0}
    assert scrape.buckets("none") == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<html>", "line 1: must be `name{labels} value`, was '<html>'"),
        ("a 1\nb", "line 2: must be `name{labels} value`, was 'b'"),
        ("a{b=c} 1", "line 1: labels must be name=\"value\", were 'b=c'"),
        ("a one", "line 1: value must be a number, was 'one'"),
    ],
)
def test_what_is_not_the_format_is_told(text: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        read_exposition(text)
    assert str(caught.value) == fault
