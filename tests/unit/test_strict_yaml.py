"""The strict YAML loader: what it takes, every fault it names, and that nothing else comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.resources import etc_layers, read_layers, shipped_path
from omnipilot_slurm.strict_yaml import (
    Either,
    Flag,
    Integer,
    Layer,
    ListOf,
    MapOf,
    Nullable,
    Number,
    Section,
    Text,
    load,
)
from omnipilot_slurm.yaml_tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, read_tree


@dataclass(frozen=True)
class Shim:
    deadline_ms: float
    patterns: tuple[str, ...] = ()


SCHEMA = Section(
    keys={
        "shim": Section(
            keys={
                "deadline_ms": Number(above=0, hi=1000),
                "patterns": ListOf(item=Text(), min_items=1),
            },
            optional=frozenset({"patterns"}),
            into=Shim,
        ),
        "mode": Text(choices=("observe", "advise", "enforce")),
        "value_usd_per_output_token": Number(lo=0),
        "retention_days": Integer(lo=1, hi=3650),
        "quiet": Flag(),
        "launch_success": MapOf(value=Number(lo=0, hi=1), key=Integer(lo=1)),
        "partitions": MapOf(value=Text(), key=Text(means="a partition")),
        "max_model_len": Either((Text(choices=("auto",)), Integer(lo=1))),
        "comment": Nullable(of=Text()),
    },
    optional=frozenset(
        {
            "value_usd_per_output_token",
            "retention_days",
            "quiet",
            "launch_success",
            "partitions",
            "max_model_len",
            "comment",
        }
    ),
)
BASE = "schema: 1\nshim: {deadline_ms: 50}\nmode: observe\n"


def value(*texts: str):
    layers = [Layer(file=f"{n}.yaml", data=text.encode()) for n, text in enumerate(texts)]
    return load(layers, SCHEMA, version=1).value


def faults(*texts: str | bytes) -> list[str]:
    layers = [
        Layer(file=f"{n}.yaml", data=text if isinstance(text, bytes) else text.encode())
        for n, text in enumerate(texts)
    ]
    with pytest.raises(ConfigError) as caught:
        load(layers, SCHEMA, version=1)
    return [str(fault) for fault in caught.value.faults]


def test_a_section_becomes_its_record():
    assert value(BASE)["shim"] == Shim(deadline_ms=50.0)


def test_an_optional_key_that_is_absent_stays_absent():
    assert set(value(BASE)) == {"shim", "mode"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2e-6", 2e-6), ("2.0e-6", 2e-6), ("1e3", 1000.0), ("3", 3.0), (".5", 0.5), ("0", 0.0)],
)
def test_a_number_is_read_in_both_spellings_of_floats(text, expected):
    assert value(f"{BASE}value_usd_per_output_token: {text}\n")[
        "value_usd_per_output_token"
    ] == pytest.approx(expected)


def test_later_layers_win_key_by_key_and_lists_are_replaced():
    got = value(
        BASE.replace("50", "50, patterns: [vllm, serve]") + "launch_success: {1: 0.9, 2: 0.8}\n",
        "schema: 1\nshim: {patterns: [x]}\nlaunch_success: {2: 0.5, 4: 0.4}\n",
    )
    assert got["shim"] == Shim(deadline_ms=50.0, patterns=("x",))
    assert got["launch_success"] == {1: 0.9, 2: 0.5, 4: 0.4}


def test_a_fault_names_the_layer_it_comes_from():
    assert faults(BASE, "schema: 1\n\nmode: enfrce\n") == [
        (
            "1.yaml:3:7: mode: must be one of observe, advise, enforce, was 'enfrce'; "
            "did you mean 'enforce'"
        )
    ]


def test_all_faults_come_at_once():
    assert faults("schema: 1\nshim: {deadline_ms: fast}\nmode: off\nretention_days: 0\n") == [
        "0.yaml:2:21: shim.deadline_ms: must be a number above 0 of at most 1000, was 'fast'",
        (
            "0.yaml:3:7: mode: must be one of observe, advise, enforce, was 'off'; "
            'YAML 1.1 reads it as false; write "off" in quotes'
        ),
        "0.yaml:4:17: retention_days: must be a whole number from 1 to 3650, was '0'",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "retention: 5",
            "4:1: unknown key 'retention': did you mean 'retention_days'; a key carries its unit",
        ),
        (
            "retention_h: 5",
            "4:1: unknown key 'retention_h': did you mean 'retention_days'; a key carries its unit",
        ),
        ("qiet: true", "4:1: unknown key 'qiet': did you mean 'quiet'"),
        (
            "zzz: 1",
            (
                "4:1: unknown key 'zzz'; it must be one of shim, mode, value_usd_per_output_token, "
                "retention_days, quiet, launch_success, partitions, max_model_len, comment"
            ),
        ),
        ("mode: advise", "4:1: 'mode' is already set in line 3; keep one of them"),
        ("quiet: yes", "4:8: quiet: must be true or false, was 'yes'; write true without quotes"),
        (
            'quiet: "false"',
            "4:8: quiet: must be true or false, was 'false'; write false without quotes",
        ),
        ("quiet: 1", "4:8: quiet: must be true or false, was '1'"),
        (
            "retention_days: 010",
            (
                "4:17: retention_days: must be a whole number from 1 to 3650, was '010'; "
                "YAML 1.1 reads it as an octal number; write the digits in decimal"
            ),
        ),
        (
            "retention_days: 4:30",
            (
                "4:17: retention_days: must be a whole number from 1 to 3650, was '4:30'; "
                "YAML 1.1 reads it as a number in base 60; write the digits in decimal"
            ),
        ),
        (
            "retention_days: 1e3",
            "4:17: retention_days: must be a whole number from 1 to 3650, was '1e3'",
        ),
        (
            'retention_days: "7"',
            (
                "4:17: retention_days: must be a whole number from 1 to 3650, was '7'; "
                "write it without quotes"
            ),
        ),
        (
            "retention_days: 7 days",
            (
                "4:17: retention_days: must be a whole number from 1 to 3650, was '7 days'; "
                "the unit is in the key; write the number alone"
            ),
        ),
        (
            "retention_days:",
            "4:16: retention_days: must be a whole number from 1 to 3650, was nothing",
        ),
        (
            "retention_days: [1, 2]",
            "4:17: retention_days: must be a whole number from 1 to 3650, was a list of 2",
        ),
        (
            "retention_days: {a: 1}",
            "4:17: retention_days: must be a whole number from 1 to 3650, was a mapping of 1",
        ),
        (
            "value_usd_per_output_token: .nan",
            (
                "4:29: value_usd_per_output_token: must be a number of at least 0, was '.nan'; "
                "YAML 1.1 reads it as a number that is not finite; write the number in decimal"
            ),
        ),
        (
            "value_usd_per_output_token: 1e999",
            "4:29: value_usd_per_output_token: must be a number of at least 0, was '1e999'",
        ),
        (
            "partitions: {a: 0.10}",
            (
                "4:17: partitions.a: must be text, was '0.10'; "
                'YAML 1.1 reads it as a number; write "0.10" in quotes'
            ),
        ),
        (
            "partitions: {no: x}",
            (
                "4:14: a key of partitions: must be a partition, was 'no'; "
                'YAML 1.1 reads it as false; write "no" in quotes'
            ),
        ),
        (
            "partitions: {a: 2024-01-02}",
            (
                "4:17: partitions.a: must be text, was '2024-01-02'; "
                'YAML 1.1 reads it as a date; write "2024-01-02" in quotes'
            ),
        ),
        ("partitions: x", "4:13: partitions: must be a mapping, each value text, was 'x'"),
        (
            "launch_success: {01: 0.5}",
            (
                "4:18: a key of launch_success: must be a whole number of at least 1, was '01'; "
                "YAML 1.1 reads it as an octal number; write the digits in decimal"
            ),
        ),
        (
            "launch_success: {1: 1.5}",
            "4:21: launch_success.1: must be a number from 0 to 1, was '1.5'",
        ),
        (
            "max_model_len: many",
            "4:16: max_model_len: must be one of auto or a whole number of at least 1, was 'many'",
        ),
        ("comment: &a x", "4:10: anchors are not allowed; remove &a"),
        ("comment: !!str x", "4:10: tags are not allowed; remove 'tag:yaml.org,2002:str'"),
        ("<<: {quiet: true}", "4:1: merge keys are not allowed; write the keys out"),
        ("[a, b]: x", "4:1: a key must be one word, was a list or a mapping"),
        ("\tquiet: true", "4:1: a tab cannot indent YAML; use spaces"),
        ("comment: %x", "4:10: a plain value cannot start with '%'; put it in quotes"),
        ("--- \na: b", "4:1: only one document is allowed; remove the second ---"),
        ("comment: 'x", "5:1: found unexpected end of stream"),
    ],
)
def test_each_kind_of_fault_is_explained_where_it_stands(line, message):
    assert f"0.yaml:{message}" in faults(f"{BASE}{line}\n")


def test_a_list_that_is_one_word_is_told_to_become_one():
    assert faults("schema: 1\nshim: {deadline_ms: 5, patterns: vllm}\nmode: observe\n") == [
        "0.yaml:2:34: shim.patterns: must be a list, each text, was 'vllm'; put it in [ ]"
    ]
    assert faults("schema: 1\nshim: {deadline_ms: 5, patterns: []}\nmode: observe\n") == [
        "0.yaml:2:34: shim.patterns: must have 1 to 10000 items, was 0"
    ]


def test_what_is_missing_is_said_with_what_it_must_be():
    assert faults("schema: 1\nshim: {}\n") == [
        "0.yaml:1:1: mode: is missing; it must be one of observe, advise, enforce",
        "0.yaml:2:7: shim.deadline_ms: is missing; it must be a number above 0 of at most 1000",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: observe\n", "1:1: has no schema version; write `schema: 1` at the top"),
        (
            "schema: 2\n",
            (
                "1:9: schema: must be 1, was 2, which is newer than this release; "
                "upgrade omnipilot_slurm"
            ),
        ),
        ("schema: one\n", "1:9: schema: must be a whole number of at least 1, was 'one'"),
        ("", "1:1: is empty; write at least `schema: 1`"),
        ("# only a comment\n", "1:1: is empty; write at least `schema: 1`"),
        ("- a\n", "1:1: must be a mapping of keys to values at the top"),
    ],
)
def test_every_layer_states_its_schema_version(text, message):
    assert f"1.yaml:{message}" in faults(BASE, text)


def test_an_older_schema_says_where_the_change_is_described():
    with pytest.raises(ConfigError) as caught:
        load([Layer(file="x.yaml", data=b"schema: 1\n")], Section(keys={}), version=3)
    assert str(caught.value) == (
        "x.yaml:1:9: schema: must be 3, was 1, which is older than this release; "
        "CHANGELOG.md says what schema 3 changed"
    )


def test_bytes_that_are_not_utf8_are_shown_where_they_stand():
    assert faults(b"schema: 1\nmode: \xff\n") == [
        "0.yaml:2:7: must be UTF-8, was the byte 0xff; save the file as UTF-8"
    ]


def test_control_characters_are_shown_where_they_stand():
    assert faults("schema: 1\nmode: a\x00b\n") == [
        "0.yaml:2:8: control characters are not allowed, was '\\x00'; delete it"
    ]


def test_a_byte_order_mark_does_no_harm():
    assert value("\ufeff" + BASE)["mode"] == "observe"


def test_size_depth_and_count_are_bounded():
    assert faults(b"#" * (MAX_BYTES + 1)) == [
        f"0.yaml:1:1: must be at most {MAX_BYTES} bytes, was {MAX_BYTES + 1}"
    ]
    too_deep = f"0.yaml:{MAX_DEPTH + 1}:2: must be nested at most {MAX_DEPTH} deep"
    assert too_deep in faults("a:\n" + " [\n" * 40)
    assert faults("a: " + "[" * 100_000) == ["0.yaml:1:1003: exceeded maximum nesting depth"]
    assert f"must hold at most {MAX_NODES} values" in faults("[" + "1," * (MAX_NODES + 5))[0]


def test_an_alias_bomb_is_refused_without_being_expanded():
    bomb = "a: &a [x, x]\n" + "".join(
        f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'}, *a]\n" for n in range(60)
    )
    assert "0.yaml:1:4: anchors are not allowed; remove &a" in faults(bomb)
    assert "0.yaml:2:10: aliases are not allowed; write the value of *a out" in faults(bomb)


def test_a_value_knows_its_place_for_its_owners_own_faults():
    loaded = load([Layer(file="x.yaml", data=BASE.encode())], SCHEMA, version=1)
    assert str(loaded.fault(("shim", "deadline_ms"), "too short")) == "x.yaml:2:21: too short"
    assert str(loaded.fault(("shim", "nothing", 3), "odd")) == "x.yaml:2:7: odd"


def test_entries_show_every_value_in_effect_and_its_layer():
    layers = [
        Layer(file="a.yaml", data=(BASE + "launch_success: {1: 0.9}\n").encode()),
        Layer(file="b.yaml", data=b"schema: 1\nshim: {patterns: [x, z]}\nmode: enforce\n"),
    ]
    assert list(load(layers, SCHEMA, version=1).entries()) == [
        ("shim.deadline_ms", "50", "a.yaml:2"),
        ("shim.patterns[0]", "x", "b.yaml:2"),
        ("shim.patterns[1]", "z", "b.yaml:2"),
        ("mode", "enforce", "b.yaml:3"),
        ("launch_success.1", "0.9", "a.yaml:4"),
    ]


def test_entries_show_what_is_empty():
    spec = Section(keys={"a": ListOf(item=Text()), "b": MapOf(value=Text())})
    loaded = load([Layer(file="x.yaml", data=b"schema: 1\na: []\nb: {}\n")], spec, version=1)
    assert list(loaded.entries()) == [("a", "[]", "x.yaml:2"), ("b", "{}", "x.yaml:3")]


def outcome(data: bytes) -> str:
    try:
        loaded = load([Layer(file="x.yaml", data=data)], SCHEMA, version=1)
    except ConfigError as error:
        placed = all(fault.line >= 1 and fault.column >= 1 for fault in error.faults)
        return "faults" if error.faults and placed else "a fault without a place"
    return "value" if isinstance(loaded.value["shim"], Shim) else "half a value"


PIECES = st.sampled_from(
    [
        "schema: 1\n", "shim:", "mode:", " ", "\n", "  ", "\t", "{", "}", "[", "]", ",", ": ", "- ",
        "&a", "*a", "<<: ", "!!x ", "'", '"', "\\U00110000", "#", "|", ">", "%YAML 1.1\n", "---\n",
        "...", "? ", "no", "010", "4:30", "1e3", "9" * 30, "é", "\u2028", "deadline_ms", "~", "0x1",
    ]
)  # fmt: skip


@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode()),
    )
)
def test_whatever_comes_in_a_value_or_a_config_error_comes_out(data):
    for parser in (yaml.CSafeLoader, yaml.SafeLoader):
        tree, found = read_tree(data, file="x.yaml", parser=parser)
        assert tree is None or isinstance(found, list)
    assert outcome(data) in {"value", "faults"}


@given(st.floats(min_value=0, allow_infinity=False, allow_nan=False))
def test_every_finite_float_is_read_back_as_written(number):
    got = value(f"{BASE}value_usd_per_output_token: {number!r}\n")["value_usd_per_output_token"]
    assert got == number
    assert math.copysign(1, got) == math.copysign(1, number)


def test_a_site_file_lies_over_the_shipped_one(tmp_path):
    (tmp_path / "gpus.yaml").write_text("schema: 1\n")
    shipped, site = etc_layers("gpus.yaml", site=tmp_path)
    assert shipped.file == str(shipped_path("etc", "gpus.yaml"))
    assert site == Layer(file=str(tmp_path / "gpus.yaml"), data=b"schema: 1\n")
    assert etc_layers("gpus.yaml", site=tmp_path / "absent") == [shipped]


def test_a_file_that_cannot_be_read_is_a_fault_of_its_own(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_layers([tmp_path])
    assert str(caught.value) == f"{tmp_path}:1:1: cannot be read: Is a directory"
