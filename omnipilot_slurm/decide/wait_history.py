"""How long jobs of a kind wait: the site's own history by partition, size and GPU type, shrunk.

In: what priors.yaml assumes and the site's WaitHistory, once a state. Out: QueueWaits, which has a
Wait for every kind of job, of all jobs and of those alone that did not start at once. Called where
a Site is made (queue_waits) and by waiting, which adds what the cluster looks like now.

Waits are counted in units of what is assumed for that number of GPUs, so that groups of other
sizes can be compared. Each level of grouping, the widest first, moves the estimate towards itself
by the jobs in it that no narrower level counts:

    q = (n q_own + k q_wider) / (n + k)    for the mean and for both ends of the interval

that is, distributions are averaged quantile by quantile. The levels: what is assumed (exponential
with that mean), jobs of that size anywhere, the partition, the partition and size, and the same
with the GPU type. As in success, n jobs of one group tell as much of a wider one as
n (k + 1) / (n + k) independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnipilot_slurm.decide.assumed import at_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from omnipilot_slurm.decide.assumed import AssumedWaits

#: the ends of the interval, as quantile levels
LO_TAU: Final = 0.1
HI_TAU: Final = 0.9
#: a job that starts within a minute did not wait: a round of the scheduler, the snapshot's age
AT_ONCE_H: Final = 1.0 / 60.0


class WaitGroup(NamedTuple):
    """Jobs that queue alike; `gres_type` None: they asked for GPUs of any type."""

    partition: str
    n_gpus: int
    gres_type: str | None


class WaitSample(NamedTuple):
    """How long `n` jobs waited, in hours: the mean, and quantiles in rising order.

    The quantiles are those of evenly spaced levels, (i + 1/2) / their number, as the waits of a few
    jobs are that are all there.
    """

    n: int
    mean_h: float
    quantiles_h: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHistory:
    """The site's own waits by group."""

    by_group: Mapping[WaitGroup, WaitSample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Hours until a job starts: mean and 80 % interval.

    It rests on `n` jobs of the narrowest group that has any, as `source` says; `assumed` where the
    site has none that compare.
    """

    lo_h: float
    mean_h: float
    hi_h: float
    n: int
    assumed: bool
    source: str


class _Sum(NamedTuple):
    """Waits of `n` jobs, in units of what is assumed, each times n."""

    n: float = 0.0
    lo: float = 0.0
    mean: float = 0.0
    hi: float = 0.0


_NONE: Final = _Sum()
#: no GPU type of this name
_UNSEEN: Final = ""
#: an exponential distribution of mean 1
_ASSUMED: Final = _Sum(1.0, -math.log1p(-LO_TAU), 1.0, -math.log1p(-HI_TAU))
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Waits by group of every width: what a group's jobs, or its parts, tell of it together.

    `told` is what a group tells of the next wider one, `n_jobs` how many jobs it has.
    """

    sums: Mapping[_Key, _Sum]
    told: Mapping[_Key, _Sum]
    n_jobs: Mapping[_Key, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualWaits:
    """How long jobs of each kind wait; `known` are those of every kind that was seen."""

    assumed: AssumedWaits
    levels: _Levels
    known: Mapping[_Key, Wait]

    def of(self, partition: str, n_gpus: int, gres_type: str | None) -> Wait:
        """Return how long jobs of a partition, size and GPU type wait."""
        keys = _keys(partition, n_gpus, gres_type)
        known = self.known.get(keys[0]) or self.known.get(keys[1])
        return known or _estimate(self.levels, self.assumed, keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaits:
    """How long jobs wait: all of them, and those alone that did not start at once."""

    of_all: UsualWaits
    of_waiting: UsualWaits


def queue_waits(assumed: AssumedWaits, history: WaitHistory) -> QueueWaits:
    """Return a site's waits, ready to be looked up; some ms for some hundred groups."""
    return QueueWaits(
        of_all=_usual_waits(assumed, _of_all(history, assumed)),
        of_waiting=_usual_waits(assumed, _of_waiting(history, assumed)),
    )


def _usual_waits(assumed: AssumedWaits, exact: Iterable[tuple[WaitGroup, _Sum]]) -> UsualWaits:
    levels = _levels(assumed, exact)
    known = {key: _estimate(levels, assumed, _keys(*key)) for key in levels.told}
    return UsualWaits(assumed=assumed, levels=levels, known=known)


def _of_all(history: WaitHistory, assumed: AssumedWaits) -> Iterator[tuple[WaitGroup, _Sum]]:
    for group, sample in history.by_group.items():
        if sample.n:
            yield group, _sum(sample.n, sample.mean_h, sample.quantiles_h, group, assumed)


def _of_waiting(history: WaitHistory, assumed: AssumedWaits) -> Iterator[tuple[WaitGroup, _Sum]]:
    """Yield the waits of the jobs that did not start at once; those that did add nothing to it."""
    for group, sample in history.by_group.items():
        waited = tuple(wait for wait in sample.quantiles_h if wait > AT_ONCE_H)
        if sample.n and waited:
            frac = len(waited) / len(sample.quantiles_h)
            yield group, _sum(sample.n * frac, sample.mean_h / frac, waited, group, assumed)


def _sum(
    n: float, mean_h: float, quantiles_h: Sequence[float], group: WaitGroup, assumed: AssumedWaits
) -> _Sum:
    per_unit = n / at_size(assumed.hours_by_gpus, group.n_gpus)
    lo_h, hi_h = (quantiles_h[round(tau * len(quantiles_h) - 0.5)] for tau in (LO_TAU, HI_TAU))
    return _Sum(n, lo_h * per_unit, mean_h * per_unit, hi_h * per_unit)


def _levels(assumed: AssumedWaits, exact: Iterable[tuple[WaitGroup, _Sum]]) -> _Levels:
    own = {_keys(*group)[0]: one for group, one in exact}
    told = {key: _told(one, assumed.prior_jobs) for key, one in own.items()}
    placed: dict[_Key, _Sum] = {}
    for (partition, n_gpus, _), one in told.items():
        placed[partition, n_gpus] = _added(placed.get((partition, n_gpus), _NONE), one)
    wider: dict[_Key, _Sum] = {}
    for (partition, n_gpus), one in placed.items():
        told[partition, n_gpus] = share = _told(one, assumed.prior_jobs)
        for key in ((partition,), (n_gpus,)):
            wider[key] = _added(wider.get(key, _NONE), share)
    counts: dict[_Key, float] = {}
    for (partition, n_gpus, gres_type), one in own.items():
        for key in _keys(partition, n_gpus, gres_type):
            counts[key] = counts.get(key, 0.0) + one.n
    n_jobs = {key: max(round(n), 1) for key, n in counts.items()}
    return _Levels(sums={**own, **placed, **wider}, told=told, n_jobs=n_jobs)


def _keys(
    partition: str, n_gpus: int, gres_type: str | None = _UNSEEN
) -> tuple[_Key, _Key, _Key, _Key]:
    """Return the keys of a group at all levels, the narrowest first."""
    return (partition, n_gpus, gres_type), (partition, n_gpus), (partition,), (n_gpus,)


def _told(one: _Sum, k: float) -> _Sum:
    """Return what a group tells of a wider one: as many independent jobs as it is worth."""
    worth = (k + 1.0) / (one.n + k)
    return _Sum(one.n * worth, one.lo * worth, one.mean * worth, one.hi * worth)


def _added(one: _Sum, other: _Sum) -> _Sum:
    return _Sum(one.n + other.n, one.lo + other.lo, one.mean + other.mean, one.hi + other.hi)


def _estimate(levels: _Levels, assumed: AssumedWaits, keys: tuple[_Key, _Key, _Key, _Key]) -> Wait:
    """Return the estimate from what is assumed and every level of history, the widest first."""
    exact, placed, partition, size = keys
    _, lo, mean, hi = _ASSUMED
    k = assumed.prior_jobs
    for level, part in ((size, placed), (partition, placed), (placed, exact), (exact, None)):
        every = levels.sums.get(level)
        if every is None:
            continue
        inner = levels.told.get(part, _NONE) if part is not None else _NONE
        n = every.n - inner.n + k
        lo = (every.lo - inner.lo + k * lo) / n
        mean = (every.mean - inner.mean + k * mean) / n
        hi = (every.hi - inner.hi + k * hi) / n
    hours = at_size(assumed.hours_by_gpus, size[0])
    n_jobs, source = _evidence(levels, keys)
    return Wait(
        lo_h=min(lo, mean) * hours,
        mean_h=mean * hours,
        hi_h=max(hi, mean) * hours,
        n=n_jobs,
        assumed=n_jobs == 0,
        source=source,
    )


def _evidence(levels: _Levels, keys: tuple[_Key, _Key, _Key, _Key]) -> tuple[int, str]:
    """Return the jobs of the narrowest group that has any, and in words which they are."""
    (partition, n_gpus, gres_type), *_ = keys
    which = (
        f"of {n_gpus} {gres_type or 'untyped'} GPUs in partition {partition}",
        f"of {n_gpus} GPUs in partition {partition}",
        f"in partition {partition}",
        f"of {n_gpus} GPUs",
    )
    for key, words in zip(keys, which, strict=True):
        n = levels.n_jobs.get(key)
        if n is not None:
            return n, f"{n} jobs {words}"
    return 0, "assumed"
