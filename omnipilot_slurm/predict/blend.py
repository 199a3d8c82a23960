"""The centre of a prediction: kernel and forest averaged, and how far to trust it.

In: the values of both and the density of measured rows. Out: `Centre`, and the columns that the
boosted quantiles read beside the features. Called by the predictor and by train/fit.py, which
gives it values out of fold.

Kernel and forest err apart: one bridges jumps of the engine smoothly, the other cuts smooth curves
into steps. Where they disagree, or nothing alike was measured, the quantiles spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FloatArray

_NOTHING_NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class Centre:
    """Log residuals before the quantiles, and their trust, each of shape (n_rows, n_targets)."""

    value: FloatArray
    gap: FloatArray
    log_density: FloatArray

    def beside(self, matrix: FloatArray) -> FloatArray:
        """Return the feature matrix with these columns appended, in 32-bit precision."""
        columns = np.hstack([matrix, self.value, self.gap, self.log_density])
        return columns.astype(np.float32).astype(np.float64)


def centre(
    kernel: FloatArray, forest: FloatArray, density: FloatArray, shares: FloatArray
) -> Centre:
    """Blend values of shape (n_rows, n_targets), a share (n_targets,) in [0, 1] of the kernel's.

    `density` (n_rows, n_targets) is that of the kernel.
    """
    return Centre(
        value=shares * kernel + (1 - shares) * forest,
        gap=np.abs(kernel - forest),
        log_density=np.log(density + _NOTHING_NEAR),
    )
