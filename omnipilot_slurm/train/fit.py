"""Fit the whole cost model on measured rows.

In: a `Dataset` and settings. Out: `CostModel` and the conformal scores behind it. Called by
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
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from omnipilot_slurm.predict import conformal
from omnipilot_slurm.predict.blend import centre
from omnipilot_slurm.predict.features import Columns, features
from omnipilot_slurm.predict.model import LEARNED, LEVELS, CostModel
from omnipilot_slurm.predict.predictor import bases, calibration_groups
from omnipilot_slurm.predict.support import envelope_of
from omnipilot_slurm.train import ensembles
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.export import NOTHING, Packable, boosted, pack, randomised
from omnipilot_slurm.train.folds import grouped_folds
from omnipilot_slurm.train.kernel_fit import fit_kernel
from omnipilot_slurm.train.physics import fit_coefficients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]

    from omnipilot_slurm.predict.rows import FloatArray
    from omnipilot_slurm.train.dataset import Dataset

#: folds for the values that the quantiles learn from, and for the quantiles' own scores: models out
#: of fold see nearly all rows, else the intervals promise for a poorer model and come out too wide
N_CENTRE_FOLDS, N_BAND_FOLDS = 20, 5

_DEFAULT = Settings()
_SHARES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True, slots=True)
class Fit:
    """The model, and of each row out of fold, by target (n_rows,), NaN where not measured.

    `scores` are those that the conformal offsets come from, `missed` is ln(measured / predicted).
    """

    model: CostModel
    scores: Mapping[str, FloatArray]
    missed: Mapping[str, FloatArray]


def fit(
    data: Dataset,
    settings: Settings = _DEFAULT,
    progress: Callable[[str], None] = lambda _: None,
) -> Fit:
    """Return the fitted model; a target measured in fewer than MIN_ROWS rows is left out of it.

    Matrices and boosted trees are worked on in one thread: at this size threads wait for each other
    longer than they work, on a busy machine many times longer; their number changes last digits.
    """
    with threadpool_limits(1):
        return _fit(data, settings, progress)


def _fit(data: Dataset, settings: Settings, progress: Callable[[str], None]) -> Fit:
    cells = data.groups["cell"]
    folds = grouped_folds(cells, N_CENTRE_FOLDS)
    progress("roofline")
    coefficients = fit_coefficients(data.table, data.measured)
    columns = Columns.of(data.table)
    found = features(data.table, columns, coefficients)
    measured = np.column_stack([data.measured[target] for target in LEARNED])
    z = _learnable(np.log(measured / bases(data.table, found.physics)))
    progress("kernel")
    foreign = data.table.labels["vendor"] != "nvidia"
    kernel = fit_kernel(found.matrix, columns.names, z, folds, foreign)
    forest = ensembles.forests_out_of_fold(found.matrix, z, folds, settings, progress)
    shares = best_shares(kernel.out_of_fold, forest, z)
    middle = centre(kernel.out_of_fold, forest, kernel.density, shares)
    beside, rest = middle.beside(found.matrix), z - middle.value
    quantiles = ensembles.bands_out_of_fold(
        beside, rest, grouped_folds(cells, N_BAND_FOLDS), settings, progress
    )
    scores = {
        target: conformal.scores(quantiles[:, i, 0], quantiles[:, i, -1], rest[:, i])
        for i, target in enumerate(LEARNED)
    }
    progress("final trees")
    trees = ensembles.forests(found.matrix, z, settings)
    levels = ensembles.bands(beside, rest, settings)
    model = CostModel(
        coefficients=coefficients,
        columns=columns,
        kernel=kernel.kernel,
        kernel_shares=shares,
        forest=pack([NOTHING if tree is None else randomised(tree) for tree in trees]),
        bands=pack([each for models in levels for each in _packable(models)]),
        offsets=conformal.calibrate(scores, cells, calibration_groups(data.table)),
        envelope=envelope_of(data.table, cells.tolist()),
    )
    missed = {target: rest[:, i] - quantiles[:, i, 1] for i, target in enumerate(LEARNED)}
    return Fit(model, scores, missed)


def _packable(models: list[HistGradientBoostingRegressor]) -> list[Packable]:
    return [boosted(model) for model in models] or [NOTHING] * len(LEVELS)


def _learnable(z: FloatArray) -> FloatArray:
    """Return the values with those of a target that too few rows have taken out."""
    enough = np.isfinite(z).sum(axis=0) >= ensembles.MIN_ROWS
    return np.where(enough, z, np.nan)


def best_shares(kernel: FloatArray, forest: FloatArray, z: FloatArray) -> FloatArray:
    """Return by target the kernel's share with the lowest MAPE out of fold."""
    learned = np.isfinite(z).any(axis=0)
    losses = np.zeros((len(_SHARES), z.shape[1]))
    for i, share in enumerate(_SHARES):
        missed = np.abs(np.expm1(share * kernel + (1 - share) * forest - z))
        losses[i, learned] = np.nanmean(missed[:, learned], axis=0)
    best: FloatArray = _SHARES[np.argmin(losses, axis=0)]
    return best
