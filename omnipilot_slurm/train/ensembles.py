"""The two kinds of trees of the cost model, and what they say of rows that they have not seen.

In: feature matrices, values to learn with NaN where a target was not measured, folds. Out: fitted
scikit-learn ensembles, None for a target with too few rows, and values out of fold. Called by
train/fit.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import (  # type: ignore[import-untyped]
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)

from omnipilot_slurm.predict.model import LEARNED, LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.predict.rows import FloatArray, IntArray

#: rows below which a target is not learned at all
MIN_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes of the trees; `n_jobs` threads grow them, which changes nothing of the outcome."""

    forest_trees: int = 16
    forest_features: float = 0.6
    band_trees: int = 40
    band_leaves: int = 6
    band_min_rows: int = 20
    band_rate: float = 0.1
    n_jobs: int = 2
    seed: int = 0


def forests(matrix: FloatArray, z: FloatArray, settings: Settings) -> list[ExtraTreesRegressor]:
    """Fit one ensemble of extremely randomised trees a target (Geurts, Ernst, Wehenkel 2006)."""
    return [_forest(matrix, z[:, i], settings) for i in range(z.shape[1])]


def _forest(matrix: FloatArray, z: FloatArray, settings: Settings) -> ExtraTreesRegressor | None:
    rows = np.isfinite(z)
    if rows.sum() < MIN_ROWS:
        return None
    model = ExtraTreesRegressor(
        n_estimators=settings.forest_trees,
        max_features=settings.forest_features,
        n_jobs=settings.n_jobs,
        random_state=settings.seed,
    )
    fitted: ExtraTreesRegressor = model.fit(matrix[rows], z[rows])
    # threads would add up the trees in any order, and the last digits with it
    return fitted.set_params(n_jobs=1)


def forests_out_of_fold(
    matrix: FloatArray,
    z: FloatArray,
    folds: IntArray,
    settings: Settings,
    progress: Callable[[str], None],
) -> FloatArray:
    """Return for every row (n_rows, n_targets) the values of forests without the row's fold."""
    values = np.full(z.shape, np.nan)
    for fold in np.unique(folds):
        progress(f"forest without fold {fold}")
        held = folds == fold
        for i, model in enumerate(forests(matrix[~held], z[~held], settings)):
            if model is not None:
                values[held, i] = model.predict(matrix[held])
    return values


def bands(
    beside: FloatArray, rest: FloatArray, settings: Settings
) -> list[list[HistGradientBoostingRegressor]]:
    """Fit by target one ensemble of boosted trees a quantile level; no ensemble, no target."""
    return [_band(beside, rest[:, i], i, settings) for i in range(rest.shape[1])]


def _band(
    beside: FloatArray, rest: FloatArray, target: int, settings: Settings
) -> list[HistGradientBoostingRegressor]:
    rows = np.isfinite(rest)
    if rows.sum() < MIN_ROWS:
        return []
    own = _own_columns(beside[rows], target)
    return [
        HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            max_iter=settings.band_trees,
            max_leaf_nodes=settings.band_leaves,
            min_samples_leaf=settings.band_min_rows,
            learning_rate=settings.band_rate,
            early_stopping=False,
            random_state=settings.seed,
        ).fit(own, rest[rows])
        for level in LEVELS
    ]


def bands_out_of_fold(
    beside: FloatArray,
    rest: FloatArray,
    folds: IntArray,
    settings: Settings,
    progress: Callable[[str], None],
) -> FloatArray:
    """Return for every row measured the sorted quantiles (n_rows, n_targets, n_levels)."""
    values = np.full((*rest.shape, len(LEVELS)), np.nan)
    for fold in np.unique(folds):
        progress(f"quantiles without fold {fold}")
        held = folds == fold
        for i, models in enumerate(bands(beside[~held], rest[~held], settings)):
            rows = np.flatnonzero(held & np.isfinite(rest[:, i]))
            if models and len(rows):
                own = _own_columns(beside[rows], i)
                found = np.column_stack([model.predict(own) for model in models])
                values[rows, i] = np.sort(found, axis=1)
    return values


def _own_columns(beside: FloatArray, target: int) -> FloatArray:
    """Return the matrix with the trust columns of other targets, unknown while fitting, as 0.

    A column that is 0 everywhere is never split on, so the trees read only their own.
    """
    columns = np.arange(-3 * len(LEARNED), 0)
    others = columns[columns % len(LEARNED) != target]
    own = beside.copy()
    own[:, others] = 0.0
    return own
