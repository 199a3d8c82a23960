"""The launch prior on simulated sites: m is found again, and shrinking pays.

Groups of launches whose success rates are drawn from a Beta distribution of known m. The bands
were set before the seeds were run and are checked with fixed seeds.
"""

from __future__ import annotations

import math
import random
import statistics

import pytest

from omnipilot_slurm.decide.assumed import AssumedLaunches
from omnipilot_slurm.decide.success import (
    LaunchCounts,
    LaunchGroup,
    LaunchPriors,
    Outcomes,
    Probability,
    credible_interval,
    launch_priors,
    launch_probability,
)
from omnipilot_slurm.records import Arm

ASSUMED = AssumedLaunches(
    success_by_gpus={4: 0.9},
    prior_launches=20.0,
    prior_launches_lo=5.0,
    prior_launches_hi=100.0,
    history_days=365.0,
)
N_GROUPS = 60
SEEDS = range(15)


def site(seed: int, m: float, p0: float, n_launches: int) -> tuple[LaunchCounts, dict[str, float]]:
    """Return a site's counts and the true success rate of each of its groups."""
    rng = random.Random(seed)
    truth = {f"gpu-{i}": rng.betavariate(m * p0, m * (1 - p0)) for i in range(N_GROUPS)}
    counts = {}
    for gpu, p in truth.items():
        n_ok = sum(rng.random() < p for _ in range(n_launches))
        counts[LaunchGroup(4, gpu, 4, "bf16", "0.11")] = Outcomes(n_ok, n_launches - n_ok)
    return LaunchCounts(by_group=counts), truth


def estimate(priors: LaunchPriors, gpu: str) -> Probability:
    arm = Arm(partition=None, gpu=gpu, gres_type=None, n_gpus=4, tensor_parallel=4)
    return launch_probability(priors, arm, "0.11.0")


@pytest.mark.parametrize("m", [10.0, 20.0, 40.0])
@pytest.mark.parametrize("p0", [0.7, 0.9])
def test_m_is_found_again(m: float, p0: float) -> None:
    fitted = [launch_priors(ASSUMED, site(seed, m, p0, 60)[0]).m for seed in SEEDS]
    assert m / 1.4 <= statistics.median(fitted) <= m * 1.4


def test_a_shrunken_rate_is_nearer_to_the_truth_than_the_groups_own_or_the_pooled_one() -> None:
    errors: dict[str, float] = dict.fromkeys(("shrunken", "own", "pooled"), 0.0)
    for seed in SEEDS:
        counts, truth = site(seed, 20.0, 0.85, 15)
        priors = launch_priors(ASSUMED, counts)
        pooled = priors.all_sizes.n_ok / priors.all_sizes.n
        for group, outcomes in counts.by_group.items():
            p = truth[group.gpu]
            errors["shrunken"] += (estimate(priors, group.gpu).p - p) ** 2
            errors["own"] += (outcomes.n_ok / outcomes.n - p) ** 2
            errors["pooled"] += (pooled - p) ** 2
    assert errors["shrunken"] < 0.8 * min(errors["own"], errors["pooled"])


def test_the_credible_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    n_covered = n = 0
    for seed in SEEDS:
        counts, truth = site(seed, 20.0, 0.85, 60)
        priors = launch_priors(ASSUMED, counts)
        for gpu, p in truth.items():
            interval = credible_interval(estimate(priors, gpu))
            n_covered += interval.lo <= p <= interval.hi
            n += 1
    assert abs(n_covered / n - 0.8) <= 3.0 * math.sqrt(0.8 * 0.2 / n)
