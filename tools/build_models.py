"""Compile etc/models.yaml from public packages and tools/models_curated.yaml.

    pip download --no-deps -d wheels llmfit litgpt aiconfigurator-core
    for wheel in wheels/*.whl; do unzip -qo "$wheel" -d unpacked; done
    llmfit list --json > unpacked/llmfit.json      # the wheel's own program
    python tools/build_models.py unpacked etc/models.yaml

Sources, in the order of trust: the curated file; aiconfigurator-core (Apache-2.0), whose
model_configs are real config.json files; llmfit (MIT), a table of fields and of each checkpoint's
own parameter count. litgpt (Apache-2.0) is the second witness where it has the same id. A row of
llmfit enters when the parameters that its fields imply, by omnipilot_slurm's own formula, are
within 2 % of the count stated for it (5 % where that holds layers for multi-token prediction). What
is wrong in a package is left out: llmfit's KV heads of Falcon and Step, its head_dim for latent
attention, rows of gated models, whose context length it guesses.

max_model_len is what vLLM derives (see catalog/hf_config.py); llmfit's context_length follows the
same rule for the rows it read from a config.json (those with a hidden size), and its default of
4096 is taken only where the family has that length.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from build_models_llmfit import from_llmfit, stated_counts
from build_models_table import Row, render, shape_of
from build_models_towers import with_tower

from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import ModelFacts, Quantization
from omnipilot_slurm.vllm.weights import parameter_count

if TYPE_CHECKING:
    from collections.abc import Iterator

CURATED = Path(__file__).with_name("models_curated.yaml")
#: keys that tell of layers for multi-token prediction
MULTI_TOKEN = frozenset({"num_nextn_predict_layers", "mtp_num_hidden_layers"})


def main() -> None:
    """Read the sources and write the table; print what was left out, and why, to stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("unpacked", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    curated = yaml.safe_load(CURATED.read_text())
    formats = {name: _quantization(row) for name, row in curated["quantizations"].items()}
    rows: dict[str, Row] = {}
    taken: set[str] = set()
    left_out: Counter[str] = Counter()
    pool = list(curated["configs"].values()) + [
        config for _, config in _package_configs(arguments.unpacked)
    ]
    for source in (
        from_curated(curated, formats),
        from_configs(arguments.unpacked, formats, left_out),
        from_llmfit(arguments.unpacked, pool, formats, left_out),
    ):
        for row in source:
            name = row.facts.id.casefold()
            if name not in taken:
                # towers differ by a few million where a file holds scales or positions twice
                params = round(row.facts.tower_params, -7)
                rounded = replace(row, facts=replace(row.facts, tower_params=params))
                rows[name] = with_tower(rounded, curated["towers"])
                taken |= {name, *(alias.casefold() for alias in row.facts.aliases)}
    arguments.target.write_text(render(list(rows.values()), curated["quantizations"]))
    shapes = {shape_of(row.facts) for row in rows.values()}
    print(f"{len(rows)} models, {len(shapes)} shapes", file=sys.stderr)
    for reason, number in left_out.most_common(25):
        print(f"left out {number:5}: {reason}", file=sys.stderr)


def _quantization(row: dict[str, Any]) -> Quantization:
    return Quantization(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    )


def from_curated(
    curated: dict[str, dict[str, dict[str, Any]]], formats: dict[str, Quantization]
) -> Iterator[Row]:
    """Yield the hand-written rows; one that its own count contradicts stops the build."""
    for model_id, entry in curated["models"].items():
        config = curated["configs"][str(entry["config"])]
        stated = entry.get("params")
        facts = facts_from_config(
            config,
            model_id=model_id,
            source="curated",
            stated_params=None if stated is None else float(stated),
        )
        format_name = entry.get("quantization")
        facts = replace(
            facts,
            quantization=formats[str(format_name)] if format_name else None,
            aliases=tuple(entry.get("aliases", ())),
            max_model_len=entry.get("max_model_len", facts.max_model_len),
            dtype=str(entry.get("dtype", facts.dtype)),
            **entry.get("set", {}),
        )
        yield Row(_recounted(facts), str(format_name) if format_name else None, "curated")
    for model_id, entry in curated["facts"].items():
        facts = ModelFacts(id=model_id, active_params=0.0, **entry)
        yield Row(_recounted(facts), None, "curated")


def _recounted(facts: ModelFacts) -> ModelFacts:
    """Set the totals; a stated one stays and must agree."""
    count = parameter_count(facts)
    stated = facts.params
    if facts.tower_params and stated < count.total:
        stated = count.total
    if abs(count.total - stated) > 0.02 * stated:
        raise SystemExit(f"{facts.id}: fields imply {count.total:.4g}, stated {stated:.4g}")
    return replace(facts, params=stated, active_params=count.active)


def from_configs(
    unpacked: Path, formats: dict[str, Quantization], left_out: Counter[str]
) -> Iterator[Row]:
    """Yield what the config.json files state."""
    stated = {name: count for name, count, _ in stated_counts(unpacked)}
    for model_id, config in _package_configs(unpacked):
        count = stated.get(model_id.casefold())
        try:
            facts = facts_from_config(config, model_id=model_id, source="aiconfigurator")
            if count and facts.kind == "multimodal" and facts.quantization is None:
                facts = facts_from_config(
                    config, model_id=model_id, source="aiconfigurator", stated_params=count
                )
        except CatalogError as error:
            left_out[f"aiconfigurator: {_kind_of(error)}"] += 1
            continue
        text = config.get("text_config", config)
        if MULTI_TOKEN.intersection(text) or facts.quantization is not None:
            count = None  # it counts what does not load, or packed weights
        if count and abs(count - facts.params) <= 0.02 * count:
            facts = replace(facts, params=count)
        yield Row(facts, _format_name(facts.quantization, formats), "aiconfigurator")


def _package_configs(unpacked: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    folder = next(unpacked.rglob("model_configs"))
    for path in sorted(folder.glob("*_config.json")):
        if path.name.endswith("hf_quant_config.json"):
            continue
        config = json.loads(path.read_text())
        quantized = path.with_name(path.name.replace("_config", "_hf_quant_config"))
        if quantized.exists() and "quantization_config" not in config:
            config["quantization_config"] = json.loads(quantized.read_text())
        yield path.name.removesuffix("_config.json").replace("--", "/"), config


def _format_name(found: Quantization | None, formats: dict[str, Quantization]) -> str | None:
    """Return the name of a quantisation format, giving it one where it is new."""
    if found is None:
        return None
    for name, known in formats.items():
        if known == found:
            return name
    name = f"{found.method}-{found.scheme}-{'-'.join(found.quantizes)}".replace("_", "-")
    formats[name] = found
    return name


def _kind_of(error: CatalogError) -> str:
    return re.sub(r"'[^']*'|\d+(\.\d+)?", "…", str(error))[:90]


if __name__ == "__main__":
    main()
