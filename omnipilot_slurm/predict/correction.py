"""What a site's own rows say of the shipped model: added to its centre, in log space.

In: values of the shipped model for rows, and the roofline as the site's rows have it. Out: what to
add. Called by the predictor; train/correct.py fits it. A blend of two priors and a smoother:

    shift = share (ln site roofline / base - ln shipped mid / base) + what the kernel adds

The kernel's mean is the site-wide part, shrunken towards 0; away from the site's rows only that and
the share of the site's roofline remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.predict.kernel import Kernel
    from omnipilot_slurm.predict.roofline import Coefficients
    from omnipilot_slurm.predict.rows import FloatArray


@dataclass(frozen=True, slots=True)
class Correction:
    """The site's roofline, its share (n_learned,) in [0, 1], and a kernel of what is left.

    A learned target that the site has not measured, or that its rows do not improve, has the share
    0, the mean 0 and duals 0: it stays as shipped.
    """

    coefficients: Coefficients
    shares: FloatArray
    kernel: Kernel

    def shift(
        self, site_roofline: FloatArray, shipped: FloatArray, matrix: FloatArray
    ) -> FloatArray:
        """Return what to add (n_rows, n_learned) to shipped log residuals of the same shape.

        `site_roofline` (n_rows, n_learned) are log residuals of the site's roofline to the same
        base; `matrix` the shipped model's features.
        """
        added = self.kernel.smooth(matrix).values
        return self.shares * (site_roofline - shipped) + added
