"""Score predictions out of fold: error, coverage and width, by target and group.

In: measured values, bounds. Out: `Score` records. Called by evaluate's table, the benchmark and the
report.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.predictor import Bounds
    from omnipilot_slurm.predict.rows import BoolArray, FloatArray, TextArray

#: nominal coverage of every interval
COVERAGE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors in percent, averaged over rows; coverage over rows and over cells; hi / lo median."""

    n_rows: int
    n_cells: int
    mape: float
    median: float
    log_r2: float
    coverage: float
    cell_coverage: float
    width: float

    @property
    def standard_error(self) -> float:
        """The binomial standard error of the nominal coverage, counted in cells."""
        return sqrt(COVERAGE * (1 - COVERAGE) / max(self.n_cells, 1))


def score(
    measured: FloatArray, bounds: Bounds, cells: TextArray, chosen: BoolArray | None = None
) -> Score | None:
    """Return the score of the rows that are measured, answered and chosen; None without any."""
    rows = np.isfinite(measured) & np.isfinite(bounds.mid)
    if chosen is not None:
        rows &= chosen
    if not rows.any():
        return None
    true, lo, mid, hi = (values[rows] for values in (measured, bounds.lo, bounds.mid, bounds.hi))
    error = 100 * np.abs(mid / true - 1)
    inside = (lo <= true) & (true <= hi)
    _, index, counts = np.unique(cells[rows], return_inverse=True, return_counts=True)
    missed = np.log(true / mid)
    return Score(
        n_rows=int(rows.sum()),
        n_cells=len(counts),
        mape=float(error.mean()),
        median=float(np.median(error)),
        log_r2=float(1 - (missed**2).sum() / (np.log(true) - np.log(true).mean()).var() / len(true))
        if len(true) > 1 and np.log(true).var() > 0
        else float("nan"),
        coverage=float(inside.mean()),
        cell_coverage=float(np.average(inside, weights=1 / counts[index])),
        width=float(np.median(hi / lo)),
    )
