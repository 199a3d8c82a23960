"""The command line is read as vLLM's own parsers read it.

tests/fixtures/vllm_cli.json holds their answers (tools/vllm_oracle_cases.py wrote it): for each
line and version the options set, or "refused".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnipilot_slurm.vllm.flags import CommandLine, engine_args, parse
from omnipilot_slurm.vllm.values import human_int_or_auto, truth

FIXTURE = Path(__file__).parents[2] / "fixtures" / "vllm_cli.json"
LINES: list[dict[str, Any]] = json.loads(FIXTURE.read_text())["lines"]
FORMS = {"serve": "vllm serve", "api_server": "openai.api_server", "legacy": "api_server"}
#: the options that the fixture records
RECORDED = {
    dest
    for line in LINES
    for _, expected in line["outcomes"]
    if expected != "refused"
    for dest in expected
} - {"model"}


def reads_alike(line: CommandLine, expected: Any) -> bool:
    """Whether our reading of a line is the recorded outcome."""
    if expected == "refused" or line.refusals:
        return expected == "refused" and bool(line.refusals)
    ours = {found.dest: found for found in line.occurrences if found.dest in RECORDED}
    if engine_args(line).model != expected["model"] or ours.keys() != expected.keys() - {"model"}:
        return False
    return all(_same((found.text, *found.more), expected[dest]) for dest, found in ours.items())


def explanation(line: dict[str, Any], version: str) -> str | None:
    """Return why we answer differently on purpose, None where we must agree."""
    words = line["words"]
    if "--config" in words and words[0].startswith("-"):
        return "whether the file names the model is not known to us: unsure"
    if "--enable-auto-tool-choice" in words and version == "0.6.0":
        return "0.6.0 refuses it later, when the endpoint is built"
    return None


def _same(texts: tuple[str | None, ...], value: object) -> bool:
    text = texts[0]
    if value == "given":
        return text is not None
    if value is None:
        return text in ("", "None")
    if text is None:
        return False
    if isinstance(value, bool):
        return truth(text) is value
    if isinstance(value, int):
        return human_int_or_auto(text) == value
    if isinstance(value, float):
        return float(text) == value
    return list(texts) == value if isinstance(value, list) else text == value


def test_at_least_300_lines_and_most_versions_were_asked() -> None:
    assert len(LINES) >= 300
    versions = {name for line in LINES for names, _ in line["outcomes"] for name in names}
    assert len(versions) >= 16


@pytest.mark.parametrize("form", FORMS)
def test_each_line_is_read_as_each_version_of_vllm_reads_it(form: str) -> None:
    wrong = []
    for line in LINES:
        if line["form"] != form:
            continue
        for names, expected in line["outcomes"]:
            for version in names:
                ours = parse(line["words"], version=version, form=FORMS[form])
                if not reads_alike(ours, expected) and explanation(line, version) is None:
                    wrong.append((version, line["words"], expected))
    assert wrong == []


def test_lines_that_we_read_differently_on_purpose_are_few_and_never_certain() -> None:
    """What is explained away is a config file's content, and a refusal that comes earlier."""
    differing = [
        (version, line["words"])
        for line in LINES
        for names, expected in line["outcomes"]
        for version in names
        if explanation(line, version)
        and not reads_alike(
            parse(line["words"], version=version, form=FORMS[line["form"]]), expected
        )
    ]
    n_asked = sum(len(names) for line in LINES for names, _ in line["outcomes"])
    assert len(differing) <= 0.005 * n_asked


def test_without_a_version_a_line_that_all_versions_read_alike_is_read_so() -> None:
    for line in LINES:
        expected = line["outcomes"][0][1]
        if len(line["outcomes"]) == 1 and expected != "refused":
            ours = parse(line["words"], form=FORMS[line["form"]])
            assert reads_alike(ours, expected), line["words"]


def test_without_a_version_nothing_is_refused_that_some_version_takes() -> None:
    for line in LINES:
        taken = any(expected != "refused" for _, expected in line["outcomes"])
        if taken:
            ours = parse(line["words"], form=FORMS[line["form"]])
            assert not ours.refusals or explanation(line, "0.6.0"), line["words"]
