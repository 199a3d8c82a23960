"""Success rates' distribution agrees with scipy's, which the daemon does without."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from omnipilot_slurm.decide import beta

PARAMETERS = st.floats(-2.0, 4.0).map(lambda exponent: 10.0**exponent)
#: below 0.1 the distribution is so flat in the middle that its quantiles are any number
STEEP = st.floats(-1.0, 4.0).map(lambda exponent: 10.0**exponent)
LEVELS = st.sampled_from([0.025, 0.1, 0.5, 0.9, 0.975])


@given(x=st.floats(0.0, 1.0, allow_subnormal=False), a=PARAMETERS, b=PARAMETERS)
def test_the_distribution_function_is_scipys(x: float, a: float, b: float) -> None:
    assert beta.cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-9)


@given(tau=LEVELS, a=STEEP, b=STEEP)
def test_quantiles_are_scipys(tau: float, a: float, b: float) -> None:
    assert beta.quantile(tau, a, b) == pytest.approx(special.betaincinv(a, b, tau), abs=5e-8)


@given(n_ok=st.integers(0, 200), n_failed=st.integers(0, 200), a=PARAMETERS, b=PARAMETERS)
def test_the_likelihood_of_counts_is_scipys(n_ok: int, n_failed: int, a: float, b: float) -> None:
    n = n_ok + n_failed
    expected = stats.betabinom.logpmf(n_ok, n, a, b) - math.log(math.comb(n, n_ok))
    assert beta.log_likelihood(n_ok, n_failed, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-7)
