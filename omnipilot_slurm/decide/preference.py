"""Weights from what users preferred: a regularised pairwise fit (spec section 7, last paragraph).

In: pairs of options, one of which was preferred, each with the terms of its utility and the weights
under which they were computed; the weights in force; how pairs are drawn again. Out: the weights
that explain the choices better, with intervals. Called by `omnipilot tune`; numpy alone.

An option is worth U(w) = w_value * tokens - cost - w_slo * h_slo - w_wait * h_wait - w_fail * $/h,
linear in each of KEYS. Bradley-Terry: P(preferred over other) = 1 / (1 + exp(-(U - U') / s)) with s
the usual difference in cost, so that the cost of GPUs is the measure of all else. With m = w /
w_in_force, minimised is

    sum of ln(1 + exp(-(U - U') / s)) + strength / 2 * sum of (ln m)^2

by Fisher scoring from m = 1. Intervals are of a bootstrap over users, since one user's choices
resemble each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from omnipilot_slurm.decide.utility import P_FLOOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.site_settings import UtilitySettings

Floats = npt.NDArray[np.float64]
#: the keys of utility.yaml in which worth is linear, by the terms that they weigh
KEY_OF: Final = {
    "value": "value_usd_per_output_token",
    "slo": "slo_miss_usd_per_hour",
    "wait": "wait_usd_per_hour",
    "failure": "failed_launch_hours",
}
KEYS: Final = tuple(KEY_OF.values())
#: less than this is no evidence, whatever the intervals say
MIN_PAIRS: Final = 20
MIN_USERS: Final = 5
#: how much a factor of e away from a weight in force counts against it, 2 / strength choices
STRENGTH: Final = 1.0
#: no weight is proposed that is further than this factor from the one in force
_MOST: Final = float(np.log(100.0))
_LEVELS: Final = (0.1, 0.9)
_STEPS: Final = 100
_SMALL: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """An option: its utility_terms_usd, the probability that its launch comes up, the weights.

    `weights` are those under which the terms were computed, by the terms' names.
    """

    terms_usd: Mapping[str, float]
    p_launch: float
    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferred:
    """That a user preferred one option to another."""

    user: str
    option: Weighed
    other: Weighed


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeight:
    """One key: in force and fitted, with the 80 % interval; `n_pairs` tell the options apart by it.

    `is_sure`: the interval leaves out the weight in force.
    """

    key: str
    current: float
    fitted: float
    lo: float
    hi: float
    n_pairs: int
    is_sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the pairs come to; `proposed` holds the weights to change, refitted by themselves.

    `n_explained` counts the pairs of which the preferred option is worth more: with the weights in
    force, and with those proposed.
    """

    n_pairs: int
    n_users: int
    scale_usd: float
    weights: tuple[FittedWeight, ...]
    proposed: Mapping[str, float]
    n_explained_before: int
    n_explained_after: int

    @property
    def is_enough(self) -> bool:
        """Whether there are pairs and users enough for a proposal."""
        return self.n_pairs >= MIN_PAIRS and self.n_users >= MIN_USERS


def weights_of(settings: UtilitySettings) -> dict[str, float]:
    """Return the weights in force by the names of the terms that they weigh."""
    return {term: getattr(settings, key) for term, key in KEY_OF.items()}


def fit_preferences(
    pairs: Sequence[Preferred],
    current: Mapping[str, float],
    resamples: npt.NDArray[np.int64],
    *,
    strength: float = STRENGTH,
) -> Preferences:
    """Return the weights that explain pairs best without leaving those in force for little.

    `resamples` (n_resamples, n_users) holds indices of users, drawn with replacement. A weight of 0
    stays 0: nothing tells what it would be.
    """
    users = sorted({pair.user for pair in pairs})
    contrasts = np.array([_contrast(pair, current) for pair in pairs]).reshape(-1, len(KEYS) + 1)
    scale = _scale(contrasts)
    contrasts = contrasts / scale
    of_user = [np.flatnonzero([pair.user == user for pair in pairs]) for user in users]
    everything = np.arange(len(KEYS))
    log_m = _fitted(contrasts, everything, strength)
    drawn = np.array(
        [
            _fitted(
                contrasts[np.concatenate([of_user[user] for user in draw])], everything, strength
            )
            for draw in (resamples if users else ())
        ]
    ).reshape(-1, len(KEYS))
    weights = tuple(_weight(k, current, contrasts, log_m, drawn) for k in range(len(KEYS)))
    found = Preferences(
        n_pairs=len(pairs),
        n_users=len(users),
        scale_usd=scale,
        weights=weights,
        proposed={},
        n_explained_before=_n_explained(contrasts, np.zeros(len(KEYS))),
        n_explained_after=_n_explained(contrasts, np.zeros(len(KEYS))),
    )
    return _proposed(found, contrasts, strength) if found.is_enough else found


def _proposed(found: Preferences, contrasts: Floats, strength: float) -> Preferences:
    """Fit the sure weights alone: the others stay as they are in force."""
    sure = np.array([k for k, weight in enumerate(found.weights) if weight.is_sure], dtype=np.int64)
    log_m = _fitted(contrasts, sure, strength)
    proposed = {KEYS[k]: found.weights[k].current * float(np.exp(log_m[k])) for k in sure}
    return Preferences(
        n_pairs=found.n_pairs,
        n_users=found.n_users,
        scale_usd=found.scale_usd,
        weights=found.weights,
        proposed=proposed,
        n_explained_before=found.n_explained_before,
        n_explained_after=_n_explained(contrasts, log_m),
    )


def _contrast(pair: Preferred, current: Mapping[str, float]) -> Floats:
    """Return what the preferred option has more, $ at current weights: of each of KEYS, of cost."""
    return _parts(pair.option, current) - _parts(pair.other, current)


def _parts(option: Weighed, current: Mapping[str, float]) -> Floats:
    """Return the parts of an option's worth, of which its utility is the sum.

    A failed launch is tried again (1 - p) / p times: each waits, and holds its GPUs.
    """
    terms = option.terms_usd
    p_launch = max(option.p_launch, P_FLOOR)
    waits_again = (1.0 - p_launch) / p_launch * terms["wait"]
    parts = np.array(
        [
            terms["value"],
            -terms["slo"],
            -(terms["wait"] + waits_again),
            -(terms["failure"] - waits_again),
        ]
    )
    then = np.array([option.weights.get(term, 0.0) for term in KEY_OF])
    now = np.array([current[key] for key in KEYS])
    ratio = np.divide(now, then, out=np.zeros(len(KEYS)), where=then > 0)
    return np.append(parts * ratio, -terms["gpu_cost"])


def _scale(contrasts: Floats) -> float:
    """Return s: the median difference in cost, $, or 1 where nothing differs."""
    cost = np.abs(contrasts[:, -1])
    told = cost[cost > _SMALL]
    return float(np.median(told)) if len(told) else 1.0


def _fitted(contrasts: Floats, free: npt.NDArray[np.int64], strength: float) -> Floats:
    """Return ln m (n_keys,) at the minimum; keys that are not `free` stay 0."""
    log_m = np.zeros(len(KEYS))
    best = _loss(contrasts, log_m, strength)
    for _ in range(_STEPS if len(free) else 0):
        step = _step(contrasts, log_m, free, strength)
        size = 1.0
        while size > _SMALL:
            trial = log_m.copy()
            trial[free] = np.clip(log_m[free] + size * step, -_MOST, _MOST)
            loss = _loss(contrasts, trial, strength)
            if loss < best:
                break
            size /= 2
        else:
            break
        gained, best, log_m = best - loss, loss, trial
        if gained < _SMALL:
            break
    return log_m


def _step(contrasts: Floats, log_m: Floats, free: npt.NDArray[np.int64], strength: float) -> Floats:
    slopes = contrasts[:, free] * np.exp(log_m[free])
    p = _probability(_margin(contrasts, log_m))
    gradient = -slopes.T @ (1.0 - p) + strength * log_m[free]
    fisher = (slopes.T * (p * (1.0 - p))) @ slopes + strength * np.eye(len(free))
    return np.asarray(-np.linalg.solve(fisher, gradient), dtype=np.float64)


def _margin(contrasts: Floats, log_m: Floats) -> Floats:
    """Return how much more the preferred options are worth, in units of s."""
    return np.asarray(contrasts @ np.append(np.exp(log_m), 1.0), dtype=np.float64)


def _probability(margin: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(margin / 2))


def _loss(contrasts: Floats, log_m: Floats, strength: float) -> float:
    unlikely = np.logaddexp(0.0, -_margin(contrasts, log_m)).sum()
    return float(unlikely + strength / 2 * (log_m @ log_m))


def _n_explained(contrasts: Floats, log_m: Floats) -> int:
    return int((_margin(contrasts, log_m) > 0).sum())


def _weight(
    k: int, current: Mapping[str, float], contrasts: Floats, log_m: Floats, drawn: Floats
) -> FittedWeight:
    lo, hi = np.quantile(drawn[:, k], _LEVELS) if len(drawn) else (-_MOST, _MOST)
    weight = current[KEYS[k]]
    n_pairs = int((np.abs(contrasts[:, k]) > _SMALL).sum())
    return FittedWeight(
        key=KEYS[k],
        current=weight,
        fitted=weight * float(np.exp(log_m[k])),
        lo=weight * float(np.exp(lo)),
        hi=weight * float(np.exp(hi)),
        n_pairs=n_pairs,
        is_sure=n_pairs > 0 and not lo <= 0 <= hi,
    )
