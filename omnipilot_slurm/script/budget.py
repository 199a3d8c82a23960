"""How much work one script may cost: steps that are counted, and the caller's clock.

In: a callback that answers True once the time is over. Out: a Budget that every part of the reader
spends from; both limits end in OverBudgetError. Called by serving, spent by all modules it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

#: answers True once the time for reading this script is over
Expired: TypeAlias = Callable[[], bool]

#: steps for one script; real ones of 60 KB take 8,000, and 64 KiB of nothing but commands 46,000
MAX_STEPS: Final = 50_000
#: how deep statements, expansions and texts inside texts may nest
MAX_DEPTH: Final = 60
_STEPS_BETWEEN_LOOKS: Final = 32


class OverBudgetError(Exception):
    """The script is too large, too deep or too slow to be told apart."""


def never() -> bool:
    """Return False: the clock of callers that have all the time."""
    return False


class Budget:
    """Counts steps and depth, and looks at the clock every few steps."""

    __slots__ = ("_next_look", "depth", "expired", "steps")

    def __init__(self, expired: Expired = never) -> None:
        self.expired = expired
        self.steps = 0
        self._next_look = 0
        self.depth = 0

    def spend(self, steps: int = 1) -> None:
        """Take steps off the budget; raises OverBudgetError when they or the time are used up."""
        self.steps += steps
        if self.steps < self._next_look:
            return
        self._next_look = self.steps + _STEPS_BETWEEN_LOOKS
        if self.steps > MAX_STEPS or self.expired():
            raise OverBudgetError

    def enter(self) -> None:
        """Go one level deeper; raises OverBudgetError where nobody nests by hand."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise OverBudgetError

    def leave(self) -> None:
        """Come back from one level."""
        self.depth -= 1
