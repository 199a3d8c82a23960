"""What is still known of variables where ways through a script meet again.

In: the scopes at the ends of alternative branches. Out: one scope that keeps only what they agree
on. Called by walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.script.expand import unknown
from omnipilot_slurm.script.source import How, Segment, Splice, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.script.expand import Scope, Words


def merge(scope: Scope, results: Sequence[Scope]) -> None:
    """Keep in `scope` the values on which all results agree; the rest is not known."""
    for name in {name for result in results for name in result.variables}:
        values = [result.variables.get(name) for result in results]
        first = values[0]
        if first is not None and all(value is first for value in values):
            scope.variables[name] = first
        else:
            scope.variables[name] = _agreed(values)
    for result in results:
        scope.functions.update(result.functions)
        scope.exported |= result.exported


def appended(old: Word | Words | None, new: Word | Words) -> Word | Words:
    """Return the value of `name+=new`."""
    if isinstance(old, list) or isinstance(new, list):
        return [*_as_list(old), *_as_list(new)]
    return Word(segments=(*(old.segments if old else ()), *new.segments))


def _as_list(value: Word | Words | None) -> Words:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _agreed(values: Sequence[Word | Words | None]) -> Word | Words:
    if any(isinstance(value, list) for value in values):
        return _common_start([_as_list(value) for value in values])
    texts = {value.text if isinstance(value, Word) else None for value in values}
    text = texts.pop() if len(texts) == 1 else None
    if text is None:
        return Word(segments=(unknown(),))
    return Word(segments=(Segment(text=text, how=How.VARIABLE, fixed=False),))


def _common_start(lists: Sequence[Words]) -> Words:
    common: Words = []
    for items in zip(*lists, strict=False):
        if any(item != items[0] for item in items):
            break
        common.append(items[0])
    same = all(len(items) == len(common) for items in lists)
    return common if same else [*common, Splice()]
