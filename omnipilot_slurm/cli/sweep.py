"""A key swept over a range: its points, and where the answer to them changes.

In: `KEY=FROM:TO:N` or `KEY=FROM:TO:N:log`, and a function from a value to an answer. Out: the
points, the answers and the flips between them. Called by whatif; pure.

Points are evenly spaced, with `:log` evenly in ratio. Between two neighbours with different answers
the flip is bisected to a thousandth of its value; of several flips between two neighbours that lead
back to the same answer nothing is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from omnipilot_slurm.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Answer = TypeVar("Answer")
MAX_POINTS: Final = 200
#: how exactly a flip is found, relative to its value
PRECISION: Final = 1e-3
_DIGITS: Final = 6
_PARTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is swept: `n` values of `key` from `first` to `last`; `is_whole`: whole numbers only."""

    key: str
    first: float
    last: float
    n: int
    is_log: bool
    is_whole: bool = False

    def points(self) -> tuple[float, ...]:
        """Return the values, from first to last, without doubles."""
        shares = [i / (self.n - 1) for i in range(self.n)]
        return tuple(dict.fromkeys(self._rounded(self._at(share)) for share in shares))

    def between(self, lo: float, hi: float) -> float | None:
        """Return the middle of two values; None where they are as near as they need to be."""
        if self.is_whole:
            middle = float((lo + hi) // 2)
            return middle if middle not in (lo, hi) else None
        if abs(hi - lo) <= PRECISION * max(abs(lo), abs(hi)):
            return None
        return math.sqrt(lo * hi) if self.is_log else (lo + hi) / 2

    def _at(self, share: float) -> float:
        if self.is_log:
            return self.first * math.exp(share * math.log(self.last / self.first))
        return self.first + (self.last - self.first) * share

    def _rounded(self, value: float) -> float:
        return float(round(value)) if self.is_whole else float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip(Generic[Answer]):
    """The answer is `before` at `lo` and `after` at `hi`, which are as near as PRECISION."""

    lo: float
    hi: float
    before: Answer
    after: Answer


def parse_sweep(text: str) -> tuple[str, Sweep]:
    """Return the key and the sweep that `KEY=FROM:TO:N[:log]` says.

    Raises: UsageError.
    """
    key, equals, span = text.partition("=")
    parts = span.split(":")
    is_log = len(parts) > _PARTS and parts[-1] == "log"
    parts = parts[:-1] if is_log else parts
    if not equals or not key or len(parts) != _PARTS:
        raise UsageError(f"--sweep must be KEY=FROM:TO:N or KEY=FROM:TO:N:log, was {text!r}")
    first, last, n = (_number(text, part) for part in parts)
    if n != int(n) or not 2 <= n <= MAX_POINTS:  # noqa: PLR2004 (from and to are two)
        raise UsageError(
            f"--sweep {text}: N must be a whole number from 2 to {MAX_POINTS}, was {parts[2]!r}"
        )
    if first >= last:
        raise UsageError(f"--sweep {text}: FROM must be below TO, was {parts[0]!r}")
    if is_log and first <= 0:
        raise UsageError(f"--sweep {text}: FROM must be above 0 with `log`, was {parts[0]!r}")
    return key, Sweep(key=key, first=first, last=last, n=int(n), is_log=is_log)


def _number(text: str, part: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"--sweep {text}: must have numbers between the colons, was {part!r}")
    return value


def as_yaml(value: float) -> str:
    """Return a value of a sweep as it would stand in a YAML file."""
    return str(int(value)) if value == int(value) else repr(value)


def flips(
    sweep: Sweep,
    points: Sequence[float],
    answers: Sequence[Answer],
    answer_at: Callable[[float], Answer],
) -> list[Flip[Answer]]:
    """Return where the answer changes, in order; `answers` are those at `points`."""
    found: list[Flip[Answer]] = []
    steps = list(zip(points, answers, strict=True))
    for (lo, before), (hi, after) in pairwise(steps):
        at, now = lo, before
        while now != after:
            flip = _bisected(sweep, Flip(lo=at, hi=hi, before=now, after=after), answer_at)
            found.append(flip)
            at, now = flip.hi, flip.after
    return found


def _bisected(
    sweep: Sweep, flip: Flip[Answer], answer_at: Callable[[float], Answer]
) -> Flip[Answer]:
    """Return the first change of the answer inside a flip that is too wide."""
    lo, hi, after = flip.lo, flip.hi, flip.after
    while (middle := sweep.between(lo, hi)) is not None:
        answer = answer_at(middle)
        if answer == flip.before:
            lo = middle
        else:
            hi, after = middle, answer
    return Flip(lo=lo, hi=hi, before=flip.before, after=after)
