"""Whether the model still holds for what is measured now, and the miscoverage to aim at.

In: outcomes in order of time, each what was predicted and what came. Out: `Drift`, one a group; the
adapted alpha. Pure. Called by train/site_drift.py.

A group is a target on an arm under one minor version of the engine: an upgrade opens a group of its
own, since versions differ by x1.1 at the median and x1.6 at the 90th percentile. Over the last
WINDOW outcomes an alarm is raised where so little coverage has a probability below ALARM_P if the
interval held (binomial), or where the mean of ln(measured / predicted) is beyond BIAS with its
Student interval wholly so.

Adaptive conformal inference (Gibbs and Candes 2021; specification, section 4):
alpha <- alpha + gamma (alpha* - miss), clipped, off until enough outcomes are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, expm1, log, sqrt
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.predict.conformal import ALPHA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WINDOW, MIN_OUTCOMES = 50, 8
ALARM_P = 0.01
#: bias that matters, in log space: a tenth
BIAS = log(1.1)
GAMMA, ALPHA_RANGE, ALPHA_FROM = 0.005, (0.05, 0.4), 50
#: standard errors of the mean on either side, as of Student's t at 99 % for eight outcomes
_SIDE = 3.5


class Group(NamedTuple):
    """What outcomes are compared within; `engine` is a minor version, "" where it is not known."""

    target: str
    arm: str
    engine: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prediction and what came: `log_miss` is ln(measured / predicted)."""

    group: Group
    at: float
    log_miss: float
    is_inside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The last outcomes of a group; `bias` is the mean of ln(measured / predicted).

    `alarm` says what is wrong, "" where nothing is, or too few outcomes are in. `is_new` marks the
    group that an upgrade of the engine opened, `since` its first outcome (Unix time, s).
    """

    group: Group
    n: int
    coverage: float
    bias: float
    alarm: str
    is_new: bool
    since: float


def drifts(outcomes: Iterable[Outcome]) -> tuple[Drift, ...]:
    """Return the drift of every group, alarms first, then by target, arm and engine."""
    groups: dict[Group, list[Outcome]] = {}
    for each in sorted(outcomes, key=lambda one: one.at):
        groups.setdefault(each.group, []).append(each)
    begun = {group: members[0].at for group, members in groups.items()}
    found = [_drift(group, members, begun) for group, members in groups.items()]
    return tuple(sorted(found, key=lambda each: (not each.alarm, each.group)))


def _drift(group: Group, members: Sequence[Outcome], begun: dict[Group, float]) -> Drift:
    last = members[-WINDOW:]
    misses = [each.log_miss for each in last]
    n_inside = sum(each.is_inside for each in last)
    older = (
        other
        for other, at in begun.items()
        if other[:2] == group[:2] and other != group and at < begun[group]
    )
    return Drift(
        group=group,
        n=len(last),
        coverage=n_inside / len(last),
        bias=mean(misses),
        alarm="; ".join([*_coverage_alarm(n_inside, len(last)), *_bias_alarm(misses)]),
        is_new=any(older),
        since=begun[group],
    )


def _coverage_alarm(n_inside: int, n: int) -> list[str]:
    if n < MIN_OUTCOMES or binomial_tail(n_inside, n, 1 - ALPHA) >= ALARM_P:
        return []
    return [f"{n_inside} of {n} inside their 80 % intervals"]


def _bias_alarm(misses: Sequence[float]) -> list[str]:
    if len(misses) < MIN_OUTCOMES:
        return []
    side = _SIDE * stdev(misses) / sqrt(len(misses))
    if abs(mean(misses)) - side <= BIAS:
        return []
    return [f"measured {100 * expm1(mean(misses)):+.0f} % against predicted"]


def binomial_tail(k: int, n: int, p: float) -> float:
    """Return P(X <= k) of n trials with probability p."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def adapted_alpha(outcomes: Iterable[Outcome]) -> float:
    """Return the miscoverage to calibrate for after these outcomes, the nominal one for few."""
    misses = [not each.is_inside for each in sorted(outcomes, key=lambda one: one.at)]
    alpha = ALPHA
    if len(misses) < ALPHA_FROM:
        return alpha
    for miss in misses:
        alpha = min(max(alpha + GAMMA * (ALPHA - miss), ALPHA_RANGE[0]), ALPHA_RANGE[1])
    return alpha
