"""Which benchmark to run next: what knowing an arm better is worth, for each GPU-hour it takes.

In: candidates, an arm at a workload each, with what its utility is believed to be. Out: their order
within a budget. Pure. Called by `omnipilot probe plan` and the site's report.

The knowledge gradient of one measurement (Frazier, Powell and Dayanik 2008; specification, section
8), beliefs independent and normal, best other arm of the workload at c:

    VOI(a) = E[max(mu_a + s Z, c)] - max(mu_a, c),  s = sigma^2 / sqrt(sigma^2 + noise^2)
    E[max(mu + s Z, c)] = c + (mu - c) Phi((mu - c) / s) + s phi((mu - c) / s)

It is 0 for an arm that is alone, or so far from the best that no result would change the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, pi, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NORMAL = NormalDist()
#: what no benchmark is run for: some 9 $ in a year of serving
WORTHLESS_USD_PER_H = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An arm that may be measured; `workload` names those it competes with.

    `mean_usd_per_h` and `spread_usd_per_h` are the belief in its utility, `noise_usd_per_h` the
    standard deviation of one measurement, `gpu_hours` what measuring takes.
    """

    workload: str
    mean_usd_per_h: float
    spread_usd_per_h: float
    noise_usd_per_h: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's position in the list, and what its measurement is worth in $/h of utility."""

    position: int
    worth_usd_per_h: float


def knowledge_gradient(one: Candidate, best_other_usd_per_h: float) -> float:
    """Return how much better the choice is expected to be after one measurement, $/h, >= 0."""
    total = hypot(one.spread_usd_per_h, one.noise_usd_per_h)
    if total == 0:
        return 0.0
    s = one.spread_usd_per_h**2 / total
    if s == 0:
        return 0.0
    ahead = one.mean_usd_per_h - best_other_usd_per_h
    z = ahead / s
    expected = ahead * _NORMAL.cdf(z) + s * exp(-z * z / 2) / sqrt(2 * pi)
    return max(expected - max(ahead, 0.0), 0.0)


def ranked(candidates: Sequence[Candidate], budget_gpu_hours: float) -> tuple[Ranked, ...]:
    """Return what to measure, most worth a GPU-hour first, as far as the budget goes.

    A candidate that the rest of the budget does not cover is passed over for cheaper ones; one that
    is worth next to nothing is left out.
    """
    worths = [
        Ranked(i, knowledge_gradient(one, _best_other(candidates, i)))
        for i, one in enumerate(candidates)
    ]
    order = sorted(
        (each for each in worths if each.worth_usd_per_h > WORTHLESS_USD_PER_H),
        key=lambda each: -each.worth_usd_per_h / candidates[each.position].gpu_hours,
    )
    chosen, left = [], budget_gpu_hours
    for each in order:
        cost = candidates[each.position].gpu_hours
        if cost <= left:
            chosen.append(each)
            left -= cost
    return tuple(chosen)


def _best_other(candidates: Sequence[Candidate], position: int) -> float:
    """Return the best mean of the others of a workload; -inf where there is none."""
    workload = candidates[position].workload
    return max(
        (
            one.mean_usd_per_h
            for i, one in enumerate(candidates)
            if i != position and one.workload == workload
        ),
        default=float("-inf"),
    )
