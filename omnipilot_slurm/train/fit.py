"""Fit the whole cost model on measured rows.

In: a `Dataset` and a seed. Out: `CostModel` and the conformal scores behind it. Called by
`omnipilot train` and, once for each outer fold, by evaluate: all that is learned is learned in
here, offsets and support included, so what is held out of the dataset cannot leak.

Steps: roofline coefficients; residuals z = ln(measured / base); by cell in folds, the kernel's and
the forest's values of rows they have not seen; boosted quantiles of what is left; their scores out
of fold; offsets; then kernel, forest and quantiles again on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import (  # type: ignore[import-untyped]
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)

from omnipilot_slurm.predict import conformal
from omnipilot_slurm.predict.blend import centre
from omnipilot_slurm.predict.features import Columns, features
from omnipilot_slurm.predict.model import LEARNED, LEVELS, CostModel
from omnipilot_slurm.predict.predictor import bases
from omnipilot_slurm.predict.support import envelope_of
from omnipilot_slurm.train.export import boosted, pack, randomised
from omnipilot_slurm.train.folds import grouped_folds
from omnipilot_slurm.train.kernel_fit import fit_kernel
from omnipilot_slurm.train.physics import fit_coefficients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnipilot_slurm.predict.rows import FloatArray, IntArray
    from omnipilot_slurm.train.dataset import Dataset

N_FOLDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes of the trees; `n_jobs` threads may be used."""

    forest_trees: int = 20
    forest_features: float = 0.6
    band_trees: int = 40
    band_leaves: int = 6
    band_min_rows: int = 20
    band_rate: float = 0.1
    n_jobs: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """The model, and by target the conformal scores (n_rows,) that its offsets come from."""

    model: CostModel
    scores: Mapping[str, FloatArray]


def fit(
    data: Dataset,
    settings: Settings = Settings(),
    progress: Callable[[str], None] = lambda _: None,
) -> Fit:
    """Return the fitted model."""
    folds = grouped_folds(data.groups["cell"], N_FOLDS, settings.seed)
    coefficients = fit_coefficients(data.table, data.measured)
    columns = Columns.of(data.table)
    found = features(data.table, columns, coefficients)
    measured = np.column_stack([data.measured[target] for target in LEARNED])
    z = np.log(measured / bases(data.table, found.physics))
    progress("kernel")
    foreign = data.table.labels["vendor"] != "nvidia"
    kernel = fit_kernel(found.matrix, columns.names, z, folds, foreign)
    forests = _Forests(settings)
    seen_by_others = forests.out_of_fold(found.matrix, z, folds, progress)
    middle = centre(kernel.out_of_fold, seen_by_others, kernel.density)
    rest = z - middle.value
    beside = middle.beside(found.matrix)
    bands = _Bands(settings)
    quantiles = bands.out_of_fold(beside, rest, folds, progress)
    scores = {
        target: conformal.scores(quantiles[:, i, 0], quantiles[:, i, -1], rest[:, i])
        for i, target in enumerate(LEARNED)
    }
    groups = [
        conformal.groups_of(mode, gpu)
        for mode, gpu in zip(
            data.table.labels["load_mode"].tolist(), data.table.labels["gpu"].tolist(), strict=True
        )
    ]
    model = CostModel(
        coefficients=coefficients,
        columns=columns,
        kernel=kernel.kernel,
        forest=pack([randomised(m) for m in forests.fit(found.matrix, z, progress)]),
        bands=pack([boosted(m) for m in bands.fit(beside, rest, progress)]),
        offsets=conformal.calibrate(scores, data.groups["cell"], groups),
        envelope=envelope_of(data.table, data.groups["cell"].tolist()),
    )
    return Fit(model, scores)


class _Forests:
    """Extremely randomised trees, one ensemble a target."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def fit(
        self, matrix: FloatArray, z: FloatArray, progress: Callable[[str], None]
    ) -> list[ExtraTreesRegressor]:
        """Fit all targets on their measured rows."""
        return [self._fit_one(matrix, z[:, i], progress, i) for i in range(z.shape[1])]

    def _fit_one(
        self, matrix: FloatArray, z: FloatArray, progress: Callable[[str], None], i: int
    ) -> ExtraTreesRegressor:
        progress(f"forest of {LEARNED[i]}")
        rows = np.isfinite(z)
        model = ExtraTreesRegressor(
            n_estimators=self.settings.forest_trees,
            max_features=self.settings.forest_features,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )
        return model.fit(matrix[rows], z[rows])

    def out_of_fold(
        self, matrix: FloatArray, z: FloatArray, folds: IntArray, progress: Callable[[str], None]
    ) -> FloatArray:
        """Return the values of rows from forests that saw no row of their fold."""
        values = np.full(z.shape, np.nan)
        for fold in np.unique(folds):
            held = folds == fold
            for i, model in enumerate(self.fit(matrix[~held], z[~held], progress)):
                values[held, i] = model.predict(matrix[held])
        return values


class _Bands:
    """Boosted quantiles of what kernel and forest leave, one ensemble a target and level."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def fit(
        self, beside: FloatArray, rest: FloatArray, progress: Callable[[str], None]
    ) -> list[HistGradientBoostingRegressor]:
        """Fit all targets and levels, target by target."""
        return [
            self._fit_one(beside, rest[:, i], level, progress, i)
            for i in range(rest.shape[1])
            for level in LEVELS
        ]

    def _fit_one(
        self,
        beside: FloatArray,
        rest: FloatArray,
        level: float,
        progress: Callable[[str], None],
        i: int,
    ) -> HistGradientBoostingRegressor:
        progress(f"quantile {level} of {LEARNED[i]}")
        rows = np.isfinite(rest)
        own = _own_columns(beside[rows], i)
        model = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            max_iter=self.settings.band_trees,
            max_leaf_nodes=self.settings.band_leaves,
            min_samples_leaf=self.settings.band_min_rows,
            learning_rate=self.settings.band_rate,
            early_stopping=False,
            random_state=self.settings.seed,
        )
        return model.fit(own, rest[rows])

    def out_of_fold(
        self, beside: FloatArray, rest: FloatArray, folds: IntArray, progress: Callable[[str], None]
    ) -> FloatArray:
        """Return sorted quantiles (n_rows, n_targets, n_levels) of rows not fitted on."""
        shape = (*rest.shape, len(LEVELS))
        values = np.full(shape, np.nan)
        for fold in np.unique(folds):
            held = folds == fold
            models = self.fit(beside[~held], rest[~held], progress)
            for i in range(shape[1]):
                rows = np.flatnonzero(held & np.isfinite(rest[:, i]))
                if len(rows):
                    own = _own_columns(beside[rows], i)
                    of_target = models[i * len(LEVELS) : (i + 1) * len(LEVELS)]
                    found = np.column_stack([model.predict(own) for model in of_target])
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
