"""Adapt the shipped model to a site: correct its centre, recalibrate it, widen its support.

In: the shipped model, which stays as it is, and the site's rows. Out: a model for the site, or what
such models said of rows whose cells they had not seen. Called by `omnipilot adapt`, train/gate.py
and benchmarks/adapt.py.

Offsets come from corrections out of fold by cell (specification, section 4); a group of rows that
the site never measured keeps at least the shipped offset. Support grows by what the site measured
and by nothing beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict import conformal
from omnipilot_slurm.predict.conformal import EVERYTHING, Offsets
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import calibration_groups
from omnipilot_slurm.predict.probes import widened
from omnipilot_slurm.train.correct import fit_correction, frozen
from omnipilot_slurm.train.folds import grouped_folds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from omnipilot_slurm.predict.correction import Correction
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.rows import FloatArray, IntArray, TextArray
    from omnipilot_slurm.train.correct import Frozen
    from omnipilot_slurm.train.dataset import Dataset

#: folds of the site's cells for its offsets
N_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Site:
    """A site's rows, and what the shipped model says of them."""

    data: Dataset
    shipped: Frozen

    @property
    def cells(self) -> TextArray:
        """The cell of each row."""
        return self.data.groups["cell"]


def site_of(shipped: CostModel, data: Dataset) -> Site:
    """Return the site's rows with the shipped model's values."""
    return Site(data, frozen(shipped, data))


@dataclass(frozen=True, slots=True)
class Taught:
    """What some of a site's rows teach: the correction and the offsets that go with it."""

    correction: Correction
    offsets: Offsets


def taught(site: Site, rows: IntArray, alpha: float = conformal.ALPHA) -> Taught:
    """Return what these rows (positions) teach, at a miscoverage; the others are not looked at."""
    cells = site.cells[rows]
    folds = grouped_folds(cells, min(N_FOLDS, len(np.unique(cells))))
    mid = np.full((len(rows), len(LEARNED)), np.nan)
    for fold in np.unique(folds):
        held, kept = folds == fold, folds != fold
        if kept.any():
            mid[held] = corrected(
                site, fit_correction(site.shipped, site.data, rows[kept]), rows[held]
            )
    correction = fit_correction(site.shipped, site.data, rows)
    scores = _scores(site, rows, mid)
    groups = calibration_groups(site.data.table.take(rows))
    own = conformal.calibrate(scores, cells, groups, alpha)
    return Taught(correction, _offsets(site, own, groups, correction))


def corrected(site: Site, correction: Correction, rows: IntArray) -> FloatArray:
    """Return the corrected centre of rows, log residuals of shape (n_rows, n_learned)."""
    frozen = site.shipped
    there = frozen.site_roofline(correction.coefficients)[rows]
    mid = frozen.mid[rows]
    return mid + correction.shift(there, mid, frozen.matrix[rows])


def _scores(site: Site, rows: IntArray, mid: FloatArray) -> dict[str, FloatArray]:
    frozen = site.shipped
    lo, hi, z = mid - frozen.below[rows], mid + frozen.above[rows], frozen.z[rows]
    return {
        target: conformal.scores(lo[:, i], hi[:, i], z[:, i]) for i, target in enumerate(LEARNED)
    }


def _offsets(
    site: Site, own: Offsets, groups: Sequence[tuple[str, ...]], correction: Correction
) -> Offsets:
    """Return the offsets of the site, its `own` where it measured and corrects."""
    shipped = site.shipped.model.offsets
    moved = {name for i, name in enumerate(LEARNED) if is_corrected(correction, i)}
    met = {name for names in groups for name in names}
    return Offsets(
        by_target={
            target: _merged(shipped.by_target[target], own.by_target[target], met)
            if target in moved
            else shipped.by_target[target]
            for target in LEARNED
        },
        n_cells={
            target: {**shipped.n_cells[target], **(own.n_cells[target] if target in moved else {})}
            for target in LEARNED
        },
    )


def is_corrected(correction: Correction, target: int) -> bool:
    """Tell whether a learned target is another than as shipped."""
    return bool(correction.shares[target] or correction.kernel.duals[:, target].any())


def _merged(
    shipped: Mapping[str, float], own: Mapping[str, float], met: Collection[str]
) -> dict[str, float]:
    """Return the site's offsets where it measured, the wider of both elsewhere."""
    overall = own.get(EVERYTHING, inf)
    if not isfinite(overall):
        return dict(shipped)
    wider = {name: max(offset, overall) for name, offset in shipped.items()}
    here = {name: own.get(name, overall) for name in met if name != EVERYTHING}
    return wider | here


def adapted(site: Site, rows: IntArray, alpha: float = conformal.ALPHA) -> CostModel:
    """Return the site's model from these rows; targets that they do not measure stay as shipped.

    `alpha` is the miscoverage that its intervals are calibrated for.
    """
    lesson = taught(site, rows, alpha)
    shipped = site.shipped.model
    support = widened(shipped.envelope, site.data.table.take(rows), site.cells[rows].tolist())
    return replace(
        shipped,
        site=lesson.correction,
        offsets=lesson.offsets,
        # hulls speak of what nobody measured: they stay as shipped
        envelope=replace(support, hulls=shipped.envelope.hulls),
    )
