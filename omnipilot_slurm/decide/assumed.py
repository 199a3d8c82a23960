"""What is taken of launches and queues where the site has no data: the records of priors.yaml.

In: nothing. Out: the records, and how a table by number of GPUs is read. Called by priors_file
(shell), which fills them, and by success and waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedLaunches:
    """How likely launches come up; `prior_launches` is m of success, fitted between its bounds.

    Only launches of the last `history_days` count against it.
    """

    success_by_gpus: Mapping[int, float]
    prior_launches: float
    prior_launches_lo: float
    prior_launches_hi: float
    history_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedWaits:
    """How long jobs wait; the assumption counts for `prior_jobs` of the site's own.

    Only jobs of the last `history_days` count against it.
    """

    hours_by_gpus: Mapping[int, float]
    prior_jobs: float
    history_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedLoads:
    """Of how many days earlier servers tell what a user's next one will be asked; 0: of none."""

    history_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """All of priors.yaml."""

    launch: AssumedLaunches
    wait: AssumedWaits
    load: AssumedLoads


def at_size(by_gpus: Mapping[int, float], n_gpus: int) -> float:
    """Return the value of the listed number of GPUs that is nearest; of two, the larger one's."""
    value = by_gpus.get(n_gpus)
    if value is not None:
        return value
    return by_gpus[min(by_gpus, key=lambda size: (abs(size - n_gpus), -size))]
