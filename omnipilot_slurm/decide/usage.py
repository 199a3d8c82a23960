"""What servers are usually asked: by this user's earlier jobs, else by the account's.

In: the loads that finished servers were measured under, by user and by account, once a state. Out:
a UsualLoad, or None where no earlier job is known. Called where a Site is made (usual_loads) and by
decision, which falls back on it where neither directive nor flag says.

Medians: one load test among a user's jobs must not speak for the rest. The range that holds 80 % of
the jobs is what is plausible for the next one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LO, _MEDIAN, _HI = 0.1, 0.5, 0.9
#: so many jobs of one user, or account, say what the next one will be asked; the newest count
MAX_JOBS: Final = 100


class ServedLoad(NamedTuple):
    """What one finished server was asked: mean tokens of a request, requests in flight at once."""

    user_name: str
    account: str | None
    isl: float
    osl: float
    concurrency: float
    requests_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLoad:
    """Medians over `n_jobs` earlier servers, and between which concurrencies 80 % of them lie."""

    isl: int
    osl: int
    concurrency: int
    concurrency_lo: int
    concurrency_hi: int
    requests_per_s: float | None
    n_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLoads:
    """The usual load of each user and each account that has run a server before."""

    by_user: Mapping[str, UsualLoad] = field(default_factory=dict)
    by_account: Mapping[str, UsualLoad] = field(default_factory=dict)

    def of(self, user_name: str | None, account: str | None) -> tuple[str, UsualLoad] | None:
        """Return whose earlier jobs are known, `user` or `account`, and their load."""
        own = self.by_user.get(user_name or "")
        if own is not None:
            return "user", own
        shared = self.by_account.get(account or "")
        return None if shared is None else ("account", shared)


def usual_loads(served: Iterable[ServedLoad]) -> UsualLoads:
    """Return the usual loads of users and accounts; the newest jobs come first in `served`."""
    by_user: dict[str, list[ServedLoad]] = defaultdict(list)
    by_account: dict[str, list[ServedLoad]] = defaultdict(list)
    for load in served:
        by_user[load.user_name].append(load)
        if load.account:
            by_account[load.account].append(load)
    return UsualLoads(
        by_user={name: _usual(loads[:MAX_JOBS]) for name, loads in by_user.items()},
        by_account={name: _usual(loads[:MAX_JOBS]) for name, loads in by_account.items()},
    )


def _usual(loads: Sequence[ServedLoad]) -> UsualLoad:
    flights = sorted(load.concurrency for load in loads)
    rates = sorted(load.requests_per_s for load in loads if load.requests_per_s is not None)
    return UsualLoad(
        isl=_count(_quantile(sorted(load.isl for load in loads), _MEDIAN)),
        osl=_count(_quantile(sorted(load.osl for load in loads), _MEDIAN)),
        concurrency=_count(_quantile(flights, _MEDIAN)),
        concurrency_lo=_count(_quantile(flights, _LO)),
        concurrency_hi=_count(_quantile(flights, _HI)),
        # a rate that only some of the jobs have is no cap for all
        requests_per_s=_quantile(rates, _MEDIAN) if len(rates) == len(loads) else None,
        n_jobs=len(loads),
    )


def _quantile(ordered: Sequence[float], tau: float) -> float:
    """Return the nearest-rank quantile of sorted values."""
    return ordered[max(math.ceil(tau * len(ordered)) - 1, 0)]


def _count(value: float) -> int:
    return max(round(value), 1)
