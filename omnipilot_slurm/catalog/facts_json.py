"""ModelFacts as JSON and back, for the pipe between the daemon and its folder worker.

In: ModelFacts. Out: a dict of JSON values, and the same facts from it. Pure.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from omnipilot_slurm.facts import Experts, LatentAttention, ModelFacts, Quantization, Tower

_PARTS = {"quantization": Quantization, "experts": Experts, "mla": LatentAttention, "tower": Tower}


def facts_to_json(facts: ModelFacts) -> dict[str, Any]:
    """Return the fields of a model as JSON values."""
    return asdict(facts)


def facts_from_json(values: dict[str, Any]) -> ModelFacts:
    """Return the facts that facts_to_json wrote."""
    made: dict[str, Any] = {key: _tuples(value) for key, value in values.items()}
    for name, part in _PARTS.items():
        if made[name] is not None:
            made[name] = part(**{key: _tuples(value) for key, value in made[name].items()})
    return ModelFacts(**made)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
