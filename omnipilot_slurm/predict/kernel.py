"""Kernel smoother: what near neighbours measured, weighed by likeness over all columns at once.

In: feature rows. Out: a value a target, and how like the nearest measured row is. It interpolates
along the curves that trees cut into steps (a workload at another concurrency, an arm with twice the
GPUs), and falls back to the roofline where nothing is near.

    k(a, b) = 1 / (1 + |s (a - b)|^2 / 2),   value = mean_t + sum_i k(x, x_i) dual[i, t]

is the rational quadratic kernel (alpha = 1; Rasmussen and Williams 2006, section 4.2) with one
scale s a column; the duals come from kernel ridge regression (train/kernel_fit.py). One kernel
serves every target, so a prediction costs one matrix of likenesses. Called by the predictor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Kernel:
    """Measured rows in scaled columns, and their duals.

    `used` (n_used,) are the columns that count, `scales` (n_used,) their factors, `anchors`
    (n_anchors, n_used) the measured rows times the factors, `duals` (n_anchors, n_targets),
    `means` (n_targets,). A row without a target has the dual 0 for it.
    """

    used: IntArray
    scales: FloatArray
    anchors: FloatArray
    duals: FloatArray
    means: FloatArray

    def likeness(self, matrix: FloatArray) -> FloatArray:
        """Return k of shape (n_rows, n_anchors), in (0, 1], for rows of the feature matrix."""
        return likeness(matrix[:, self.used] * self.scales, self.anchors)

    def values(self, alike: FloatArray) -> FloatArray:
        """Return the smoothed values of shape (n_rows, n_targets) from the likenesses."""
        return self.means + alike @ self.duals


def likeness(rows: FloatArray, anchors: FloatArray) -> FloatArray:
    """Return k between scaled rows (n_rows, n) and scaled anchors (n_anchors, n)."""
    squares = np.square(rows).sum(axis=1)[:, None] + np.square(anchors).sum(axis=1)
    distance = squares - 2 * (rows @ anchors.T)
    np.maximum(distance, 0.0, out=distance)
    alike: FloatArray = 1 / (1 + distance / 2)
    return alike
