from __future__ import annotations

import re

import pytest

from omnipilot_slurm.vllm import options
from omnipilot_slurm.vllm.grammar import (
    EVERY,
    FORMS,
    before,
    candidates,
    grammar,
    is_beyond,
    mask,
    since,
    span,
)
from omnipilot_slurm.vllm.options import VERSIONS
from omnipilot_slurm.vllm.versions import parse_version


def bit(version: str) -> int:
    return 1 << VERSIONS.index(version)


def test_versions_are_in_order() -> None:
    assert sorted(VERSIONS, key=parse_version) == list(VERSIONS)


def test_every_row_has_the_form_that_the_head_of_the_module_gives() -> None:
    row = re.compile(r"[a-z_\d]+ [fbetihHxsjodkmpq]n?[+?]?[SNAL]? -\S+ \d+(-\d*)?(,\d+(-\d*)?)*")
    for line in options.OPTIONS.splitlines():
        assert row.fullmatch(line), line


def test_no_version_has_an_option_string_twice() -> None:
    for form in FORMS:
        for string, variants in grammar(form, None).options.items():
            seen = 0
            for option in variants:
                assert not seen & option.versions, (form, string)
                seen |= option.versions


def test_ranges_become_bits() -> None:
    last = len(VERSIONS) - 1
    assert mask("0-2,5") == 0b100111
    assert mask(f"{last}-") == 1 << last
    assert since("0.5.5") == EVERY
    assert before("0.5.5") == 0
    assert since("0.33.0") == bit("0.33.0")
    assert since("0.19.9") == since("0.20.0")


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (since("0.11.0"), "from 0.11.0"),
        (before("0.18.1"), "up to 0.17.1"),
        (since("0.9.0") & before("0.9.2"), "from 0.9.0 to 0.9.1"),
        (bit("0.9.0"), "in 0.9.0 only"),
    ],
)
def test_spans_are_said_in_words(bits: int, text: str) -> None:
    assert span(bits) == text


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.10.2", ["0.10.2"]),
        ("0.8.5.post1", ["0.8.5"]),
        ("0.6.6", ["0.6.6.post1"]),
        ("0.6.6rc1", ["0.6.5", "0.6.6.post1"]),
        ("0.9", ["0.9.0", "0.9.1", "0.9.2"]),
        ("0.18.0", ["0.17.1", "0.18.1"]),
        ("0.15.2rc1", ["0.15.1", "0.16.0"]),
        ("0.1.0", ["0.5.5"]),
        ("9.9.9", ["0.33.0"]),
        ("9.9", ["0.33.0"]),
    ],
)
def test_a_version_stands_for_itself_or_its_neighbours(version: str, names: list[str]) -> None:
    assert candidates(version) == sum(bit(name) for name in names)


@pytest.mark.parametrize("version", [None, "nightly", "latest"])
def test_an_unknown_version_stands_for_all(version: str | None) -> None:
    assert candidates(version) == EVERY


def test_beyond_is_what_is_older_or_newer_than_all_that_were_read() -> None:
    assert is_beyond("0.4.2")
    assert is_beyond("0.34.0")
    assert not is_beyond("0.33.0.post1")
    assert not is_beyond("0.8")
    assert not is_beyond(None)


def test_the_stable_options_are_in_every_version_of_every_form() -> None:
    for form in FORMS:
        for string in ("-tp", "-pp", "--dtype", "--max-model-len", "--gpu-memory-utilization"):
            (option, *older) = grammar(form, None).options[string]
            bits = option.versions
            for variant in older:
                bits |= variant.versions
            assert bits == EVERY


@pytest.mark.parametrize(
    ("form", "string", "known"),
    [
        ("vllm serve", "--headless", True),
        ("openai.api_server", "--headless", False),
        ("api_server", "--served-model-name", True),
        ("api_server", "--enable-auto-tool-choice", False),
        ("api_server", "--log-level", True),
        ("vllm serve", "--log-level", False),
    ],
)
def test_each_form_has_its_own_options(form: str, string: str, known: bool) -> None:
    assert (string in grammar(form, "0.9.2").options) is known


def test_negative_spellings_follow_the_kind() -> None:
    old = grammar("vllm serve", "0.20.2").options
    new = grammar("vllm serve", "0.33.0").options
    assert "--no-enable-prefix-caching" in old
    assert "--disable-prefix-caching" not in old
    assert new["--disable-prefix-caching"][0].is_on is False
    assert "--no-disable-log-stats" not in old
