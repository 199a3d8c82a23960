"""Our tag in AdminComment, beside whatever others keep there."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from fake_slurmctld import LUA_VERSIONS, FakeSlurmctld
from hypothesis import assume, given, settings
from hypothesis import strategies as st

MODULES = {version: FakeSlurmctld(version).module for version in LUA_VERSIONS}
versions = pytest.mark.parametrize("version", LUA_VERSIONS)
TAG = "omnipilot=k3f9:rewrite"

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
spaces = st.text(alphabet=" \t\r\n", max_size=2)


def tagged(version: str, comment: str) -> str:
    held = comment.encode("utf-8", "surrogateescape").decode("latin-1")
    result = MODULES[version].with_tag(held, "k3f9", "rewrite")
    return result.encode("latin-1").decode("utf-8", "surrogateescape")


def same(left: object, right: object) -> bool:
    """Compare JSON values, NaN being equal to itself."""
    return json.dumps(left) == json.dumps(right)


@versions
@settings(deadline=None)
@given(value=st.dictionaries(st.text(), values, max_size=4), head=spaces, tail=spaces)
def test_a_json_object_stays_one_and_gains_one_key(version, value, head, tail):
    assume("omnipilot" not in value)
    comment = head + json.dumps(value) + tail
    result = tagged(version, comment)
    assert same(json.loads(result), value | {"omnipilot": "k3f9:rewrite"})
    assert tagged(version, result) == result


@versions
@settings(deadline=None)
@given(value=st.lists(values, max_size=4), indent=st.sampled_from([None, 2]), tail=spaces)
def test_a_json_array_stays_one_and_gains_one_element(version, value, indent, tail):
    result = tagged(version, json.dumps(value, indent=indent) + tail)
    assert same(json.loads(result), [*value, TAG])
    assert tagged(version, result) == result


@versions
@settings(deadline=None)
@given(comment=st.text(min_size=1))
def test_any_other_text_stays_in_front_of_the_tag(version, comment):
    assume("omnipilot=" not in comment)
    with suppress(ValueError):
        assume(not isinstance(json.loads(comment), dict | list))
    result = tagged(version, comment)
    assert result == f"{comment} {TAG}"
    assert tagged(version, result) == result


@versions
def test_an_empty_comment_becomes_the_tag(version):
    assert tagged(version, "") == TAG
    assert tagged(version, TAG) == TAG


@versions
@pytest.mark.parametrize(
    ("comment", "result"),
    [
        ("{}", '{"omnipilot":"k3f9:rewrite"}'),
        ("[ ]", f'[ "{TAG}"]'),
        ('{"a": {"b": []}}\n', '{"a": {"b": []},"omnipilot":"k3f9:rewrite"}\n'),
        ("[note] see ticket]", f"[note] see ticket] {TAG}"),
        ("{not json}", "{not json} " + TAG),
        ("JS1:H4sIAAAA==", f"JS1:H4sIAAAA== {TAG}"),
        ("omnipilot=aaaa:pass", f"omnipilot=aaaa:pass {TAG}"),
        ('{"omnipilot":"aaaa:pass"}', '{"omnipilot":"aaaa:pass","omnipilot_k3f9":"k3f9:rewrite"}'),
        ('{"omnipilot":null}', '{"omnipilot":null,"omnipilot_k3f9":"k3f9:rewrite"}'),
    ],
)
def test_comments_of_other_tools_keep_their_form(version, comment, result):
    assert tagged(version, comment) == result
    assert tagged(version, result) == result


@versions
@pytest.mark.parametrize("comment", ["[" * 40 + "]" * 40, '{"a":"\\ud83d"}'])
def test_json_beyond_our_reader_is_left_as_it_is(version, comment):
    json.loads(comment)
    assert tagged(version, comment) == comment


@versions
def test_a_comment_that_would_grow_beyond_16_kib_is_left_as_it_is(version):
    full = "x" * (16384 - len(TAG) - 1)
    assert tagged(version, full) == f"{full} {TAG}"
    assert tagged(version, full + "x") == full + "x"
    huge = json.dumps({"a": "x" * 16380})
    assert tagged(version, huge) == huge


@versions
def test_the_tag_of_an_answer_lands_beside_what_the_job_had(version):
    slurmctld = FakeSlurmctld(version)
    slurmctld.daemon.answer = {
        "v": 1, "id": "k3f9", "verdict": "abstain", "messages": [], "tag": "omnipilot=k3f9:abstain",
    }  # fmt: skip
    outcome = slurmctld.submit("#!/bin/sh\nvllm serve m\n", admin_comment='{"jobstats": 1}')
    comment = outcome.job.fields["admin_comment"]
    assert json.loads(comment) == {"jobstats": 1, "omnipilot": "k3f9:abstain"}
