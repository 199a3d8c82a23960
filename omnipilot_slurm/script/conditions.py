"""Whether a test holds, where the script alone decides it.

In: the node of a test (`[ -z "$X" ]`, `[[ $A == b* ]]`, `(( N > 1 ))`, `test`, `true`) and the
variables in force. Out: a Decision; most tests (files, commands, unknown values) are undecided.
Called by walk.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.script import expand
from omnipilot_slurm.script.scope import Numbers
from omnipilot_slurm.script.words import How, Word, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_NUMERIC: Final = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_SIGNS: Final = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
_EQUALITIES: Final = frozenset({"=", "==", "!="})
#: nodes that are one side of a comparison, not a comparison themselves
_OPERANDS: Final = frozenset(
    "word number string raw_string ansi_c_string concatenation simple_expansion expansion"
    " extglob_pattern command_substitution arithmetic_expansion".split()
)
_CONSTANTS: Final = {"true": True, ":": True, "false": False}
_WHOLE: Final = re.compile(r"-?(?:0|[1-9]\d{0,8})$")
_BARE: Final = frozenset({"extglob_pattern", "word", "number"})
_QUOTED: Final = frozenset({"string", "raw_string", "ansi_c_string"})
_GLOB: Final = re.compile(r"[*?\[]")
#: what patterns of bash may hold and those of fnmatch may not
_BEYOND_FNMATCH: Final = re.compile(r"[(\\^]|\[:")
_MAX_MATCHED: Final = 512
_CHARS_PER_STEP: Final = 8
_UNARY_ARGS: Final = 2
_BINARY_ARGS: Final = 3


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


UNDECIDED: Final = Decision()


class _Operand(NamedTuple):
    text: str
    depends: frozenset[str]


def decide(node: Node, source: Source, scope: Scope) -> Decision:
    """Return how a test ends."""
    scope.budget.enter()
    decision = _decide(node, source, scope)
    scope.budget.leave()
    return decision


def _decide(node: Node, source: Source, scope: Scope) -> Decision:
    match node.type:
        case "test_command" | "parenthesized_expression" if node.named_child_count == 1:
            return decide(node.named_children[0], source, scope)
        case "compound_statement" if node.children and node.children[0].type == "((":
            return _arithmetic(node, source, scope)
        case "negated_command" if node.named_child_count == 1:
            return decide(node.named_children[0], source, scope).negated()
        case "unary_expression":
            return _unary(node, source, scope)
        case "binary_expression" | "list":
            return _binary(node, source, scope)
        case "command":
            return _command(node, source, scope)
        case "variable_assignment":
            return Decision(truth=True)
        case "string" | "simple_expansion" | "expansion" | "word" | "concatenation":
            return _is_filled(_operand(expand.word_of(node, source, scope)))
        case _:
            return UNDECIDED


def _operand(word: Word) -> _Operand | None:
    """Return a word's text, taking variables that nothing sets as empty; None if not known."""
    texts = []
    for segment in word.segments:
        if not segment.fixed:
            return None
        if segment.text is not None:
            texts.append(segment.text)
        elif not segment.depends or segment.how is How.COMPUTED or segment.options:
            return None
    return _Operand("".join(texts), word.depends)


def _is_filled(operand: _Operand | None) -> Decision:
    if operand is None:
        return UNDECIDED
    unset = frozenset() if operand.text else operand.depends
    return Decision(bool(operand.text), operand.depends, unset)


def _unary(node: Node, source: Source, scope: Scope) -> Decision:
    operator = expand.text_of(node.children[0], source)
    if operator == "!":
        return decide(node.children[-1], source, scope).negated()
    if operator not in ("-z", "-n"):
        return UNDECIDED
    filled = _is_filled(_operand(expand.word_of(node.children[-1], source, scope)))
    return filled if operator == "-n" else filled.negated()


def _binary(node: Node, source: Source, scope: Scope) -> Decision:
    if node.child_count != _BINARY_ARGS:
        return UNDECIDED
    left, sign, right = node.children
    operator = expand.text_of(sign, source)
    if operator in ("&&", "||"):
        first, second = decide(left, source, scope), decide(right, source, scope)
        return _combined(first, second, is_and=operator == "&&")
    if operator in _EQUALITIES and right.type == "binary_expression":
        return _misread(node, source, scope)
    value = _operand(expand.word_of(left, source, scope))
    if value is None or right.type not in _OPERANDS:
        return UNDECIDED
    if operator in _EQUALITIES:
        if _GLOB.search(expand.text_of(right, source)) and _is_in_single_brackets(node):
            return UNDECIDED
        holds = matches(right, value.text, source, scope)
        decision = UNDECIDED if holds is None else Decision(holds, value.depends)
        return decision.negated() if operator == "!=" else decision
    other = _operand(expand.word_of(right, source, scope))
    return _compared(value, operator, other)


def _is_in_single_brackets(node: Node) -> bool:
    """Return whether a comparison stands in `[ ... ]`, where a pattern names files."""
    around = node.parent
    while around is not None and around.type != "test_command":
        around = around.parent
    return around is not None and around.children[0].type == "["


def _misread(node: Node, source: Source, scope: Scope) -> Decision:
    """Decide `A = B || C`, which the grammar takes for `A = (B || C)`."""
    _, sign, tail = node.children
    if tail.child_count != _BINARY_ARGS or expand.text_of(sign, source) != "=":
        return UNDECIDED
    value = _operand(expand.word_of(node.children[0], source, scope))
    holds = None
    if value is not None and tail.children[0].type in _OPERANDS:
        holds = matches(tail.children[0], value.text, source, scope)
    first = UNDECIDED if holds is None or value is None else Decision(holds, value.depends)
    operator = expand.text_of(tail.children[1], source)
    if operator not in ("&&", "||"):
        return UNDECIDED
    return _combined(first, decide(tail.children[2], source, scope), is_and=operator == "&&")


def _combined(first: Decision, second: Decision, *, is_and: bool) -> Decision:
    decisive = not is_and
    for decision in (first, second):
        if decision.truth is decisive:
            return decision
    if first.truth is None or second.truth is None:
        return UNDECIDED
    return Decision(is_and, first.depends | second.depends, first.unset | second.unset)


def _compared(left: _Operand, operator: str, right: _Operand | None) -> Decision:
    if right is None or operator not in _NUMERIC:
        return UNDECIDED
    if not _WHOLE.match(left.text) or not _WHOLE.match(right.text):
        return UNDECIDED
    holds = _NUMERIC[operator](int(left.text), int(right.text))
    return Decision(holds, left.depends | right.depends)


def _arithmetic(node: Node, source: Source, scope: Scope) -> Decision:
    """Decide `(( A > B ))` over numbers that are known."""
    inner = node.named_children[0] if node.named_child_count == 1 else None
    if inner is None or inner.type != "binary_expression" or inner.child_count != _BINARY_ARGS:
        return UNDECIDED
    left, sign_node, right = inner.children
    sign = expand.text_of(sign_node, source)
    if sign not in _SIGNS:
        return UNDECIDED
    numbers = Numbers(scope)
    a, b = (numbers.evaluated(expand.word_of(side, source, scope)) for side in (left, right))
    if a is None or b is None:
        return UNDECIDED
    return Decision(_NUMERIC[_SIGNS[sign]](a, b), numbers.depends)


def _command(node: Node, source: Source, scope: Scope) -> Decision:
    name_node = node.child_by_field_name("name")
    name = "" if name_node is None else expand.text_of(name_node, source)
    if name in _CONSTANTS:
        return Decision(_CONSTANTS[name])
    if name == "getopts":
        # without arguments there is nothing to get
        return UNDECIDED if scope.args else Decision(truth=False)
    if name == "test":
        return _test(node.children_by_field_name("argument"), source, scope)
    return UNDECIDED


def _test(arguments: Sequence[Node], source: Source, scope: Scope) -> Decision:
    """Decide the command `test ...`, which the grammar does not take apart."""
    words = [expand.word_of(node, source, scope) for node in arguments]
    if words and text_of(words[0]) == "!":
        return _test(arguments[1:], source, scope).negated()
    operands = [_operand(word) for word in words]
    if len(words) == 1:
        return _is_filled(operands[0])
    if len(words) == _UNARY_ARGS and text_of(words[0]) in ("-n", "-z"):
        filled = _is_filled(operands[1])
        return filled if text_of(words[0]) == "-n" else filled.negated()
    if len(words) != _BINARY_ARGS or operands[0] is None or operands[2] is None:
        return UNDECIDED
    left, right, operator = operands[0], operands[2], text_of(words[1]) or ""
    if operator in _EQUALITIES:
        same = Decision(left.text == right.text, left.depends | right.depends)
        return same.negated() if operator == "!=" else same
    return _compared(left, operator, right)


def matches(pattern: Node, text: str, source: Source, scope: Scope) -> bool | None:
    """Return whether a text matches a pattern of `case` or `[[ == ]]`, None if not known."""
    if pattern.type in _BARE:
        glob = expand.text_of(pattern, source)
        if _BEYOND_FNMATCH.search(glob) or max(len(text), len(glob)) > _MAX_MATCHED:
            return None
        scope.budget.spend(len(text) // _CHARS_PER_STEP)
        return fnmatch.fnmatchcase(text, glob)
    operand = _operand(expand.word_of(pattern, source, scope))
    if operand is None or operand.depends:
        return None
    if pattern.type not in _QUOTED and _GLOB.search(operand.text):
        return None
    return text == operand.text


def tested_word(node: Node, source: Source, scope: Scope) -> tuple[str, frozenset[str]] | None:
    """Return the text of a `case` word and what it rests on, None if not known."""
    operand = _operand(expand.word_of(node, source, scope))
    return None if operand is None else (operand.text, operand.depends)
