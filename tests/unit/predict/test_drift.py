"""Alarms are raised where the model no longer holds, and seldom where it does."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from omnipilot_slurm.predict.drift import (
    ALPHA_FROM,
    MIN_OUTCOMES,
    WINDOW,
    Group,
    Outcome,
    adapted_alpha,
    binomial_tail,
    drifts,
)

ARM = Group("output_tok_s", "h100|2", "0.11")


def series(
    n: int,
    *,
    bias: float = 0.0,
    inside: float = 0.8,
    group: Group = ARM,
    at: float = 0.0,
    seed: int = 0,
) -> list[Outcome]:
    rng = np.random.default_rng(seed)
    return [
        Outcome(group, at + i, float(rng.normal(bias, 0.05)), bool(rng.random() < inside))
        for i in range(n)
    ]


@given(st.integers(1, 60), st.data())
def test_the_tail_is_scipys(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert binomial_tail(k, n, 0.8) == pytest.approx(stats.binom.cdf(k, n, 0.8), rel=1e-9)


def test_a_model_that_holds_is_left_alone() -> None:
    n_alarms = sum(bool(drifts(series(40, seed=seed))[0].alarm) for seed in range(200))
    # each at most at 1 %: 200 of them at most 7 with 99.9 %
    assert n_alarms <= 7


def test_intervals_that_miss_raise_an_alarm() -> None:
    (found,) = drifts(series(40, inside=0.4))
    n_inside = round(found.coverage * found.n)
    assert found.alarm == f"{n_inside} of 40 inside their 80 % intervals"


def test_a_bias_raises_an_alarm_that_says_how_much() -> None:
    (found,) = drifts(series(20, bias=log(0.7)))
    assert found.alarm == f"measured {100 * (exp(found.bias) - 1):+.0f} % against predicted"
    assert found.bias == pytest.approx(log(0.7), abs=0.05)


def test_both_are_told() -> None:
    (found,) = drifts(series(30, bias=0.5, inside=0.0))
    assert found.alarm.count("; ") == 1


def test_few_outcomes_raise_no_alarm() -> None:
    (found,) = drifts(series(MIN_OUTCOMES - 1, bias=2.0, inside=0.0))
    assert (found.n, found.alarm) == (MIN_OUTCOMES - 1, "")


def test_only_the_last_outcomes_count() -> None:
    early = series(100, bias=2.0, inside=0.0)
    (found,) = drifts([*early, *series(WINDOW, at=1000.0)])
    assert (found.n, found.alarm, found.since) == (WINDOW, "", 0.0)


def test_an_upgrade_of_the_engine_opens_a_group_of_its_own() -> None:
    newer = ARM._replace(engine="0.12")
    found = drifts([*series(20, at=0.0), *series(20, bias=0.6, group=newer, at=100.0)])
    assert [(each.group.engine, each.is_new, bool(each.alarm)) for each in found] == [
        ("0.12", True, True),
        ("0.11", False, False),
    ]
    assert found[0].since == 100.0


def test_without_outcomes_there_is_no_drift() -> None:
    assert drifts([]) == ()


def test_alpha_stays_nominal_until_enough_outcomes_are_in() -> None:
    assert adapted_alpha(series(ALPHA_FROM - 1, inside=0.0)) == 0.2


@pytest.mark.parametrize(("inside", "n", "alpha"), [(0.0, 2000, 0.05), (1.0, 2000, 0.4)])
def test_alpha_moves_against_the_misses_within_its_range(
    inside: float, n: int, alpha: float
) -> None:
    assert adapted_alpha(series(n, inside=inside)) == pytest.approx(alpha, abs=0.006)


def test_alpha_is_steady_where_coverage_is() -> None:
    assert adapted_alpha(series(2000)) == pytest.approx(0.2, abs=0.06)
