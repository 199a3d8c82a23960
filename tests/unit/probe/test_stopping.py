"""Rounds are repeated until Student's interval of their mean is narrow."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from omnipilot_slurm.probe.stopping import half_width_frac, student_t


@given(st.floats(0.5, 0.999), st.integers(1, 200))
def test_students_t_is_scipys(level: float, freedom: int) -> None:
    assert student_t(level, freedom) == pytest.approx(
        stats.t.ppf((1 + level) / 2, freedom), rel=1e-6
    )


def test_the_width_is_that_of_the_textbook() -> None:
    # t(0.975, 2) = 4.303; mean 100, standard deviation 1
    assert half_width_frac([99.0, 100.0, 101.0]) == pytest.approx(4.3027 / 3**0.5 / 100, rel=1e-4)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0], [0.0, 0.0, 0.0]])
def test_too_few_rounds_are_never_narrow(values: list[float]) -> None:
    assert half_width_frac(values) == inf
