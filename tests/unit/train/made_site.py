"""A site that tests make up: it measures what the shipped model predicts, times a factor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train.adapt import site_of

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.adapt import Site
    from omnipilot_slurm.train.dataset import Dataset

#: the made-up site delivers this share of what was measured elsewhere
SLOWER = 0.6


def made_site(
    model: CostModel, rows: Dataset, n_rows: int, factor: float = SLOWER, scatter: float = 0.03
) -> Site:
    """A site that measures what the model predicts, times a factor and a little scatter."""
    rng = np.random.default_rng(7)
    data = rows.take(rng.permutation(len(rows))[:n_rows])
    said = Predictor(model).predict(data.rows).targets["output_tok_s"].mid
    off = factor * np.exp(rng.normal(0, scatter, size=n_rows))
    nothing = np.full(n_rows, np.nan)
    measured = dict.fromkeys(data.measured, nothing) | {"output_tok_s": said * off}
    return site_of(model, replace(data, measured=measured))
