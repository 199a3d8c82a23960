"""How likely a launch comes up that has passed every check: the site's outcomes, shrunk.

In: what priors.yaml assumes and the site's LaunchCounts, once a state; then an arm and its engine
version. Out: a Probability and the launches it rests on. Called where a Site is made
(launch_priors) and by decide for each arm (launch_probability). Specification, section 6.3:

    p = (s + m p0) / (n + m)

s of the n launches in the arm's own group came up. p0 is the same estimate for the next wider
group, made of the launches outside the own one, so that each launch counts once. The groups,
narrowest first: the arm with its engine's minor version (one that is not known is one, too); the
arm; its GPU and their number; the number of GPUs. Beyond them p0 is what priors.yaml assumes for
that number, whose failure rate is scaled by the ratio of failures seen to failures assumed among
launches of other sizes (indirect standardisation). m is how many launches a p0 counts for: the one
under which the groups foretell each other best (beta-binomial likelihood), or the assumed one while
there are few groups.

Launches of one group resemble each other, so that in a wider group n of them tell as much as
n (m + 1) / (n + m) independent ones, m + 1 at most (the design effect of the beta-binomial): one
arm that always fails does not condemn its neighbours.

Counts are of launches that passed the checks: else one failure would be charged twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnipilot_slurm.decide import beta
from omnipilot_slurm.decide.assumed import at_size
from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnipilot_slurm.decide.assumed import AssumedLaunches
    from omnipilot_slurm.records import Arm

#: m is fitted from so many groups on; a group of one launch says nothing about it
MIN_GROUPS: Final = 10
_MIN_LAUNCHES: Final = 2
#: m is chosen among so many values, equally far apart as ratios
_N_CANDIDATES: Final = 21
#: what scaling makes of an assumed failure rate at most
_MAX_FAILURE_RATE: Final = 0.98
_MINOR: Final = re.compile(r"v?(\d+\.\d+)(?![\d])")


class LaunchGroup(NamedTuple):
    """Launches that count as alike; `engine` is vLLM's major.minor, None where it is not known."""

    n_gpus: int
    gpu: str
    tensor_parallel: int
    precision: str
    engine: str | None


#: how many fields of a LaunchGroup tell groups of each width apart, the narrowest first
_WIDTHS: Final = (5, 4, 2, 1)
#: and what is said of them
_NAMES: Final = (
    "of this arm with vLLM {4}",
    "of this arm",
    "on {0}x {1}",
    "on {0} GPUs",
)
_ELSEWHERE: Final = "on other numbers of GPUs"


class Outcomes(NamedTuple):
    """How many launches came up and how many did not; fractions where they were weighed."""

    n_ok: float
    n_failed: float

    @property
    def n(self) -> float:
        """How many launches there were."""
        return self.n_ok + self.n_failed


_NONE: Final = Outcomes(0, 0)
_Table = dict[tuple[Any, ...], Outcomes]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCounts:
    """The site's own launches that passed the checks, by group."""

    by_group: Mapping[LaunchGroup, Outcomes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probability:
    """That a launch comes up: the mean `p` of Beta(`a`, `b`).

    `n` launches of the narrowest group that has any stand behind it, as `source` says; `assumed`
    where the site has none of any kind.
    """

    p: float
    a: float
    b: float
    n: int
    assumed: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPriors:
    """What launch_probability looks up; `is_fitted` tells whether `m` is the site's own.

    `by_group` has the probability of each group that was seen, a wider one's holding for what was
    not seen of it. Of sizes never seen the assumed failure rate is scaled by `failure_ratio`.
    """

    assumed: AssumedLaunches
    m: float
    is_fitted: bool
    by_group: Mapping[tuple[Any, ...], Probability]
    failure_ratio: float
    all_sizes: Outcomes


def launch_probability(priors: LaunchPriors, arm: Arm, engine_version: str | None) -> Probability:
    """Return the probability that a server which passed the checks comes up on an arm."""
    engine = minor_version(engine_version)
    group = (arm.n_gpus, arm.gpu, arm.tensor_parallel, arm.precision, engine)
    for width in _WIDTHS:
        found = priors.by_group.get(group[:width])
        if found is not None:
            return found
    p = 1.0 - _scaled(priors.assumed, arm.n_gpus, priors.failure_ratio)
    return _probability(priors.m * p, priors.m * (1.0 - p), priors.all_sizes, _ELSEWHERE)


def credible_interval(probability: Probability, *, mass: float = 0.8) -> Interval:
    """Return the equal-tailed interval, stretched to the mean where a skewed one leaves it out.

    It takes p0 and m as known, which is a few percent too narrow while the groups are few. Costs
    some tens of us the first time: for arms that are spoken of.
    """
    tail = (1.0 - mass) / 2.0
    lo = beta.quantile(tail, probability.a, probability.b)
    hi = beta.quantile(1.0 - tail, probability.a, probability.b)
    return Interval(lo=min(lo, probability.p), mid=probability.p, hi=max(hi, probability.p))


def minor_version(version: str | None) -> str | None:
    """Return major.minor of a version, None for what has none (`nightly`)."""
    match = _MINOR.match(version or "")
    return match[1] if match else None


def launch_priors(assumed: AssumedLaunches, counts: LaunchCounts) -> LaunchPriors:
    """Return a site's priors: m, and the probability of every group that was seen.

    Some hundred ms for some hundred groups: for the thread that loads, when outcomes are new.
    """
    seen = {group: outcomes for group, outcomes in counts.by_group.items() if outcomes.n}
    is_fitted = sum(outcomes.n >= _MIN_LAUNCHES for outcomes in seen.values()) >= MIN_GROUPS
    lo, hi = assumed.prior_launches_lo, assumed.prior_launches_hi
    steps = [lo * (hi / lo) ** (i / (_N_CANDIDATES - 1)) for i in range(_N_CANDIDATES)]
    candidates = [
        _Shrinkage.of(assumed, seen, m) for m in (steps if is_fitted else [assumed.prior_launches])
    ]
    best = max(candidates, key=_Shrinkage.log_likelihood)
    return LaunchPriors(
        assumed=assumed,
        m=best.m,
        is_fitted=is_fitted,
        by_group=dict(best.probabilities()),
        failure_ratio=best.failure_ratio(_NONE, 0.0),
        all_sizes=_summed(seen, 0).get((), _NONE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shrinkage:
    """The estimate under one m; tables hold the groups of one width each, the narrowest first.

    `counted` are outcomes as counted, `weighed` what a group's parts tell of it together, `told`
    what it tells of the next wider one. `site` is what all sizes tell, `expected_failures` how many
    of those launches would have failed as assumed.
    """

    assumed: AssumedLaunches
    m: float
    counted: tuple[_Table, ...]
    weighed: tuple[_Table, ...]
    told: tuple[_Table, ...]
    site: Outcomes
    expected_failures: float

    @classmethod
    def of(
        cls, assumed: AssumedLaunches, seen: Mapping[LaunchGroup, Outcomes], m: float
    ) -> _Shrinkage:
        """Return the estimate from what was seen."""
        counted = tuple(_summed(seen, width) for width in _WIDTHS)
        weighed = [counted[0]]
        told = [_told(counted[0], m)]
        for width in _WIDTHS[1:]:
            weighed.append(_summed(told[-1], width))
            told.append(_told(weighed[-1], m))
        return cls(
            assumed=assumed,
            m=m,
            counted=counted,
            weighed=tuple(weighed),
            told=tuple(told),
            site=_summed(told[-1], 0).get((), _NONE),
            expected_failures=math.fsum(
                outcomes.n * _scaled(assumed, size, 1.0) for (size,), outcomes in told[-1].items()
            ),
        )

    def log_likelihood(self) -> float:
        """Return how well each narrowest group is foretold by what lies outside of it."""
        terms = []
        for group, outcomes in self.counted[0].items():
            p0 = self.outside(group, 0)
            terms.append(beta.log_likelihood(*outcomes, self.m * p0, self.m * (1.0 - p0)))
        return math.fsum(terms)

    def probabilities(self) -> Iterator[tuple[tuple[Any, ...], Probability]]:
        """Yield each group with the probability of a launch in it, or in an unseen part of it."""
        for level, table in enumerate(self.weighed):
            for group, weighed in table.items():
                p0 = self.outside(group, level)
                a, b = weighed.n_ok + self.m * p0, weighed.n_failed + self.m * (1.0 - p0)
                if level:
                    # a part of it that was not seen is one more draw from it
                    a, b = self.m * a / (a + b), self.m * b / (a + b)
                words = ("of unknown version" if part is None else part for part in group)
                which = _NAMES[level].format(*words)
                yield group, _probability(a, b, self.counted[level][group], which)

    def outside(self, group: tuple[Any, ...], level: int) -> float:
        """Return p0 of a group: the estimate from what lies outside of it, widest group first."""
        assumed = _scaled(self.assumed, group[0], 1.0)
        ratio = self.failure_ratio(self.told[-1][group[:1]], assumed)
        p = 1.0 - _scaled(self.assumed, group[0], ratio)
        for wider in range(len(_WIDTHS) - 1, level, -1):
            every_ok, every_failed = self.weighed[wider][group[: _WIDTHS[wider]]]
            own_ok, own_failed = self.told[wider - 1][group[: _WIDTHS[wider - 1]]]
            n_ok, n_failed = every_ok - own_ok, every_failed - own_failed
            p = (n_ok + self.m * p) / (n_ok + n_failed + self.m)
        return p

    def failure_ratio(self, left_out: Outcomes, assumed: float) -> float:
        """Return failures seen per failure assumed, without the launches of one size."""
        by_gpus = self.assumed.success_by_gpus
        # m launches at the mean of the assumed rates hold the ratio at 1
        weight = self.m * (1.0 - sum(by_gpus.values()) / len(by_gpus))
        seen = self.site.n_failed - left_out.n_failed
        return (seen + weight) / (self.expected_failures - left_out.n * assumed + weight)


def _scaled(assumed: AssumedLaunches, n_gpus: int, ratio: float) -> float:
    """Return the assumed failure rate of a size times a ratio."""
    rate = 1.0 - at_size(assumed.success_by_gpus, n_gpus)
    return min(rate * ratio, _MAX_FAILURE_RATE)


def _summed(table: Mapping[Any, Outcomes], width: int) -> _Table:
    """Return a table summed over all but the first `width` fields of its keys."""
    sums: _Table = {}
    for key, outcomes in table.items():
        before = sums.get(key[:width], _NONE)
        sums[key[:width]] = Outcomes(
            before.n_ok + outcomes.n_ok, before.n_failed + outcomes.n_failed
        )
    return sums


def _told(table: _Table, m: float) -> _Table:
    """Return the independent launches that each group is worth where it is one of several."""
    told = {}
    for key, outcomes in table.items():
        worth = (m + 1.0) / (outcomes.n + m)
        told[key] = Outcomes(outcomes.n_ok * worth, outcomes.n_failed * worth)
    return told


def _probability(a: float, b: float, counted: Outcomes, which: str) -> Probability:
    n = int(counted.n)
    source = f"{counted.n_ok} of {n} launches {which} came up" if n else "assumed"
    return Probability(p=a / (a + b), a=a, b=b, n=n, assumed=n == 0, source=source)
