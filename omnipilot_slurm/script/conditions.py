"""Whether a test holds, where the script alone decides it.

In: the node of a test (`[ -z "$X" ]`, `[[ $A == b* ]]`, `(( N > 1 ))`, `test`, `true`) and the
variables in force. Out: a Decision; most tests (files, commands, unknown values) are undecided.
Called by walk and statements.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from omnipilot_slurm.script import decisions, expand
from omnipilot_slurm.script.decisions import UNDECIDED, Decision, Operand
from omnipilot_slurm.script.scope import Numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_EQUALITIES: Final = frozenset({"=", "==", "!="})
_BINARY: Final = _EQUALITIES | frozenset("-eq -ne -lt -le -gt -ge -nt -ot -ef =~ < >".split())
_UNARY: Final = frozenset(f"-{letter}" for letter in "zntvfdesrwxLhbcpSgukOGNR")
_JOINTS: Final = {"&&": True, "-a": True, "||": False, "-o": False}
_WORDS_OF_TESTS: Final = _BINARY | _UNARY | _JOINTS.keys() | {"!", "(", ")"}
_NESTS: Final = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
_LOOSE: Final = frozenset({"simple_expansion", "expansion", "command_substitution"})
_CONSTANTS: Final = {"true": True, ":": True, "false": False}
_BINARY_NODES: Final = 3

#: an operator, or the node of an operand
_Token: TypeAlias = "str | Node"  # noqa: S105 - a token of a test, not a password


def decide(node: Node, source: Source, scope: Scope) -> Decision:
    """Return how a test ends."""
    scope.budget.enter()
    decision = _decide(node, source, scope)
    scope.budget.leave()
    return decision


def _decide(node: Node, source: Source, scope: Scope) -> Decision:
    match node.type:
        case "test_command" if not node.has_error:
            tokens = _flattened(node.children[1:-1], source, scope)
            in_brackets = node.children[0].type == "["
            return _Tests(tokens, source, scope, in_brackets=in_brackets).decided()
        case "compound_statement" if node.children and node.children[0].type == "((":
            only = node.named_children[0] if node.named_child_count == 1 else None
            return UNDECIDED if only is None else _arithmetic(only, source, scope)
        case "negated_command" if node.named_child_count == 1:
            return decide(node.named_children[0], source, scope).negated()
        case "list":
            left, sign, right = node.children[0], node.children[1], node.children[-1]
            first, second = decide(left, source, scope), decide(right, source, scope)
            return first.combined(second, is_and=sign.type == "&&")
        case "command":
            return _command(node, source, scope)
        case "variable_assignment":
            return Decision(truth=True)
        case _:
            return UNDECIDED


def _flattened(nodes: Iterable[Node], source: Source, scope: Scope) -> Iterator[_Token]:
    """Yield the operators and operands of a test in order: the grammar's own tree is not bash's."""
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        scope.budget.spend()
        if node.type in _NESTS and node.children[0].type not in ("-", "+"):
            waiting += node.children[::-1]
        elif not node.is_named or node.type in ("test_operator", "word"):
            text = expand.text_of(node, source)
            yield text if text in _WORDS_OF_TESTS else node
        else:
            yield node


class _Tests:
    """Reads `[ ... ]`, `[[ ... ]]` and `test ...`: comparisons joined by `!`, `&&` and `||`."""

    def __init__(
        self, tokens: Iterable[_Token], source: Source, scope: Scope, *, in_brackets: bool
    ) -> None:
        self._tokens = deque(tokens)
        self._source = source
        self._scope = scope
        self._in_brackets = in_brackets
        self._is_cut_short = False

    def decided(self) -> Decision:
        """Return how the whole test ends."""
        decision = self._joined(is_and=False)
        return UNDECIDED if self._tokens or self._is_cut_short else decision

    def _next(self) -> _Token | None:
        return self._tokens[0] if self._tokens else None

    def _joined(self, *, is_and: bool) -> Decision:
        """Read what `||` joins (`is_and` False), or what `&&` joins."""
        decision = self._negated() if is_and else self._joined(is_and=True)
        while isinstance(joint := self._next(), str) and _JOINTS.get(joint) is is_and:
            self._tokens.popleft()
            right = self._negated() if is_and else self._joined(is_and=True)
            decision = decision.combined(right, is_and=is_and)
        return decision

    def _negated(self) -> Decision:
        self._scope.budget.enter()
        if self._next() == "!":
            self._tokens.popleft()
            decision = self._negated().negated()
        elif self._next() == "(":
            self._tokens.popleft()
            decision = self._joined(is_and=False)
            is_closed = self._taken(1)[0] == ")"
            decision = decision if is_closed else UNDECIDED
        else:
            decision = self._primary()
        self._scope.budget.leave()
        return decision

    def _taken(self, count: int) -> list[_Token | None]:
        self._is_cut_short = self._is_cut_short or len(self._tokens) < count
        return [self._tokens.popleft() if self._tokens else None for _ in range(count)]

    def _primary(self) -> Decision:
        """Read `-z X`, `A = B` or `X`."""
        if isinstance(self._next(), str):
            operator, value = self._taken(2)
            return self._asked(operator, value)
        operator = self._tokens[1] if len(self._tokens) > 1 else None
        if operator in _BINARY:
            return self._compared(*self._taken(_BINARY_NODES))
        return decisions.is_filled(self._operand(*self._taken(1)))

    def _asked(self, operator: _Token | None, value: _Token | None) -> Decision:
        operand = self._operand(value)
        if operator not in ("-z", "-n") or operand is None:
            return UNDECIDED
        if operator == "-n" and not operand.text and self._vanishes(value):
            return Decision(truth=True, depends=operand.depends)
        filled = decisions.is_filled(operand)
        return filled if operator == "-n" else filled.negated()

    def _compared(
        self, left: _Token | None, operator: _Token | None, right: _Token | None
    ) -> Decision:
        value = self._operand(left)
        if value is None or right is None or isinstance(right, str):
            return UNDECIDED
        if self._vanishes(left) and not value.text:
            # `[ = x ]` is an error
            return Decision(truth=False, depends=value.depends)
        if operator not in _EQUALITIES:
            return decisions.compared(value, str(operator), self._operand(right))
        if self._in_brackets and decisions.is_glob(right, self._source):
            # names files there
            return UNDECIDED
        holds = decisions.matches(right, value.text, self._source, self._scope)
        decision = UNDECIDED if holds is None else Decision(holds, value.depends)
        return decision.negated() if operator == "!=" else decision

    def _vanishes(self, token: _Token | None) -> bool:
        """Return whether an operand is no word at all where it is empty."""
        return self._in_brackets and not isinstance(token, str | None) and token.type in _LOOSE

    def _operand(self, token: _Token | None) -> Operand | None:
        if token is None or isinstance(token, str):
            return None
        operand = decisions.operand_of(expand.word_of(token, self._source, self._scope))
        is_split = operand is not None and self._vanishes(token) and len(operand.text.split()) > 1
        return None if is_split else operand


def _arithmetic(node: Node, source: Source, scope: Scope) -> Decision:
    """Decide `(( A > B ))` over numbers that are known."""
    scope.budget.enter()
    decision = _calculated(node, source, scope)
    scope.budget.leave()
    return decision


def _calculated(node: Node, source: Source, scope: Scope) -> Decision:
    if node.type == "parenthesized_expression" and node.named_child_count == 1:
        return _arithmetic(node.named_children[0], source, scope)
    if node.type != "binary_expression" or node.child_count != _BINARY_NODES:
        return UNDECIDED
    left, middle, right = node.children
    sign = expand.text_of(middle, source)
    if sign in ("&&", "||"):
        first, second = _arithmetic(left, source, scope), _arithmetic(right, source, scope)
        return first.combined(second, is_and=sign == "&&")
    numbers = Numbers(scope)
    a, b = (numbers.evaluated(expand.word_of(side, source, scope)) for side in (left, right))
    holds = decisions.ordered(a, sign, b)
    return UNDECIDED if holds is None else Decision(holds, numbers.depends)


def _command(node: Node, source: Source, scope: Scope) -> Decision:
    name_node = node.child_by_field_name("name")
    name = "" if name_node is None else expand.text_of(name_node, source)
    if name in _CONSTANTS:
        return Decision(_CONSTANTS[name])
    if name == "getopts":
        # without arguments there is nothing to get
        return UNDECIDED if scope.args else Decision(truth=False)
    if name == "test":
        tokens = _flattened(node.children_by_field_name("argument"), source, scope)
        return _Tests(tokens, source, scope, in_brackets=True).decided()
    return UNDECIDED


def tested_word(node: Node, source: Source, scope: Scope) -> tuple[str, frozenset[str]] | None:
    """Return the text of a `case` word and what it rests on, None if not known."""
    operand = decisions.operand_of(expand.word_of(node, source, scope))
    return None if operand is None else (operand.text, operand.depends)
