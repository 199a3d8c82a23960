"""Weights from what users preferred: a regularised pairwise fit (spec section 7, last paragraph).

In: pairs of options, one of which was preferred, each with the terms of its utility and the weights
under which they were computed; the weights in force; how pairs are drawn again. Out: the weights
that explain the choices better, with intervals. Called by `omnipilot tune`; numpy alone.

An option is worth U(w) = w_value * tokens - cost - w_slo * h_slo - w_wait * h_wait - w_fail * $/h,
linear in each of KEYS. Bradley-Terry: P(preferred over other) = 1 / (1 + exp(-b (U - U') / s)) with
s the usual difference in cost and b how sharply users tell worth apart; the cost of GPUs is the
measure of all else. With m = w / w_in_force, minimised over m and b is

    sum of ln(1 + exp(-b (U - U') / s)) + strength / 2 * (sum of (ln m)^2 + FREEDOM (ln b)^2)

by Fisher scoring from m = b = 1. Of two 95 % intervals the outer ends are taken: of a bootstrap
over users, since one user's choices resemble each other, and of the fit's curvature, since few
users make a bootstrap too sure.
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
#: how much less the sharpness is held to 1 than the weights to those in force
FREEDOM: Final = 0.1
#: a weight is proposed if its interval leaves out the one in force, and it differs by this factor
MIN_FACTOR: Final = 1.5
#: nothing is fitted that is further than this factor from where it begins
_MOST: Final = float(np.log(100.0))
_LEVELS: Final = (0.025, 0.975)
_STEPS: Final = 100
_SMALL: Final = 1e-9
#: how many standard deviations a normal's 95 % interval reaches
_Z_95: Final = 1.959963984540054
#: ln m of each key and ln b
_START: Final = np.zeros(len(KEYS) + 1)


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
    """One key: in force and fitted, with the 95 % interval; `n_pairs` tell the options apart by it.

    `is_sure`: the interval leaves out the weight in force, and the fitted one is MIN_FACTOR away.
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

    `scale_usd` and `sharpness` are s and b of the fit.

    `n_explained` counts the pairs of which the preferred option is worth more: with the weights in
    force, and with those proposed.
    """

    n_pairs: int
    n_users: int
    scale_usd: float
    sharpness: float
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
    every = np.arange(len(KEYS))
    fit = _fitted(contrasts, every, strength)
    drawn = np.array(
        [
            _fitted(contrasts[np.concatenate([of_user[user] for user in draw])], every, strength)
            for draw in (resamples if users else ())
        ]
    ).reshape(-1, len(KEYS) + 1)
    _, curvature = _slopes(contrasts, fit, _held(strength))
    spread = np.sqrt(np.diag(np.linalg.inv(curvature)))
    weights = tuple(
        _weight(k, current[KEYS[k]], contrasts, fit, _ends(fit[k], spread[k], drawn[:, k]))
        for k in range(len(KEYS))
    )
    found = Preferences(
        n_pairs=len(pairs),
        n_users=len(users),
        scale_usd=scale,
        sharpness=float(np.exp(fit[-1])),
        weights=weights,
        proposed={},
        n_explained_before=_n_explained(contrasts, _START),
        n_explained_after=_n_explained(contrasts, _START),
    )
    return _proposed(found, contrasts, strength) if found.is_enough else found


def _proposed(found: Preferences, contrasts: Floats, strength: float) -> Preferences:
    """Fit the sure weights alone: the others stay as they are in force."""
    sure = np.array([k for k, weight in enumerate(found.weights) if weight.is_sure], dtype=np.int64)
    fit = _fitted(contrasts, sure, strength)
    proposed = {KEYS[k]: found.weights[k].current * float(np.exp(fit[k])) for k in sure}
    return Preferences(
        n_pairs=found.n_pairs,
        n_users=found.n_users,
        scale_usd=found.scale_usd,
        sharpness=found.sharpness,
        weights=found.weights,
        proposed=proposed,
        n_explained_before=found.n_explained_before,
        n_explained_after=_n_explained(contrasts, fit),
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
    """Return ln m and ln b (n_keys + 1,) at the minimum; ln m of keys not in `free` stays 0."""
    moved = np.append(free, len(KEYS))
    held = _held(strength)
    fit, best = _START, _loss(contrasts, _START, held)
    for _ in range(_STEPS):
        step = _step(contrasts, fit, moved, held)
        size = 1.0
        while size > _SMALL:
            trial = np.clip(fit + size * step, -_MOST, _MOST)
            loss = _loss(contrasts, trial, held)
            if loss < best:
                break
            size /= 2
        else:
            break
        gained, best, fit = best - loss, loss, trial
        if gained < _SMALL:
            break
    return fit


def _held(strength: float) -> Floats:
    """Return how strongly each of ln m and ln b is held to 0."""
    return strength * np.append(np.ones(len(KEYS)), FREEDOM)


def _step(contrasts: Floats, fit: Floats, moved: npt.NDArray[np.int64], held: Floats) -> Floats:
    """Return the step of Fisher scoring (n_keys + 1,): 0 of what is not moved, or would leave.

    What stands at its bound and is pulled outwards is not moved either: it would turn the step of
    the others away from their minimum.
    """
    gradient, fisher = _slopes(contrasts, fit, held)
    leaves = (np.abs(fit) >= _MOST) & (gradient * fit < 0)
    inside = moved[~leaves[moved]]
    step = np.zeros(len(fit))
    step[inside] = -np.linalg.solve(fisher[np.ix_(inside, inside)], gradient[inside])
    return step


def _slopes(contrasts: Floats, fit: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Return the gradient of the loss and its expected curvature, in ln m and ln b.

    The slope of the margin in ln b is the margin itself.
    """
    margin = _margin(contrasts, fit)
    slopes = np.column_stack([contrasts[:, :-1] * np.exp(fit[:-1] + fit[-1]), margin])
    p = 0.5 * (1.0 + np.tanh(margin / 2))
    gradient = -slopes.T @ (1.0 - p) + held * fit
    return gradient, (slopes.T * (p * (1.0 - p))) @ slopes + np.diag(held)


def _margin(contrasts: Floats, fit: Floats) -> Floats:
    """Return b (U - U') / s, how surely each preferred option is the better one."""
    weights = np.append(np.exp(fit[:-1]), 1.0)
    return np.asarray(np.exp(fit[-1]) * (contrasts @ weights), dtype=np.float64)


def _loss(contrasts: Floats, fit: Floats, held: Floats) -> float:
    unlikely = np.logaddexp(0.0, -_margin(contrasts, fit)).sum()
    return float(unlikely + (held * fit) @ fit / 2)


def _n_explained(contrasts: Floats, fit: Floats) -> int:
    return int((_margin(contrasts, fit) > 0).sum())


def _ends(fit: float, spread: float, drawn: Floats) -> tuple[float, float]:
    """Return the outer ends of an interval of the curvature and of the bootstrap, in ln m."""
    lo, hi = fit - _Z_95 * spread, fit + _Z_95 * spread
    drawn_lo, drawn_hi = np.quantile(drawn, _LEVELS) if len(drawn) else (lo, hi)
    return max(-_MOST, float(min(lo, drawn_lo))), min(_MOST, float(max(hi, drawn_hi)))


def _weight(
    k: int, current: float, contrasts: Floats, fit: Floats, ends: tuple[float, float]
) -> FittedWeight:
    lo, hi = ends
    is_far = bool(abs(fit[k]) > np.log(MIN_FACTOR))
    return FittedWeight(
        key=KEYS[k],
        current=current,
        fitted=current * float(np.exp(fit[k])),
        lo=current * float(np.exp(lo)),
        hi=current * float(np.exp(hi)),
        n_pairs=int((np.abs(contrasts[:, k]) > _SMALL).sum()),
        is_sure=is_far and not lo <= 0 <= hi,
    )
