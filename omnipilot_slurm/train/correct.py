"""Fit a site's correction of the shipped model: a few rows move it a little, many bend it.

In: the shipped model, frozen, and a site's rows. Out: `Correction`. Called by train/adapt.py, on
all rows and on parts of them.

What the shipped model misses on the site's rows is a Gaussian process: a site-wide constant, a
surface over the shipped model's own columns (the kernel of predict/kernel.py) and scatter. Its
three standard deviations, and the share of a roofline fitted here, are not chosen but weighed:
every setting of the grid counts by its marginal likelihood (Rasmussen and Williams 2006, section
5.2), so that five rows leave the prior's caution in force and a hundred let the surface follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve  # type: ignore[import-untyped]

from omnipilot_slurm.predict.correction import Correction
from omnipilot_slurm.predict.features import features
from omnipilot_slurm.predict.kernel import Kernel, facing, likeness, looking
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Predictor, bases
from omnipilot_slurm.predict.roofline import roofline
from omnipilot_slurm.train.kernel_fit import LENGTHS, scales
from omnipilot_slurm.train.physics import fit_coefficients

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.roofline import Coefficients, Work
    from omnipilot_slurm.predict.rows import FloatArray, IntArray, Table
    from omnipilot_slurm.train.dataset import Dataset

#: rows of a target below which it is left as shipped
MIN_ROWS = 5
#: shares of the site's own roofline in a corrected target that are tried; power has no roofline.
#: Never all of it: the roofline is fitted on the very rows that the evidence is taken from
_SHARES = (0.0, 0.35, 0.7)
_NO_ROOFLINE = LEARNED.index("power_w")
#: pull of the site's roofline towards the shipped coefficients: a coefficient moves by e for the
#: price of one row that is 3 in log space off
_PULL = 0.1
#: rows that the whole grid is tried on; more would take minutes and change nothing
_MANY = 300
#: log evidence behind the best at which a setting no longer counts: e^-7 is 0.1 %
_UNLIKELY = 7.0
#: standard deviations in log space: of a site's constant, of the surface, of a measurement
_CONSTANTS, _SURFACES, _SCATTERS = (0.1, 0.5), (0.15, 0.4, 1.0), (0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, slots=True)
class Frozen:
    """What the shipped model says of a site's rows; log residuals are relative to `base`.

    `matrix` (n_rows, n_columns), `mid` and `base` (n_rows, n_learned), `below` and `above`
    (n_rows, n_learned) the distances of the outer quantiles from mid before offsets, `z` what was
    measured, NaN where it was not.
    """

    model: CostModel
    table: Table
    load: Work
    matrix: FloatArray
    base: FloatArray
    mid: FloatArray
    below: FloatArray
    above: FloatArray
    z: FloatArray

    def site_roofline(self, coefficients: Coefficients) -> FloatArray:
        """Return the log residuals of a roofline with other coefficients, (n_rows, n_learned)."""
        physics = roofline(self.table, self.load, coefficients)
        return np.log(bases(self.table, physics) / self.base)


def frozen(shipped: CostModel, data: Dataset) -> Frozen:
    """Return what the shipped model, without any correction, says of rows."""
    model = replace(shipped, site=None)
    centres, left, base = Predictor(model).quantiles(data.table)
    found = features(data.table, model.columns, model.coefficients)
    measured = np.column_stack([data.measured[target] for target in LEARNED])
    return Frozen(
        model=model,
        table=data.table,
        load=found.load,
        matrix=found.matrix,
        base=base,
        mid=centres + left[:, :, 1],
        below=left[:, :, 1] - left[:, :, 0],
        above=left[:, :, 2] - left[:, :, 1],
        z=np.log(measured / base),
    )


def fit_correction(site: Frozen, data: Dataset, rows: IntArray) -> Correction:
    """Return the correction that these rows (positions) of the site teach."""
    coefficients = fit_coefficients(
        data.table.take(rows),
        {target: data.measured[target][rows] for target in LEARNED},
        site.model.coefficients,
        _PULL,
    )
    missed = site.z[rows] - site.mid[rows]
    enough = np.isfinite(missed).sum(axis=0) >= MIN_ROWS
    towards = site.site_roofline(coefficients)[rows] - site.mid[rows]
    towards[:, _NO_ROOFLINE] = 0.0
    used, factors = scales(site.model.columns.names, LENGTHS)
    origin = site.matrix[rows][:, used].mean(axis=0)
    anchors = (site.matrix[rows][:, used] - origin) * factors
    alike = likeness(looking(anchors), facing(anchors)).astype(np.float64)
    shares, means, duals = np.zeros(len(LEARNED)), np.zeros(len(LEARNED)), np.zeros(missed.shape)
    for i in np.flatnonzero(enough):
        seen = np.flatnonzero(np.isfinite(missed[:, i]))
        shares[i], means[i], duals[seen, i] = _weighed(
            alike[np.ix_(seen, seen)], missed[seen, i], towards[seen, i]
        )
    shares[_NO_ROOFLINE] = 0.0
    facing_anchors = facing(anchors).astype(np.float32)
    kernel = Kernel(used, origin, factors, facing_anchors, duals.astype(np.float32), means)
    return Correction(coefficients, shares, kernel)


def _weighed(
    alike: FloatArray, missed: FloatArray, towards: FloatArray
) -> tuple[float, float, FloatArray]:
    """Return share, constant and the surface's duals, averaged over the grid by evidence.

    `towards` (n_rows,) is what the whole share of the site's roofline would add.
    """
    targets = np.stack([missed - share * towards for share in _SHARES], axis=1)
    fits = [_gaussian(alike, targets, *each) for each in _likely(alike, targets)]
    evidence = np.stack([fit[0] for fit in fits])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = float((weights * [fit[1] for fit in fits]).sum())
    duals: FloatArray = np.einsum("gs,gns->n", weights, np.stack([fit[2] for fit in fits]))
    return float(weights.sum(axis=0) @ _SHARES), mean, duals


def _likely(alike: FloatArray, targets: FloatArray) -> list[tuple[float, float, float]]:
    """Return the settings of the grid; of many rows, those that some of the rows leave likely."""
    grid = list(product(_CONSTANTS, _SURFACES, _SCATTERS))
    if len(targets) <= _MANY:
        return grid
    some = np.linspace(0, len(targets) - 1, _MANY).astype(int)
    part, wanted = alike[np.ix_(some, some)], targets[some]
    evidence = np.array([_gaussian(part, wanted, *each)[0].max() for each in grid])
    likely = evidence > evidence.max() - _UNLIKELY
    return [setting for setting, is_likely in zip(grid, likely, strict=True) if is_likely]


def _gaussian(
    alike: FloatArray, targets: FloatArray, constant: float, surface: float, scatter: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log evidence, constant and duals of one setting for each column of targets."""
    covariance = constant**2 + surface**2 * alike + scatter**2 * np.eye(len(targets))
    factor = cho_factor(covariance, lower=True)
    solved = cho_solve(factor, targets)
    evidence = -0.5 * (targets * solved).sum(axis=0) - np.log(np.diag(factor[0])).sum()
    return evidence, constant**2 * solved.sum(axis=0), surface**2 * solved
