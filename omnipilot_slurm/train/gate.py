"""Whether a site's new model may replace the one in force, target by target.

In: a site's rows, and which of them the model in force had learned from. Out: `Verdict`, one a
learned target. Called by `omnipilot adapt` and benchmarks/adapt.py.

Nothing is judged on rows that it was fitted on: cells go into folds, and for each fold both sides
are fitted without it, the new one on all other rows and the old one on those of them that it knew
(none: the shipped model as it is). A paired bootstrap over cells gives one-sided 95 % bounds of how
much worse the new one may be. Promoted is what is not inferior:

    error      upper bound of (new - old) mean absolute percentage error <= ERROR_MARGIN points
    coverage   upper bound of (new - old) shortfall of coverage below 0.8 <= COVERAGE_MARGIN
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import calibration_groups
from omnipilot_slurm.predict.support import IN, judge
from omnipilot_slurm.train.adapt import corrected, taught
from omnipilot_slurm.train.folds import grouped_folds

if TYPE_CHECKING:
    from omnipilot_slurm.predict.conformal import Offsets
    from omnipilot_slurm.predict.rows import BoolArray, FloatArray, IntArray, TextArray
    from omnipilot_slurm.train.adapt import Site

ERROR_MARGIN, COVERAGE_MARGIN = 1.0, 0.15
#: cells of a target below which nothing can be said
MIN_CELLS = 5
N_FOLDS = 5
NOMINAL = 0.8
_N_RESAMPLES, _LEVEL = 2000, 95.0


@dataclass(frozen=True, slots=True)
class Held:
    """What was said of rows not seen before: log centre and bounds, (n_rows, n_learned)."""

    mid: FloatArray
    lo: FloatArray
    hi: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one target; errors in percent, coverages as fractions of cells.

    `error_bound` and `coverage_bound` are the bounds of the differences; None: too few cells.
    """

    target: str
    n_rows: int
    n_cells: int
    old_mape: float
    new_mape: float
    old_coverage: float
    new_coverage: float
    error_bound: float | None
    coverage_bound: float | None

    @property
    def is_promoted(self) -> bool:
        """Whether the new model may replace the old one for this target."""
        return (
            self.error_bound is not None
            and self.coverage_bound is not None
            and self.error_bound <= ERROR_MARGIN
            and self.coverage_bound <= COVERAGE_MARGIN
        )

    @property
    def reason(self) -> str:
        """One clause that says why."""
        if self.error_bound is None or self.coverage_bound is None:
            return f"measured in {self.n_cells} cells, at least {MIN_CELLS} are needed"
        error = f"at most {self.error_bound:+.1f} points of error"
        coverage = f"at most {self.coverage_bound:+.2f} of coverage short"
        if self.is_promoted:
            return f"{error}, {coverage} (95 %)"
        wrong = []
        if self.error_bound > ERROR_MARGIN:
            wrong.append(f"{error}, allowed are {ERROR_MARGIN:+.1f}")
        if self.coverage_bound > COVERAGE_MARGIN:
            wrong.append(f"{coverage}, allowed are {COVERAGE_MARGIN:+.2f}")
        return "; ".join(wrong)


def judged(site: Site, rows: IntArray, known: BoolArray, seed: int = 0) -> tuple[Verdict, ...]:
    """Return a verdict a learned target; `known` (n_rows,) marks what the old model learned."""
    new, old = held_out(site, rows, np.ones(len(rows), dtype=bool)), held_out(site, rows, known)
    z, cells = site.shipped.z[rows], site.cells[rows]
    rng = np.random.default_rng(seed)
    verdicts = []
    for i, name in enumerate(LEARNED):
        seen = np.isfinite(z[:, i])
        sides = [_outcome(each, z, i, seen) for each in (old, new)]
        verdicts.append(_verdict(name, cells[seen], sides[0], sides[1], rng))
    return tuple(verdicts)


class _Outcome(NamedTuple):
    """Errors in percent and whether the interval held, (n_seen,)."""

    errors: FloatArray
    inside: BoolArray


def _outcome(held: Held, z: FloatArray, i: int, seen: BoolArray) -> _Outcome:
    true = z[seen, i]
    errors = 100 * np.abs(np.expm1(held.mid[seen, i] - true))
    return _Outcome(errors, (held.lo[seen, i] <= true) & (true <= held.hi[seen, i]))


def held_out(site: Site, rows: IntArray, known: BoolArray) -> Held:
    """Predict rows (positions) by what the known ones outside of their fold teach."""
    cells = site.cells[rows]
    folds = grouped_folds(cells, min(N_FOLDS, len(np.unique(cells))))
    mid = site.shipped.mid[rows].copy()
    offsets = _spread(site, rows, site.shipped.model.offsets)
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero((folds != fold) & known)
        if len(kept):
            lesson = taught(site, rows[kept])
            mid[held] = corrected(site, lesson.correction, rows[held])
            offsets[held] = _spread(site, rows[held], lesson.offsets)
    below = np.maximum(site.shipped.below[rows] + offsets, 0.0)
    above = np.maximum(site.shipped.above[rows] + offsets, 0.0)
    if not known.any():
        # the shipped model doubles its widths where the site's rows are off its support
        support = judge(site.data.table.take(rows), site.shipped.model.envelope)
        widen = np.where([each.tier == IN for each in support], 1.0, 2.0)[:, None]
        below, above = below * widen, above * widen
    return Held(mid, mid - below, mid + above)


def _spread(site: Site, rows: IntArray, offsets: Offsets) -> FloatArray:
    """Return the offset of every row and learned target."""
    groups = calibration_groups(site.data.table.take(rows))
    return np.array([[offsets.of(target, names) for target in LEARNED] for names in groups])


def _verdict(
    name: str, cells: TextArray, old: _Outcome, new: _Outcome, rng: np.random.Generator
) -> Verdict:
    names, index = np.unique(cells, return_inverse=True)
    error_bound = coverage_bound = None
    if len(names) >= MIN_CELLS:
        error_bound, coverage_bound = _bounds(old, new, index, rng)
    return Verdict(
        target=name,
        n_rows=len(cells),
        n_cells=len(names),
        old_mape=_mean(old.errors),
        new_mape=_mean(new.errors),
        old_coverage=_mean(old.inside),
        new_coverage=_mean(new.inside),
        error_bound=error_bound,
        coverage_bound=coverage_bound,
    )


def _mean(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _bounds(
    old: _Outcome, new: _Outcome, index: IntArray, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the upper bounds of the differences new - old, resampling whole cells."""
    rows = np.bincount(index)
    drawn = rng.integers(len(rows), size=(_N_RESAMPLES, len(rows)))
    n_drawn = rows[drawn].sum(axis=1)

    def resampled(values: FloatArray | BoolArray) -> FloatArray:
        means: FloatArray = np.bincount(index, weights=values)[drawn].sum(axis=1) / n_drawn
        return means

    worse = resampled(new.errors) - resampled(old.errors)
    short = [np.maximum(NOMINAL - resampled(each.inside), 0.0) for each in (new, old)]
    return float(np.percentile(worse, _LEVEL)), float(np.percentile(short[0] - short[1], _LEVEL))
