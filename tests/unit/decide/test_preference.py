"""The pairwise fit finds the weights that users act by, and says when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated_choices import CURRENT, choices

from omnipilot_slurm.decide.preference import (
    FREEDOM,
    KEYS,
    MIN_PAIRS,
    MIN_USERS,
    Preferences,
    Preferred,
    Weighed,
    fit_preferences,
)


def fitted(pairs: list[Preferred], n_resamples: int = 60, **changes: Any) -> Preferences:
    n_users = len({pair.user for pair in pairs})
    rng = np.random.default_rng(1)
    resamples = rng.integers(0, max(1, n_users), size=(n_resamples, n_users))
    return fit_preferences(pairs, CURRENT, resamples, **changes)


def by_key(found: Preferences, key: str) -> Any:
    return next(weight for weight in found.weights if weight.key == key)


def test_users_to_whom_waiting_is_dearer_raise_its_weight() -> None:
    true = CURRENT | {"wait_usd_per_hour": 6.0}
    found = fitted(choices(400, true))
    wait = by_key(found, "wait_usd_per_hour")
    assert wait.is_sure
    assert wait.lo <= wait.fitted <= wait.hi
    assert 4.0 < found.proposed["wait_usd_per_hour"] < 9.0
    assert found.n_explained_after > found.n_explained_before


def test_users_who_act_by_the_weights_in_force_change_nothing() -> None:
    found = fitted(choices(300, CURRENT))
    assert all(0.5 < weight.fitted / weight.current < 2 for weight in found.weights)
    assert found.n_explained_before > 0.8 * found.n_pairs


def test_terms_shown_under_older_weights_are_brought_to_those_in_force() -> None:
    """The same choices tell the same, whatever weights were in force when they were made."""
    older = {key: 3 * weight for key, weight in CURRENT.items()}
    true = CURRENT | {"value_usd_per_output_token": 6e-6}
    now = fitted(choices(200, true), n_resamples=5)
    then = fitted(choices(200, true, shown=older), n_resamples=5)
    for one, other in zip(now.weights, then.weights, strict=True):
        assert one.fitted == pytest.approx(other.fitted, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "n_users"), [(MIN_PAIRS - 1, 10), (MIN_PAIRS * 10, MIN_USERS - 1), (0, 1)]
)
def test_few_pairs_or_few_users_propose_nothing(n: int, n_users: int) -> None:
    found = fitted(choices(n, CURRENT | {"wait_usd_per_hour": 50.0}, n_users=n_users))
    assert not found.is_enough
    assert found.proposed == {}
    assert found.n_explained_after == found.n_explained_before


def test_a_term_that_never_differs_is_never_sure() -> None:
    found = fitted(choices(100, CURRENT | {"wait_usd_per_hour": 6.0}))
    slo = by_key(found, "slo_miss_usd_per_hour")
    assert (slo.n_pairs, slo.is_sure) == (0, False)
    assert slo.fitted == slo.current == 10.0


def test_a_weight_that_was_zero_tells_nothing_of_what_it_should_be() -> None:
    pairs = choices(100, CURRENT, shown=CURRENT | {"wait_usd_per_hour": 0.0})
    assert by_key(fitted(pairs), "wait_usd_per_hour").n_pairs == 0


def test_the_stronger_the_prior_the_nearer_to_the_weights_in_force() -> None:
    pairs = choices(200, CURRENT | {"wait_usd_per_hour": 6.0})
    distances = [
        abs(np.log(by_key(fitted(pairs, 2, strength=strength), "wait_usd_per_hour").fitted))
        for strength in (0.1, 10.0, 1000.0)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2


def test_choices_that_nothing_explains_stay_within_a_factor_of_a_hundred() -> None:
    """Every user pays more for less: no weight explains that, and none runs away."""
    pairs = [
        Preferred(user=pair.user, option=pair.other, other=pair.option)
        for pair in choices(200, CURRENT, noise_usd=0.1)
    ]
    found = fitted(pairs, strength=1e-6)
    assert all(0.0099 <= weight.fitted / weight.current <= 100.1 for weight in found.weights)


@settings(max_examples=25, deadline=None)
@example(seed=256, n=14)
@example(seed=256, n=16)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 40))
def test_the_fit_is_a_minimum_of_the_loss_that_the_head_states(seed: int, n: int) -> None:
    pairs = choices(n, CURRENT | {"failed_launch_hours": 2.0}, seed=seed)
    found = fitted(pairs, n_resamples=1)

    def loss(weights: dict[str, float], sharpness: float = found.sharpness) -> float:
        total = 0.0
        for pair in pairs:
            more = worth(pair.option, weights) - worth(pair.other, weights)
            total += np.logaddexp(0.0, -sharpness * more / found.scale_usd)
        ratios = [np.log(weights[key] / CURRENT[key]) for key in KEYS]
        held = sum(ratio**2 for ratio in ratios) + FREEDOM * np.log(sharpness) ** 2
        return float(total + held / 2)

    best = {weight.key: weight.fitted for weight in found.weights}
    assert loss(best) <= loss(CURRENT, 1.0) + 1e-9
    for factor in (0.99, 1.01):
        # no further than a factor of 100 from 1
        sharpness = min(100.0, max(0.01, found.sharpness * factor))
        assert loss(best) <= loss(best, sharpness) + 1e-6
        for key in KEYS:
            assert loss(best) <= loss(best | {key: best[key] * factor}) + 1e-6


def worth(option: Weighed, weights: dict[str, float]) -> float:
    """Return an option's utility under other weights, by the formula of section 7."""
    terms, odds = option.terms_usd, (1 - option.p_launch) / option.p_launch
    wait_h = terms["wait"] / CURRENT["wait_usd_per_hour"]
    held_usd_h = (terms["failure"] - odds * terms["wait"]) / CURRENT["failed_launch_hours"]
    tokens = terms["value"] / CURRENT["value_usd_per_output_token"]
    return (
        weights["value_usd_per_output_token"] * tokens
        - terms["gpu_cost"]
        - weights["wait_usd_per_hour"] * wait_h * (1 + odds)
        - weights["failed_launch_hours"] * held_usd_h
    )
