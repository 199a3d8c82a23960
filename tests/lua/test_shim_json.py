"""The shim's own JSON against Python's."""

from __future__ import annotations

import json
import math

import pytest
from fake_slurmctld import LUA_VERSIONS, FakeSlurmctld
from hypothesis import given, settings
from hypothesis import strategies as st

MODULES = {version: FakeSlurmctld(version) for version in LUA_VERSIONS}
versions = pytest.mark.parametrize("version", LUA_VERSIONS)

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


_KIND = """
function(decoded)
  local metatable = getmetatable(decoded)
  return metatable and (metatable.__tostring and "null" or "array") or "object"
end
"""


def decode(version: str, text: bytes) -> object:
    """Return the decoded text as Python values, or raise ValueError with the reason.

    Numbers are floats, as most versions of Lua have no others.
    """
    decoded = MODULES[version].module.decoded(text.decode("latin-1"))
    value, why = decoded if isinstance(decoded, tuple) else (decoded, None)
    if why is not None:
        raise ValueError(why)
    return to_python(version, value)


def to_python(version: str, value: object) -> object:
    lua = MODULES[version].lua
    if isinstance(value, str):
        return value.encode("latin-1")
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not hasattr(value, "items"):
        return value
    kind = lua.eval(_KIND)(value)
    if kind == "null":
        return None
    if kind == "array":
        return [to_python(version, value[i]) for i in range(1, len(value) + 1)]
    return {key.encode("latin-1"): to_python(version, element) for key, element in value.items()}


def as_bytes(value: object) -> object:
    """Return a Python value as Lua holds it: texts as bytes, numbers as floats."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, list):
        return [as_bytes(element) for element in value]
    if isinstance(value, dict):
        return {key.encode("utf-8"): as_bytes(element) for key, element in value.items()}
    return value


@versions
@settings(deadline=None)
@given(raw=st.binary())
def test_any_bytes_quoted_are_json_that_python_reads_back(version, raw):
    quoted = MODULES[version].module.quoted(raw.decode("latin-1")).encode("latin-1")
    text = json.loads(quoted.decode("utf-8", "surrogateescape"))
    assert text.encode("utf-8", "surrogateescape") == raw


@versions
@settings(deadline=None)
@given(raw=st.binary())
def test_any_bytes_quoted_are_read_back_here(version, raw):
    quoted = MODULES[version].module.quoted(raw.decode("latin-1")).encode("latin-1")
    assert decode(version, quoted) == raw


@versions
@settings(deadline=None)
@given(value=values, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_what_python_writes_is_read(version, value, ensure_ascii, indent):
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    assert decode(version, text.encode("utf-8")) == as_bytes(value)


@versions
@settings(deadline=None)
@given(raw=st.binary(min_size=1, max_size=80))
def test_bytes_that_are_not_utf8_come_back_from_pythons_ascii_escapes(version, raw):
    text = json.dumps(raw.decode("utf-8", "surrogateescape"))
    assert decode(version, text.encode()) == raw


@versions
@settings(deadline=None)
@given(text=st.text(alphabet='{}[]",:\\untrefalsu0123456789.eE+- \n\t', max_size=30))
def test_texts_are_json_here_exactly_where_they_are_in_python(version, text):
    try:
        expected = as_bytes(json.loads(text))
    except ValueError:
        with pytest.raises(ValueError, match="JSON"):
            decode(version, text.encode())
    except UnicodeEncodeError:
        # a lone surrogate, which no bytes stand for
        with pytest.raises(ValueError, match="JSON that this reader does not take"):
            decode(version, text.encode())
    else:
        assert decode(version, text.encode()) == expected


@versions
@pytest.mark.parametrize(
    "text",
    [
        '"\\ud83d\\ude00"', '"\\u00e9\\uFFFD"', '"\\/\\b\\f"', "[]", "{}", " [ 1 , 2 ] ", "-0",
        "0.5", "1E5", '{"a":1,"a":2}', '{"":null}',
    ],
)  # fmt: skip
def test_the_corners_of_json_are_read_as_python_reads_them(version, text):
    assert decode(version, text.encode()) == as_bytes(json.loads(text))


@versions
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "01", "-", "1.", ".5", "+1", "1e", "tru", "nul", "True", "[1,]", "[,1]", "{,}",
        '{"a"}', "{a:1}", "{1:1}", '"', '"\\', '"\\x"', '"\\u12"', '"\\u12g4"', '"\t"', "[1 2]",
        "[1]]", "[1] x", "'a'", "[", "{", '{"a":', '{"a":1', "/* */1",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(version, text):
    with pytest.raises(ValueError, match="not JSON"):
        decode(version, text.encode())


@versions
def test_depth_is_bounded_and_a_bomb_is_no_error_of_lua(version):
    assert decode(version, b"[" * 32 + b"]" * 32)
    for text in (b"[" * 33 + b"]" * 33, b"[" * 1_000_000, b'{"a":' * 50_000, b'[{"":' * 10_000):
        with pytest.raises(ValueError, match="JSON that this reader does not take"):
            decode(version, text)


@versions
def test_pythons_nan_and_infinity_are_read(version):
    nan, *infinities = decode(version, b"[NaN, Infinity, -Infinity]")
    assert math.isnan(nan)
    assert infinities == [math.inf, -math.inf]
