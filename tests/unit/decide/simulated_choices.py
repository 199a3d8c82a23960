"""Users who choose between two runs by weights of their own, with some noise."""

from __future__ import annotations

import numpy as np

from omnipilot_slurm.decide.preference import Preferred, Weighed, weights_of
from omnipilot_slurm.decide.utility import Run, utility_terms
from omnipilot_slurm.records import Interval
from omnipilot_slurm.site_settings import UtilitySettings

CURRENT = {
    "value_usd_per_output_token": 2e-6,
    "slo_miss_usd_per_hour": 10.0,
    "wait_usd_per_hour": 1.0,
    "failed_launch_hours": 0.1,
}


def weighing(**changes: float) -> UtilitySettings:
    return UtilitySettings(
        **(CURRENT | changes),
        kv_knee=0.85,
        kv_slope=0.3,
        power_usd_per_kwh=None,
        pessimistic=False,
    )


def run(rng: np.random.Generator) -> Run:
    """One run of 8 h on a random arm: 1 to 8 GPUs at $1 to $4, up to a day in the queue."""
    rate = float(rng.uniform(200, 2500))
    return Run(
        n_gpus=int(rng.integers(1, 9)),
        price_usd_per_gpu_hour=float(rng.uniform(1, 4)),
        wall_h=8.0,
        cold_start_s=0.0,
        output_tok_s=Interval(lo=rate * 0.9, mid=rate, hi=rate * 1.1),
        p_ok=float(rng.uniform(0.5, 1)),
        wait_h=float(rng.exponential(4)),
    )


def weighed(one: Run, weights: dict[str, float]) -> Weighed:
    terms = utility_terms(one, weighing(**weights))
    names = ("value", "gpu_cost", "slo", "wait", "failure")
    return Weighed(
        terms_usd={name: getattr(terms, name) for name in names},
        p_launch=one.p_ok,
        weights=weights_of(weighing(**weights)),
    )


def choices(
    n: int,
    true: dict[str, float],
    *,
    n_users: int = 10,
    shown: dict[str, float] = CURRENT,
    noise_usd: float = 5.0,
    seed: int = 7,
) -> list[Preferred]:
    """Pairs of which users chose the one worth more by their own weights, with some noise."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(n):
        one, other = run(rng), run(rng)
        worths = [utility_terms(each, weighing(**true)).total for each in (one, other)]
        if worths[0] + rng.logistic(scale=noise_usd) < worths[1]:
            one, other = other, one
        user = f"user{number % n_users}"
        option, beaten = weighed(one, shown), weighed(other, shown)
        made.append(Preferred(user=user, option=option, other=beaten))
    return made
