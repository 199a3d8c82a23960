"""How large the vision and audio towers of a checkpoint are.

In: the facts of its text, the Fields of its config.json and its own count where that is known.
Out: parameters: what the count leaves beyond the text, else an estimate from the towers' widths,
within some 15 % of a tower, which is a few per cent of a model. Called by hf_config; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.vllm.weights import parameter_count

if TYPE_CHECKING:
    from omnipilot_slurm.catalog.config_fields import Fields
    from omnipilot_slurm.facts import ModelFacts

_TOWERS = ("vision_config", "audio_config")


def tower_params(facts: ModelFacts, root: Fields, stated: float | None) -> float:
    """Return the parameters of all towers and of what projects them to the model's width.

    A tied matrix may be stored twice: the reading that is nearer to the estimate is taken.
    """
    estimate = _estimate(root, facts.hidden)
    if stated is None:
        return estimate
    beyond = stated - parameter_count(facts).total
    once = beyond - (facts.vocab * facts.hidden if facts.tied_embeddings else 0)
    readings = [reading for reading in (beyond, once) if reading > 0]
    if not estimate or not readings:
        return max(beyond, estimate)
    return min(readings, key=lambda reading: abs(reading - estimate))


def _estimate(root: Fields, hidden: int) -> float:
    holder = root.inner("thinker_config") or root
    towers = [holder.inner(name) for name in _TOWERS]
    return sum(_tower(tower, hidden) for tower in towers if tower is not None)


def _tower(tower: Fields, hidden: int) -> float:
    """Return a transformer encoder of the stated widths and a two-layer projector behind it."""
    layers = tower.count("depth", "num_hidden_layers", "layers", "encoder_layers") or 0
    width = tower.count("embed_dim", "hidden_size", "width", "d_model") or 0
    inner = tower.count("intermediate_size", "encoder_ffn_dim") or 4 * width
    merged = width * (tower.count("spatial_merge_size") or 1) ** 2
    return float(layers * (4 * width**2 + 2 * width * inner) + merged * (merged + hidden))
