"""Requests mean the same on both sides, and what is not one is refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.daemon.protocol import (
    MAX_REQUEST_BYTES,
    TEXT_FIELDS,
    WHOLE_FIELDS,
    Op,
    decode_request,
    encode_request,
)
from omnipilot_slurm.errors import ProtocolError
from omnipilot_slurm.records import Submission

BYTES = st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b""))
TEXTS = BYTES.map(lambda raw: raw.decode("utf-8", "surrogateescape"))
WHOLES = st.integers(min_value=0, max_value=2**64)
SUBMISSIONS = st.builds(
    Submission,
    script=BYTES,
    args=st.lists(TEXTS, max_size=4).map(tuple),
    environment=st.dictionaries(TEXTS, TEXTS, max_size=4),
    partitions=st.none() | st.frozensets(TEXTS, max_size=4),
    held=st.booleans(),
    **{name: st.none() | TEXTS for name in TEXT_FIELDS.values()},
    **{name: st.none() | WHOLES for name in WHOLE_FIELDS.values()},
)


def line(**message: object) -> bytes:
    return json.dumps({"v": 1, **message}).encode() + b"\n"


def decide(**message: object) -> bytes:
    return line(op="decide", **({"script": "#!/bin/sh\n"} | message))


def code_of(raw: bytes) -> str | None:
    """Return the refusal's code, None when the line was read."""
    try:
        decode_request(raw)
    except ProtocolError as error:
        return error.code
    return None


def refusal(raw: bytes) -> tuple[str, str]:
    with pytest.raises(ProtocolError) as caught:
        decode_request(raw)
    return caught.value.code, str(caught.value)


@given(SUBMISSIONS)
def test_a_submission_is_decoded_as_it_was_encoded(submission: Submission) -> None:
    assert decode_request(encode_request(submission)) == submission


@pytest.mark.parametrize("op", [Op.PING, Op.STATUS, Op.RELOAD])
def test_an_operation_is_decoded_as_it_was_encoded(op: Op) -> None:
    assert decode_request(encode_request(op)) is op


@given(st.binary(max_size=200))
def test_whatever_bytes_come_are_read_or_refused(raw: bytes) -> None:
    assert code_of(raw + b"\n") in {None, "message", "version", "operation"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(["script", "argv", "env", "partitions", "job"]), JSON)
def test_whatever_json_stands_at_a_key_is_read_or_refused(key: str, value: object) -> None:
    assert code_of(decide(**{key: value})) in {None, "message"}


@given(st.sampled_from(sorted([*TEXT_FIELDS, *WHOLE_FIELDS, "priority"])), JSON)
def test_whatever_json_stands_in_a_job_is_read_or_refused(key: str, value: object) -> None:
    assert code_of(decide(job={key: value})) in {None, "message"}


def test_bytes_that_are_not_utf8_arrive_as_they_left() -> None:
    raw = b'{"v":1,"op":"decide","script":"echo \xff\xc3\\n","argv":["\xe9"]}\n'
    submission = decode_request(raw)
    assert isinstance(submission, Submission)
    assert submission.script == b"echo \xff\xc3\n"
    assert submission.args == ("\udce9",)


def test_priority_zero_means_held_and_no_priority_does_not() -> None:
    held, free, unsaid = (
        decode_request(decide(job=job)) for job in ({"priority": 0}, {"priority": 7}, {})
    )
    assert [held.held, free.held, unsaid.held] == [True, False, False]


@pytest.mark.parametrize(
    ("job", "user"),
    [({"user_name": "ann", "user_id": 7}, "ann"), ({"user_id": 7}, 7), ({}, None)],
)
def test_the_groups_are_those_of_the_user_by_name_or_else_by_number(
    job: dict[str, object], user: str | int | None
) -> None:
    submission = decode_request(decide(job=job), groups_of=lambda who: frozenset({f"of {who}"}))
    assert submission.groups == {f"of {user}"}


def test_an_empty_lua_table_is_no_environment() -> None:
    assert decode_request(decide(env=[])).environment == {}


def test_unknown_keys_are_ignored() -> None:
    assert decode_request(decide(colour="red", job={"colour": "red"})) == Submission(
        script=b"#!/bin/sh\n"
    )


def test_the_documented_job_fields_are_those_that_are_read() -> None:
    text = Path(__file__).parents[3].joinpath("docs", "protocol.md").read_text(encoding="utf-8")
    texts, wholes = re.search(
        r"own names: strings (.*?); whole numbers (.*?)\. Slurm's", text
    ).groups()
    assert set(re.findall(r"`(\w+)`", texts)) == set(TEXT_FIELDS)
    assert set(re.findall(r"`(\w+)`", wholes)) == {*WHOLE_FIELDS, "priority"}


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        pytest.param(
            b"", "message", "request: must end in a newline, ended after 0 bytes", id="nothing"
        ),
        pytest.param(
            b'{"v":1,"op":"ping"}',
            "message",
            "request: must end in a newline, ended after 19 bytes",
            id="half a line",
        ),
        pytest.param(
            b" " * MAX_REQUEST_BYTES + b"\n",
            "too_long",
            "request: must be at most 262144 bytes, was more",
            id="a line that is too long",
        ),
        pytest.param(
            b"3\n",
            "message",
            "request: must be a JSON object, was the number 3",
            id="a number alone",
        ),
        pytest.param(
            b"[]\n", "message", "request: must be a JSON object, was an array", id="an array alone"
        ),
        pytest.param(
            b'"x"\n', "message", "request: must be a JSON object, was a string", id="a text alone"
        ),
        pytest.param(
            b"null\n",
            "message",
            "request: must be a JSON object, was missing or null",
            id="null alone",
        ),
        pytest.param(
            b"{}{}\n",
            "message",
            "request: must be one JSON object in one line: Extra data: line 1 column 3 (char 2)",
            id="two objects",
        ),
        pytest.param(
            b'{"v":NaN}\n',
            "message",
            "request: must be one JSON object in one line: NaN is not JSON",
            id="not a number",
        ),
        pytest.param(
            b"[" * 100_000 + b"\n", "message", "request: is nested too deeply", id="deep nesting"
        ),
        pytest.param(b"{}\n", "version", "v: must be 1, was None", id="no version"),
        pytest.param(
            b'{"v":2,"op":"ping"}\n', "version", "v: must be 1, was 2", id="another version"
        ),
        pytest.param(
            b'{"v":true,"op":"ping"}\n', "version", "v: must be 1, was True", id="true as version"
        ),
        pytest.param(
            line(op="shutdown"),
            "operation",
            "op: must be one of decide, ping, status, reload, was 'shutdown'",
            id="an unknown operation",
        ),
        pytest.param(
            line(op=["ping"]),
            "operation",
            "op: must be one of decide, ping, status, reload, was ['ping']",
            id="a list as operation",
        ),
        pytest.param(
            line(op="decide"),
            "message",
            "script: must be a string, was missing or null",
            id="no script",
        ),
        pytest.param(
            decide(script="a\0b"),
            "message",
            "script: must not hold a NUL character",
            id="a NUL in the script",
        ),
        pytest.param(
            decide(script="\ud800"),
            "message",
            "script: must not hold half a surrogate pair",
            id="half a surrogate pair",
        ),
        pytest.param(
            decide(argv="x"), "message", "argv: must be an array, was a string", id="argv as text"
        ),
        pytest.param(
            decide(argv=[1]),
            "message",
            "argv: must be a string, was the number 1",
            id="argv number",
        ),
        pytest.param(
            decide(env=["A=1"]), "message", "env: must be an object, was an array", id="env as list"
        ),
        pytest.param(
            decide(env={"A": 1}),
            "message",
            "env.A: must be a string, was the number 1",
            id="a number as variable",
        ),
        pytest.param(
            decide(partitions={"a": 1}),
            "message",
            "partitions: must be an array, was an object",
            id="partitions as object",
        ),
        pytest.param(
            decide(job=[]), "message", "job: must be an object, was an array", id="job as list"
        ),
        pytest.param(
            decide(job={"partition": 1}),
            "message",
            "job.partition: must be a string, was the number 1",
            id="a number as partition",
        ),
        pytest.param(
            decide(job={"partition": None}),
            "message",
            "job.partition: must be a string, was missing or null",
            id="null as partition",
        ),
        pytest.param(
            decide(job={"user_id": True}),
            "message",
            "job.user_id: must be a whole number >= 0, was true or false",
            id="true as user id",
        ),
        pytest.param(
            decide(job={"user_id": -1}),
            "message",
            "job.user_id: must be a whole number >= 0, was the number -1",
            id="a negative user id",
        ),
        pytest.param(
            decide(job={"time_limit": 1.5}),
            "message",
            "job.time_limit: must be a whole number >= 0, was the number 1.5",
            id="a fraction of a minute",
        ),
        pytest.param(
            decide(job={"time_limit": "60"}),
            "message",
            "job.time_limit: must be a whole number >= 0, was a string",
            id="a time limit as text",
        ),
        pytest.param(
            decide(job={"priority": {}}),
            "message",
            "job.priority: must be a whole number >= 0, was an object",
            id="priority as object",
        ),
    ],
)
def test_is_refused_by_name(raw: bytes, code: str, text: str) -> None:
    assert refusal(raw) == (code, text)


def test_a_number_too_long_to_read_is_refused() -> None:
    code, text = refusal(b'{"v":' + b"9" * 5000 + b"}\n")
    assert code == "message"
    assert text.startswith("request: must be one JSON object in one line: Exceeds the limit")


def test_what_a_job_holds_is_not_repeated_in_a_refusal() -> None:
    _, text = refusal(decide(argv="--api-key sk-verysecret"))
    assert "secret" not in text
