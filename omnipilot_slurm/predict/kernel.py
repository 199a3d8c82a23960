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
    from omnipilot_slurm.predict.rows import (
        Float32Array,
        FloatArray,
        IntArray,
        RealArray,
    )


#: rows looked at together, and multiplications of one matrix product: at most as many as OpenBLAS
#: does without waking threads, which on a busy machine wait for each other many times longer
_ROWS, _PRODUCTS = 64, 2**18


@dataclass(frozen=True, slots=True)
class Kernel:
    """Measured rows in scaled columns, and their duals.

    `used` (n_used,) are the columns that count, `origin` and `scales` (n_used,) shift and scale
    them. `anchors` (n_used + 2, n_anchors) are the measured rows so scaled, as `facing` lays them
    out; `duals` (n_anchors, n_targets), `means` (n_targets,). A row without a target has the dual
    0 for it. Likenesses are taken in 32 bit around the origin, which changes a value by some 1e-5
    and halves the time.
    """

    used: IntArray
    origin: FloatArray
    scales: FloatArray
    anchors: Float32Array
    duals: Float32Array
    means: FloatArray

    def smooth(self, matrix: FloatArray) -> Smoothed:
        """Return values and densities of rows of the feature matrix."""
        scaled = (matrix[:, self.used] - self.origin) * self.scales
        rows = looking(scaled.astype(np.float32))
        values = np.tile(self.means, (len(rows), 1))
        density = np.zeros(values.shape)
        has_target = (self.duals != 0).astype(np.float32)
        for start in range(0, len(rows), _ROWS):
            some = slice(start, start + _ROWS)
            step = max(_PRODUCTS // rows[some].size, 1)
            for at in range(0, len(self.duals), step):
                near = slice(at, at + step)
                alike = likeness(rows[some], self.anchors[:, near])
                values[some] += alike @ self.duals[near]
                density[some] += density_of(alike, has_target[near])
        return Smoothed(values, density)


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Values and how much was measured nearby (`density_of`), both (n_rows, n_targets)."""

    values: FloatArray
    density: FloatArray


def looking(rows: RealArray) -> RealArray:
    """Return scaled rows (n_rows, n) as (n_rows, n + 2), to be multiplied with `facing` ones.

    1 + |a - b|^2 / 2 = (1 + |b|^2 / 2) + |a|^2 / 2 - a b is then one matrix product.
    """
    half = np.square(rows).sum(axis=1, keepdims=True) / 2
    return np.hstack([rows, np.ones_like(half), half])


def facing(anchors: RealArray) -> RealArray:
    """Return scaled anchors (n_anchors, n) as (n + 2, n_anchors), the other side of `looking`."""
    half = np.square(anchors).sum(axis=1, keepdims=True) / 2
    return np.ascontiguousarray(np.hstack([-anchors, 1 + half, np.ones_like(half)]).T)


def likeness(rows: RealArray, anchors: RealArray) -> RealArray:
    """Return k (n_rows, n_anchors) between rows (`looking`) and anchors (`facing`)."""
    alike = rows @ anchors
    np.maximum(alike, 1.0, out=alike)
    np.reciprocal(alike, out=alike)
    return alike


def density_of(alike: RealArray, has_target: RealArray) -> RealArray:
    """Return the sum of likeness**4 over the anchors with the target, (n_rows, n_targets).

    `alike` (n_rows, n_anchors), `has_target` (n_anchors, n_targets) of 0 and 1.
    """
    sharp = np.square(alike)
    np.square(sharp, out=sharp)
    near: RealArray = sharp @ has_target
    return near
