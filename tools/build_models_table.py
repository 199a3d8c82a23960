"""The table that build_models.py writes: rows to the text of etc/models.yaml.

In: Row after Row, each one model. Out: YAML with shapes that models share. Called by build_models.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

from build_models_names import BFLOAT16

from omnipilot_slurm.facts import Experts, LatentAttention, ModelFacts, Quantization, Tower
from omnipilot_slurm.yaml_words import trap

SOURCES = {
    "curated": "written by hand; implied parameters within 2 % of the published count",
    "aiconfigurator": "config.json in aiconfigurator-core 0.12.0 (Apache-2.0)",
    "llmfit": "llmfit 1.1.17 (MIT); implied parameters within 2 % of the checkpoint's own count",
    "llmfit+litgpt": "llmfit 1.1.17 (MIT) and litgpt 0.5.13 (Apache-2.0) agree",
}


@dataclass(frozen=True)
class Row:
    """One model on its way into the table."""

    facts: ModelFacts
    format: str | None
    source: str

    @property
    def rank(self) -> tuple[bool, bool, int, str]:
        """Order the rows of one shape: a maker's first, then unquantised, then the shortest."""
        publisher, _, name = self.facts.id.casefold().rpartition("/")
        return publisher not in BFLOAT16, self.format is not None, len(name), name


#: what a model may differ in from its shape
_OF_MODEL = {
    "id", "max_model_len", "dtype", "quantization", "source", "aliases", "params", "active_params",
}  # fmt: skip


def shape_of(facts: ModelFacts) -> str:
    """Return the architecture fields of a model as they stand in the table, but for its count."""
    shown: dict[str, Any] = {}
    for spec in fields(ModelFacts):
        value = getattr(facts, spec.name)
        if spec.name in _OF_MODEL or value in (None, (), {}, 0, 0.0, False):
            continue
        if spec.name == "kind" and value == "text":
            continue
        shown[spec.name] = _plain(value)
    return _flow(shown)


def _plain(value: object) -> object:
    if isinstance(value, Tower):
        stated = {spec.name: getattr(value, spec.name) for spec in fields(value)}
        default = {spec.name: spec.default for spec in fields(value)}
        return {name: kept for name, kept in stated.items() if kept != default[name]}
    if isinstance(value, (Experts, LatentAttention, Quantization)):
        return {
            spec.name: _plain(getattr(value, spec.name))
            for spec in fields(value)
            if getattr(value, spec.name) not in (None, False)
        }
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if trap(value) else value
    return repr(value)


HEAD = """\
# Models that vLLM serves: what memory and speed follow from. Compiled by tools/build_models.py
# from public packages and tools/models_curated.yaml; do not edit it here. A site adds or corrects
# models in /etc/omnipilot/models.yaml, which lies over this file key by key:
#     schema: 1
#     models: {our-lab/Our-8B: {shape: meta-llama/Llama-3.1-8B, source: ours}}
#
# sources        where a row comes from and why it is believed
# quantizations  formats of stored weights: method is vLLM's name; group_size inputs share a scale
#                (-1: one scale a channel); block is the (output, input) tile; quantizes names the
#                kinds of layer that are stored so, all linear ones where it is absent
# shapes         architectures; fields as in omnipilot_slurm/facts.py, `extra` as at the head of
#                omnipilot_slurm/vllm/weights.py; widths in elements, lengths in tokens
# models         checkpoints: shape (or the id of a model of the same one), longest context that
#                vLLM derives, how weights are stored
"""


def render(rows: list[Row], quantizations: dict[str, dict[str, Any]]) -> str:
    """Return the whole file."""
    first: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.rank):
        first.setdefault(shape_of(row.facts), row)
    names = _shape_names(first)
    lines = [HEAD, "schema: 1", "", "sources:"]
    lines += [f"  {name}: {text}" for name, text in SOURCES.items()]
    used = {row.format: row.facts.quantization for row in rows if row.format}
    lines += ["", "quantizations:"]
    for name, found in sorted(used.items()):
        fields_of = quantizations.get(name) or _format_fields(found)
        lines.append(f"  {name}: {_flow(fields_of)}")
    lines += ["", "shapes:"]
    for shape, name in sorted(names.items(), key=lambda pair: pair[1]):
        lines.append(f"  {name}: {shape[:-1]}, params: {first[shape].facts.params:.0f}}}")
    lines += ["", "models:"]
    for row in sorted(rows, key=lambda row: row.facts.id.casefold()):
        lines.append(f"  {_flow(row.facts.id)}: {_flow(_model_fields(row, names))}")
    return "\n".join(lines) + "\n"


def _format_fields(found: Quantization | None) -> dict[str, Any]:
    shown = _plain(found)
    assert isinstance(shown, dict)
    if len(shown["quantizes"]) == 4:
        del shown["quantizes"]
    return shown


def _model_fields(row: Row, names: dict[str, str]) -> dict[str, Any]:
    facts = row.facts
    shown: dict[str, Any] = {"shape": names[shape_of(facts)]}
    if facts.max_model_len is not None:
        shown["max_model_len"] = facts.max_model_len
    if facts.dtype != "bfloat16":
        shown["dtype"] = facts.dtype
    if row.format:
        shown["quantization"] = row.format
    if facts.aliases:
        shown["aliases"] = facts.aliases
    return shown | {"source": row.source}


def _shape_names(first: dict[str, Row]) -> dict[str, str]:
    """Name each shape after its first row; a number tells two of one name apart."""
    names: dict[str, str] = {}
    uses: Counter[str] = Counter()
    for shape, row in first.items():
        name = row.rank[-1]
        uses[name] += 1
        names[shape] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names
