"""The knowledge gradient is the expected gain of the choice, and budgets are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.predict.probing import Candidate, Ranked, knowledge_gradient, ranked

USD = st.floats(-50, 50)
SPREAD = st.floats(0, 20)


def candidate(mean: float = 0.0, spread: float = 1.0, **changes: object) -> Candidate:
    facts: dict[str, object] = {
        "workload": "w",
        "mean_usd_per_h": mean,
        "spread_usd_per_h": spread,
        "noise_usd_per_h": 0.1,
        "gpu_hours": 1.0,
    }
    return Candidate(**(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("mean", "spread", "best"), [(1.0, 2.0, 1.5), (3.0, 1.0, 1.0), (0, 5, 9)])
def test_it_is_the_expected_gain_of_the_choice(mean: float, spread: float, best: float) -> None:
    rng = np.random.default_rng(1)
    one = candidate(mean, spread)
    s = spread**2 / np.hypot(spread, 0.1)
    drawn = np.maximum(mean + s * rng.normal(size=400_000), best) - max(mean, best)
    # four standard errors of the simulation
    assert knowledge_gradient(one, best) == pytest.approx(
        drawn.mean(), abs=4 * drawn.std() / drawn.size**0.5
    )


@given(USD, SPREAD, USD)
def test_knowing_more_never_costs(mean: float, spread: float, best: float) -> None:
    assert knowledge_gradient(candidate(mean, spread), best) >= 0


@given(USD, USD)
def test_what_is_known_is_worth_nothing(mean: float, best: float) -> None:
    assert knowledge_gradient(candidate(mean, 0.0), best) == 0.0
    assert knowledge_gradient(candidate(mean, 0.0, noise_usd_per_h=0.0), best) == 0.0


def test_an_arm_without_a_rival_or_far_behind_is_not_measured() -> None:
    alone = candidate(5, 3, workload="other")
    assert ranked([candidate(100, 1), candidate(0, 1), alone], 10) == ()


def test_the_most_worth_a_gpu_hour_comes_first_within_the_budget() -> None:
    dear = candidate(1.0, 2.0, gpu_hours=8.0)
    cheap = candidate(1.0, 2.0, gpu_hours=1.0)
    doubtful = candidate(1.0, 4.0, gpu_hours=1.0)
    order = [each.position for each in ranked([dear, cheap, doubtful], 100)]
    assert order == [2, 1, 0]
    assert [each.position for each in ranked([dear, cheap, doubtful], 2.5)] == [2, 1]
    assert ranked([dear, cheap, doubtful], 0.5) == ()


def test_worth_is_told_in_dollars_an_hour() -> None:
    (first, second) = ranked([candidate(0.0, 1.0, noise_usd_per_h=0.0), candidate(0.0, 0.5)], 9)
    # s phi(0) for two arms that are level
    assert first == Ranked(0, pytest.approx(0.39894, abs=1e-5))
    assert second.position == 1
