"""What is still known of variables where ways through a script meet again.

In: the scopes at the ends of alternative branches. Out: one scope that keeps what they agree on,
and the list of what a value can be where they do not. Called by walk and assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script.words import (
    BLANK,
    How,
    Segment,
    Splice,
    Value,
    Word,
    Words,
    bounded,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.script.decisions import Decision
    from omnipilot_slurm.script.scope import Scope

#: values of one variable that are kept apart; with more it can be anything
_MAX_OPTIONS: Final = 8
_NAMES_PER_STEP: Final = 16
_NOTHING: Final = Word(())
_ANYTHING: Final = Splice(fixed=False)


def merge(scope: Scope, results: Sequence[Scope]) -> None:
    """Keep in `scope` what all results agree on, and what the rest can be."""
    for name in _names(scope, results):
        first = results[0].variables.get(name, BLANK)
        if all(result.variables.get(name, BLANK) is first for result in results):
            assert not isinstance(first, Splice)
            scope.variables[name] = first
        else:
            scope.variables[name] = _agreed([_value_in(result, name) for result in results])
    _merge_rest(scope, results)


def assume(scope: Scope, taken: Scope, skipped: Sequence[Scope], decision: Decision) -> None:
    """Keep in `scope` what the branch taken leaves, noting what the decision rests on."""
    for name in _names(scope, (taken, *skipped)):
        value = taken.variables.get(name, BLANK)
        if all(result.variables.get(name, BLANK) is value for result in skipped):
            if not isinstance(value, Splice):
                scope.variables[name] = value
            continue
        values = [_value_in(result, name) for result in (taken, *skipped)]
        how = How.DEFAULT_EXPANSION if name in decision.unset else How.LITERAL
        scope.variables[name] = _with_additions(values, decision.depends) or _resting_on(
            values[0], how, decision.depends
        )
    _merge_rest(scope, (taken, *skipped))


def _names(scope: Scope, results: Sequence[Scope]) -> set[str]:
    """Return the variables that some result holds; looking at each costs."""
    names = {name for result in results for name in result.variables}
    scope.budget.spend(len(names) * len(results) // _NAMES_PER_STEP)
    return names


def _merge_rest(scope: Scope, results: Sequence[Scope]) -> None:
    for result in results:
        scope.functions.update(result.functions)
        scope.exported |= result.exported
        scope.unseen = scope.unseen or result.unseen


def _value_in(scope: Scope, name: str) -> Word | Words:
    """Return a variable's value at the end of a branch; unset is a word of nothing."""
    if name in scope.variables:
        value = scope.variables[name]
        return _NOTHING if value is None else value
    segments = scope.value(name)
    if segments is not None:
        return Word(segments)
    return _NOTHING if scope.is_known_unset(name) else Word((unknown(frozenset({name})),))


def _with_additions(values: Sequence[Word | Words], depends: frozenset[str]) -> Word | Words | None:
    """Return a value that the branches not taken only add options to, None for any other.

    `depends` decides the additions alone, not what stands in front of them.
    """
    taken, *others = values
    if not depends:
        return None
    if isinstance(taken, Word):
        words = [word for word in others if isinstance(word, Word)]
        adds = len(words) == len(others) and all(word.shown[:1] in ("-", "") for word in words)
        if taken.text != "" or not adds:
            return None
        options = (Word(()), *words)
        return Word((Segment(None, depends=depends, options=tuple(dict.fromkeys(options))),))
    n_taken = len(taken)
    if any(other[:n_taken] != taken for other in others if isinstance(other, list)):
        return None
    rests = [other[n_taken:] for other in others if isinstance(other, list)]
    added = _either([[], *rests], depends)
    is_listed = len(rests) == len(others) and added.options
    return [*taken, added._replace(fixed=True)] if is_listed else None


def _resting_on(value: Word | Words, how: How, depends: frozenset[str]) -> Word | Words:
    if isinstance(value, list):
        words = [w if isinstance(w, Splice) else w.through(how, depends) for w in value]
        return words if words or not depends else [Splice(depends, ((),))]
    return value.through(how, depends) if value.segments else Word((Segment("", depends=depends),))


def appended(old: Value, new: Word | Words) -> Word | Words:
    """Return the value of `name+=new`."""
    if isinstance(old, list) or isinstance(new, list):
        return [*_as_list(old), *_as_list(new)]
    return Word(bounded((*(old.segments if old else ()), *new.segments)))


def _as_list(value: Value) -> Words:
    if isinstance(value, list):
        return value
    return [] if value is None or not value.segments else [value]


def _agreed(values: Sequence[Word | Words]) -> Word | Words:
    if any(isinstance(value, list) for value in values):
        unset = [v for v in values if isinstance(v, Word) and _is_unset(v)]
        lists = [[] if _is_unset(value) else _as_list(value) for value in values]
        return _common_start(lists, frozenset().union(*(word.depends for word in unset)))
    words = [value for value in values if isinstance(value, Word)]
    texts = {word.text for word in words}
    depends = frozenset().union(*(word.depends for word in words))
    text = texts.pop() if len(texts) == 1 else None
    if text is not None:
        return Word((Segment(text, how=How.VARIABLE, depends=depends, fixed=False),))
    n_common = _n_common(words)
    options = _options([Word(word.segments[n_common:]) for word in words])
    if not options:
        depends = frozenset()
    rest = Segment(None, how=How.UNKNOWN, depends=depends, fixed=False, options=options)
    return Word((*words[0].segments[:n_common], rest))


def _is_unset(value: Word | Words) -> bool:
    """Return whether a value is that of a variable that nothing in the script sets."""
    if isinstance(value, list) or len(value.segments) != 1:
        return False
    only = value.segments[0]
    return only.text is None and bool(only.depends) and not only.options and only.how is How.UNKNOWN


def _n_common(words: Sequence[Word]) -> int:
    """Return how many pieces all values start with: `CMD="$CMD --flag"` keeps what it had."""
    n_common = 0
    for pieces in zip(*(word.segments for word in words), strict=False):
        first = pieces[0]
        if first.text is None or any(
            p.text != first.text or p.start != first.start for p in pieces
        ):
            break
        n_common += 1
    return n_common


def _options(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return all values that a variable can have, () where they cannot be listed."""
    found: list[Word] = []
    for word in words:
        only = word.segments[0] if len(word.segments) == 1 else None
        if word.text is not None:
            found.append(word)
        elif only is not None and only.options:
            found += only.options
        elif _is_unset(word):
            # taken as nothing, which `depends` remembers
            found.append(_NOTHING)
        else:
            return ()
    unique = tuple(dict.fromkeys(found))
    return unique if len(unique) <= _MAX_OPTIONS else ()


def _common_start(lists: Sequence[Words], depends: frozenset[str]) -> Words:
    n_common = 0
    for items in zip(*lists, strict=False):
        if any(item != items[0] for item in items):
            break
        n_common += 1
    common = list(lists[0][:n_common])
    rests = [items[n_common:] for items in lists]
    if not any(rests):
        return common
    return [*common, _either(rests, depends)]


def _either(rests: Sequence[Words], depends: frozenset[str]) -> Splice:
    """Return the words that stand for one of several endings of an array."""
    options: list[tuple[Word, ...]] = []
    for rest in rests:
        last = rest[-1] if rest else None
        plain = tuple(word for word in rest if isinstance(word, Word))
        if len(plain) == len(rest):
            options.append(plain)
        elif len(plain) == len(rest) - 1 and isinstance(last, Splice) and last.options:
            options += [(*plain, *option) for option in last.options]
            depends |= last.depends
        else:
            return _ANYTHING
    unique = tuple(dict.fromkeys(options))
    return Splice(depends, unique, fixed=False) if len(unique) <= _MAX_OPTIONS else _ANYTHING
