"""The Beta distribution, as far as success rates need it: likelihood of counts, and quantiles.

In: parameters a, b > 0. Out: numbers. Called by success. Formulas of the NIST Digital Library of
Mathematical Functions, chapters 5.12 and 8.17; plain Python, so that the daemon needs no scipy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

_TINY: Final = 1e-300
_MAX_TERMS: Final = 2000
_MAX_STEPS: Final = 200


def log_beta(a: float, b: float) -> float:
    """Return ln B(a, b)."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def log_likelihood(n_ok: float, n_failed: float, a: float, b: float) -> float:
    """Return the beta-binomial log likelihood of counts, without the constant n choose k."""
    return log_beta(n_ok + a, n_failed + b) - log_beta(a, b)


def cdf(x: float, a: float, b: float) -> float:
    """Return I_x(a, b) = P(X <= x), the regularised incomplete beta function."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    # the fraction converges quickly below the mean; above it the other tail is summed (8.17.4)
    if x <= (a + 1.0) / (a + b + 2.0):
        return _tail(x, a, b)
    return 1.0 - _tail(1.0 - x, b, a)


@lru_cache(maxsize=4096)
def quantile(tau: float, a: float, b: float) -> float:
    """Return x with P(X <= x) = tau, to 1e-10; 0 < tau < 1.

    Newton's steps on the distribution function, halving the bracket where one leaves it.
    """
    lo, hi, x = 0.0, 1.0, a / (a + b)
    for _ in range(_MAX_STEPS):
        excess = cdf(x, a, b) - tau
        lo, hi = (lo, x) if excess > 0.0 else (x, hi)
        slope = math.exp(_log_power(x, a, b)) / (x * (1.0 - x))
        step = x - excess / slope if slope > 0.0 else -1.0
        following = step if lo < step < hi else (lo + hi) / 2.0
        if abs(following - x) < 1e-10 or not 0.0 < following < 1.0:  # noqa: PLR2004 (as above)
            return following
        x = following
    return x


def _tail(x: float, a: float, b: float) -> float:
    """Return I_x(a, b) by DLMF 8.17.22."""
    return math.exp(_log_power(x, a, b)) * _continued_fraction(x, a, b) / a


def _log_power(x: float, a: float, b: float) -> float:
    """Return ln(x^a (1 - x)^b / B(a, b))."""
    return a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Return the fraction in 8.17.22 by Lentz's method."""
    d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    c, value = 1.0, d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-13:  # noqa: PLR2004 (near what a double can tell apart)
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
