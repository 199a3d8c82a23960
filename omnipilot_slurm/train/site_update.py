"""The next model of a site: judged, and made of what the gate lets in.

In: the shipped model, the site's rows, and what the model in force had learned. Out: verdicts, and
the new model with the account of it for its card; no model where nothing is promoted. Called by
`omnipilot adapt`.

A target that is not promoted keeps the rows that it had in the model in force, none where it was
as shipped.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from omnipilot_slurm import __version__
from omnipilot_slurm.predict import conformal
from omnipilot_slurm.train.adapt import adapted, site_of
from omnipilot_slurm.train.gate import judged
from omnipilot_slurm.train.site_rows import row_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.rows import BoolArray
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.gate import Verdict

#: what adapt writes into a card under this name
ADAPTED = "adapted"


@dataclass(frozen=True, slots=True)
class Learned:
    """Row keys that a model in force learned from, and the targets that it corrects."""

    rows: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()


def learned_of(card: Mapping[str, Any]) -> Learned:
    """Return what the card of a site's model says that it learned."""
    said = card.get(ADAPTED, {})
    return Learned(frozenset(said.get("rows", ())), frozenset(said.get("targets", ())))


@dataclass(frozen=True, slots=True)
class Update:
    """The verdicts; the new model and what its card says of it, None where nothing is promoted."""

    verdicts: tuple[Verdict, ...]
    model: CostModel | None
    about: Mapping[str, Any]


def update(
    shipped: CostModel, data: Dataset, before: Learned, alpha: float = conformal.ALPHA
) -> Update:
    """Judge a model from all rows against the one that learned `before`, and make it.

    `alpha` is the miscoverage that live outcomes ask for (predict/drift.py).
    """
    everything = np.arange(len(data))
    keys = row_keys(data)
    known = np.array([key in before.rows for key in keys])
    verdicts = judged(site_of(shipped, data), everything, known)
    promoted = {each.target for each in verdicts if each.is_promoted}
    if not promoted:
        return Update(verdicts, None, {})
    site = site_of(shipped, _withheld(data, known, promoted, before))
    about = {
        ADAPTED: {
            "targets": sorted(promoted | before.targets),
            "rows": sorted(keys),
            "n_rows": len(data),
            "n_cells": len(np.unique(data.groups["cell"])),
            "data_hash": data.data_hash,
            "verdicts": [asdict(each) for each in verdicts if each.n_cells],
            "alpha": alpha,
            "made_with": __version__,
        }
    }
    return Update(verdicts, adapted(site, everything, alpha), about)


def _withheld(data: Dataset, known: BoolArray, promoted: set[str], before: Learned) -> Dataset:
    """Return the rows without those figures of targets that the gate keeps out."""
    kept_out = np.ones(len(data), dtype=bool)
    masks = {
        name: np.zeros(len(data), dtype=bool)
        if name in promoted
        else (~known if name in before.targets else kept_out)
        for name in data.measured
    }
    measured = {
        name: np.where(masks[name], np.nan, values) for name, values in data.measured.items()
    }
    return replace(data, measured=measured)
