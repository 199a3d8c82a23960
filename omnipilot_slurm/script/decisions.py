"""How a question ends that a script asks: yes, no or open, and what that rests on.

In: words after expansion. Out: Decisions, alone and combined. Called by conditions, statements,
walk and branches.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.script import expand
from omnipilot_slurm.script.words import How, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_NUMERIC: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_SIGNS: Final = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
_WHOLE: Final = re.compile(r"-?(?:0|[1-9]\d{0,8})$")
_BARE: Final = frozenset({"extglob_pattern", "regex", "word", "number"})
_QUOTED: Final = frozenset({"string", "raw_string", "ansi_c_string"})
_GLOB: Final = re.compile(r"[*?\[]")
#: what patterns of bash may hold and those of fnmatch may not
_BEYOND_FNMATCH: Final = re.compile(r"[(\\^]|\[:")
_MAX_MATCHED: Final = 512
_CHARS_PER_STEP: Final = 8


class Decision(NamedTuple):
    """How a test ends: None is not decided.

    `depends` names the variables that are taken as not set at submission; `unset` those of them
    that the test asks about being empty.
    """

    truth: bool | None = None
    depends: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()

    @property
    def is_certain(self) -> bool:
        """Whether it is decided whatever comes with the submission."""
        return self.truth is not None and not self.depends

    def negated(self) -> Decision:
        """Return the decision of the opposite test."""
        return self._replace(truth=None if self.truth is None else not self.truth)

    def resting_on(self, other: Decision) -> Decision:
        """Return the decision as one that also takes for granted what another does."""
        return self._replace(depends=self.depends | other.depends, unset=self.unset | other.unset)

    def combined(self, other: Decision, *, is_and: bool) -> Decision:
        """Return the decision of `A && B`, or of `A || B`."""
        decisive = not is_and
        for decision in (self, other):
            if decision.truth is decisive:
                return decision
        if self.truth is None or other.truth is None:
            return UNDECIDED
        return Decision(truth=is_and).resting_on(self).resting_on(other)


UNDECIDED: Final = Decision()


class Operand(NamedTuple):
    """One side of a comparison, with the variables that are taken as not set for it."""

    text: str
    depends: frozenset[str]


def operand_of(word: Word) -> Operand | None:
    """Return a word's text, taking variables that nothing sets as empty; None if not known."""
    texts = []
    for segment in word.segments:
        if not segment.fixed:
            return None
        if segment.text is not None:
            texts.append(segment.text)
        elif not segment.depends or segment.how is How.COMPUTED:
            return None
    return Operand("".join(texts), word.depends)


def is_filled(operand: Operand | None) -> Decision:
    """Decide `-n X`."""
    if operand is None:
        return UNDECIDED
    unset = frozenset() if operand.text else operand.depends
    return Decision(bool(operand.text), operand.depends, unset)


def compared(left: Operand | None, sign: str, right: Operand | None) -> Decision:
    """Decide `A -lt B` and its kin over whole numbers."""
    if left is None or right is None or sign not in _NUMERIC:
        return UNDECIDED
    if not _WHOLE.match(left.text) or not _WHOLE.match(right.text):
        return UNDECIDED
    holds = _NUMERIC[sign](int(left.text), int(right.text))
    return Decision(holds, left.depends | right.depends)


def ordered(left: int | None, sign: str, right: int | None) -> bool | None:
    """Decide `A < B` and its kin, as arithmetic writes them."""
    if left is None or right is None or sign not in _SIGNS:
        return None
    return _NUMERIC[_SIGNS[sign]](left, right)


def is_glob(node: Node, source: Source) -> bool:
    """Return whether a node may be a pattern."""
    return _GLOB.search(expand.text_of(node, source)) is not None


def matches(pattern: Node, text: str, source: Source, scope: Scope) -> bool | None:
    """Return whether a text matches a pattern of `case` or `[[ == ]]`, None if not known."""
    if pattern.type in _BARE:
        glob = expand.text_of(pattern, source)
        if _BEYOND_FNMATCH.search(glob) or max(len(text), len(glob)) > _MAX_MATCHED:
            return None
        scope.budget.spend(len(text) // _CHARS_PER_STEP)
        return fnmatch.fnmatchcase(text, glob)
    operand = operand_of(expand.word_of(pattern, source, scope))
    if operand is None or operand.depends:
        return None
    if pattern.type not in _QUOTED and _GLOB.search(operand.text):
        return None
    return text == operand.text
