"""The vision towers of models whose rows say nothing of them, by architecture and width.

In: a Row and the `towers` of models_curated.yaml. Out: the Row with its tower. Called by
build_models. The sizes of Qwen-VL's and Llama 4's items stand in a preprocessor's file, which no
package has: those of their makers' own checkpoints, and of what was quantised from them, are the
published ones; another's fine-tune may be set to smaller ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.catalog.config_fields import Fields
from omnipilot_slurm.catalog.config_vision import read_tower

if TYPE_CHECKING:
    from build_models_table import Row

    from omnipilot_slurm.facts import ModelFacts, Tower

#: who publishes checkpoints with the maker's own preprocessor beside them
_KEEPERS = frozenset({"qwen", "meta-llama", "redhatai", "neuralmagic"})
_MAKERS_NAMES = ("qwen2-vl-", "qwen2.5-vl-", "qwen3-vl-", "qwen3.5-", "llama-4-")


def with_tower(row: Row, towers: list[dict[str, Any]]) -> Row:
    """Return a row with the tower of its architecture where its own config said none."""
    facts = row.facts
    if facts.kind != "multimodal":
        return row
    tower = facts.tower or _of_architecture(facts, towers)
    if tower is not None and not tower.sized:
        tower = replace(tower, sized=_keeps_sizes(facts.id))
    return replace(row, facts=replace(facts, tower=tower))


def _of_architecture(facts: ModelFacts, towers: list[dict[str, Any]]) -> Tower | None:
    for entry in towers:
        named = facts.architecture in entry["architectures"]
        if named and facts.hidden in entry.get("hidden", [facts.hidden]):
            return read_tower(Fields(entry["config"]))
    return None


def _keeps_sizes(model_id: str) -> bool:
    publisher, _, name = model_id.casefold().rpartition("/")
    return publisher in _KEEPERS and name.startswith(_MAKERS_NAMES)
