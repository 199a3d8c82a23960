"""When a benchmark has been repeated often enough.

In: the figures of its rounds. Out: the half-width of Student's interval, relative to their mean.
Pure. Called by a probe's task.
"""

from __future__ import annotations

from math import inf, sqrt
from statistics import mean, stdev
from typing import TYPE_CHECKING

from omnipilot_slurm.decide import beta

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.95
#: rounds below which nothing is said of their scatter
MIN_ROUNDS = 3


def student_t(level: float, freedom: int) -> float:
    """Return t with P(|T| <= t) = level for `freedom` > 0 degrees of freedom.

    T^2 / (freedom + T^2) is Beta(1/2, freedom / 2) distributed.
    """
    x = beta.quantile(level, 0.5, freedom / 2)
    return sqrt(freedom * x / (1 - x))


def half_width_frac(values: Sequence[float], level: float = LEVEL) -> float:
    """Return the half-width of the mean's interval as a fraction of it; inf below MIN_ROUNDS."""
    if len(values) < MIN_ROUNDS or mean(values) <= 0:
        return inf
    half = student_t(level, len(values) - 1) * stdev(values) / sqrt(len(values))
    return half / mean(values)
