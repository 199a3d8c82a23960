"""The cheapest benchmark that brings a row into support.

In: the row asked for, the envelope. Out: a `Probe`, the concurrencies to measure it at. Called by
`omnipilot bench-plan`. Whether one cell is enough is tried, not reasoned: the envelope is widened
by it and the row judged again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import IN, MIN_CELLS, Envelope, envelope_of, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.predict.rows import FeatureRow, Table
    from omnipilot_slurm.predict.support import Support

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Probe:
    """What to measure: the row at these concurrencies, a cell each; none where it is in support.

    `support` is that of the row before.
    """

    support: Support
    concurrencies: tuple[int, ...]


def probe(row: FeatureRow, envelope: Envelope) -> Probe:
    """Return the fewest runs of the row's own arm and lengths after which the row is in support.

    One cell lifts a number or a pair never seen together; a name counts as seen from MIN_CELLS
    cells on, so those are measured along the concurrency, the asked one and lower ones, which cost
    less.
    """
    (support,) = judge(table([row]), envelope)
    asked = max(round(row.concurrency), 1)
    if support.tier == IN:
        return Probe(support, ())
    once = widened(envelope, table([row]), ["asked"])
    is_enough = judge(table([row]), once)[0].tier == IN
    return Probe(support, _ladder(asked)[: 1 if is_enough else MIN_CELLS])


def _ladder(asked: int) -> tuple[int, ...]:
    """Return MIN_CELLS concurrencies, the asked one first, the others lower where possible."""
    lower = [asked // 2**k for k in range(1, MIN_CELLS) if asked // 2**k >= 1]
    higher = [asked * 2**k for k in range(1, MIN_CELLS)]
    return (asked, *lower, *higher)[:MIN_CELLS]


def widened(envelope: Envelope, rows: Table, cells: Sequence[str]) -> Envelope:
    """Return the envelope with what rows (n_rows,) of new cells (n_rows,) add to it."""
    new = envelope_of(rows, cells)
    return Envelope(
        seen=_unions(envelope.seen, new.seen),
        together=envelope.together | new.together,
        values={
            axis: {
                gpu: tuple(sorted({*by_gpu.get(gpu, ()), *new.values[axis].get(gpu, ())}))
                for gpu in {*by_gpu, *new.values[axis]}
            }
            for axis, by_gpu in envelope.values.items()
        },
        hulls=_hulls(envelope.hulls, new.hulls),
        workloads=_unions(envelope.workloads, new.workloads),
    )


def _unions(
    old: Mapping[str, frozenset[_T]], new: Mapping[str, frozenset[_T]]
) -> dict[str, frozenset[_T]]:
    nothing: frozenset[_T] = frozenset()
    return {name: old.get(name, nothing) | new.get(name, nothing) for name in {*old, *new}}


def _hulls(
    old: Mapping[str, Mapping[str, tuple[float, float]]],
    new: Mapping[str, Mapping[str, tuple[float, float]]],
) -> dict[str, Mapping[str, tuple[float, float]]]:
    merged = dict(old)
    for name, found in new.items():
        known = old.get(name, found)
        merged[name] = {
            fact: (min(known[fact][0], ends[0]), max(known[fact][1], ends[1]))
            for fact, ends in found.items()
        }
    return merged
