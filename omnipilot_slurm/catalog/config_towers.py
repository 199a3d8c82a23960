"""How large the vision and audio towers of a checkpoint are, where its own size is not known.

In: the Fields of a config.json. Out: parameters, within some 15 % of a tower, which is a few per
cent of a model. Called by hf_config; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.catalog.config_fields import Fields

_TOWERS = ("vision_config", "audio_config")


def tower_params(root: Fields, hidden: int) -> float:
    """Return the parameters of all towers and of what projects them to `hidden`."""
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
