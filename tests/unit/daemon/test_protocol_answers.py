"""Answers mean the same on both sides, and a decider cannot send what no shim may apply."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.daemon.protocol import (
    MAX_ANSWER_BYTES,
    decode_answer,
    encode_decision,
    encode_error,
    encode_ok,
    encode_status,
)
from omnipilot_slurm.errors import ProtocolError
from omnipilot_slurm.records import DECISION_ID, Edit, Outcome, Verdict

BYTES = st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b""))
OUTCOMES = st.builds(
    Outcome,
    verdict=st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.REWRITE]),
    messages=st.lists(st.text(max_size=400), max_size=7).map(tuple),
    tag=st.booleans(),
    code=st.none() | st.just("oom"),
)


@given(OUTCOMES)
def test_a_decision_is_read_as_it_was_made(outcome: Outcome) -> None:
    raw = encode_decision("k3f9", outcome)
    answer = decode_answer(raw)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert answer["verdict"] == outcome.verdict
    assert answer.get("tag") == (f"omnipilot=k3f9:{outcome.verdict}" if outcome.tag else None)
    assert answer.get("code") == outcome.code
    assert len(answer["messages"]) == min(5, len(outcome.messages))
    for text in answer["messages"]:
        assert len(text.encode()) <= 300
        assert "\n" not in text


@given(
    before=BYTES,
    pieces=st.lists(st.tuples(BYTES, BYTES, BYTES), min_size=1, max_size=4),
)
def test_edits_keep_their_bytes_and_offsets(
    before: bytes, pieces: list[tuple[bytes, bytes, bytes]]
) -> None:
    edits, at = [], len(before)
    for old, new, gap in pieces:
        edits.append(Edit(start=at, end=at + len(old), old=old, new=new))
        at += len(old) + len(gap)
    outcome = Outcome(verdict=Verdict.REWRITE, edits=tuple(edits))
    answer = decode_answer(encode_decision("k3f9", outcome))
    read = [
        Edit(
            start=edit["start"],
            end=edit["end"],
            old=edit["old"].encode("utf-8", "surrogateescape"),
            new=edit["new"].encode("utf-8", "surrogateescape"),
        )
        for edit in answer["edits"]
    ]
    assert tuple(read) == outcome.edits


def test_a_rewrite_is_encoded_as_documented() -> None:
    outcome = Outcome(
        verdict=Verdict.REWRITE,
        messages=(f"see omnipilot explain {DECISION_ID}",),
        fields={"partition": "h100", "gres": "gpu:h100:2", "tres_per_job": ""},
        env={"SLURM_GPUS_PER_NODE": "h100:2", "SLURM_TRES_PER_TASK": ""},
        edits=(Edit(start=3, end=4, old=b"1", new=b"2"),),
        tag=True,
        code="oom",
    )
    assert json.loads(encode_decision("k3f9", outcome)) == {
        "v": 1,
        "id": "k3f9",
        "verdict": "rewrite",
        "messages": ["see omnipilot explain k3f9"],
        "fields": {"partition": "h100", "gres": "gpu:h100:2", "tres_per_job": ""},
        "env": {"SLURM_GPUS_PER_NODE": "h100:2", "SLURM_TRES_PER_TASK": ""},
        "edits": [{"start": 3, "end": 4, "old": "1", "new": "2"}],
        "tag": "omnipilot=k3f9:rewrite",
        "code": "oom",
    }


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        pytest.param(
            Outcome(verdict=Verdict.ADVISE, fields={"gres": "gpu:2"}),
            "answer: only a rewrite may change the job, not advise",
            id="advice that changes a field",
        ),
        pytest.param(
            Outcome(verdict=Verdict.REWRITE, fields={"account": "x"}),
            "answer: field 'account' must not be set to 'x'",
            id="a field that is not to be written",
        ),
        pytest.param(
            Outcome(verdict=Verdict.REWRITE, fields={"tres_per_job": "gres:gpu:1"}),
            "answer: field 'tres_per_job' must not be set to 'gres:gpu:1'",
            id="a tres field that is not emptied",
        ),
        pytest.param(
            Outcome(verdict=Verdict.REWRITE, env={"PATH": "/tmp"}),
            "answer: variable 'PATH' must not be overwritten",
            id="a variable that is not Slurm's",
        ),
        pytest.param(
            Outcome(
                verdict=Verdict.REWRITE,
                edits=(
                    Edit(start=5, end=6, old=b"1", new=b"2"),
                    Edit(start=5, end=6, old=b"1", new=b"2"),
                ),
            ),
            "answer: edits must ascend and not overlap: Edit(start=5, end=6, old=b'1', new=b'2')",
            id="edits that overlap",
        ),
        pytest.param(
            Outcome(verdict=Verdict.REWRITE, edits=(Edit(start=5, end=9, old=b"1", new=b"2"),)),
            "answer: edits must ascend and not overlap: Edit(start=5, end=9, old=b'1', new=b'2')",
            id="an edit whose length is another",
        ),
    ],
)
def test_a_decider_cannot_send(outcome: Outcome, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        encode_decision("k3f9", outcome)
    assert str(caught.value) == text


def test_an_answer_that_is_too_long_is_a_fault_of_the_decider() -> None:
    long = b"x" * MAX_ANSWER_BYTES
    outcome = Outcome(
        verdict=Verdict.REWRITE, edits=(Edit(start=0, end=len(long), old=long, new=b""),)
    )
    with pytest.raises(ValueError, match="answer: must be at most 65536 bytes, was 65663"):
        encode_decision("k3f9", outcome)


def test_the_other_answers_are_encoded_as_documented() -> None:
    assert encode_ok() == b'{"v":1,"ok":true}\n'
    assert encode_status({"a": 1}) == b'{"v":1,"status":{"a":1}}\n'
    assert encode_error("busy", "x") == b'{"v":1,"error":{"code":"busy","text":"x"}}\n'


def test_an_error_text_of_any_length_fits_an_answer() -> None:
    assert len(encode_error("reload", "\u00e9" * 100_000)) < MAX_ANSWER_BYTES


def test_a_refusal_is_raised_with_its_code() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_answer(encode_error("busy", "a load is under way"))
    assert (caught.value.code, str(caught.value)) == ("busy", "a load is under way")
