"""What can be told of a statement before it is walked: does it end the script, ask, ever turn.

In: a syntax node and the Frame it stands in. Out: an answer, or the Decision that it rests on.
Called by walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import assignments, conditions, decisions
from omnipilot_slurm.script.decisions import UNDECIDED, Decision
from omnipilot_slurm.script.words import Splice, Word, Words, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from omnipilot_slurm.script.frame import Frame

#: commands whose failure is a question, not a mishap: what follows `&&` depends on it
_TESTS: Final = frozenset("[ test grep which type hash command cmp diff pgrep kill curl nc".split())
_ENDS: Final = frozenset({"exit", "return"})
_WRAPPED: Final = frozenset({"negated_command", "redirected_statement", "pipeline"})


def ends_text(first: str | None, words: Words) -> bool:
    """Return whether nothing behind a command is run: exit, return, exec PROGRAM."""
    return first in _ENDS or (first == "exec" and len(words) > 1)


def ends(node: Node, frame: Frame) -> bool:
    """Return whether a statement's last command is one behind which nothing is run."""
    while node.type in ("compound_statement", "redirected_statement") and node.named_children:
        node = node.named_children[0 if node.type == "redirected_statement" else -1]
    name = node.child_by_field_name("name") if node.type == "command" else None
    if name is None:
        return False
    text = frame.text(name)
    return text in _ENDS or (text == "exec" and node.named_child_count > 1)


def is_test(node: Node, frame: Frame) -> bool:
    """Return whether a statement asks a question, so that what follows depends on the answer."""
    while node.type in _WRAPPED and node.named_children:
        node = node.named_children[-1 if node.type == "pipeline" else 0]
    if node.type == "list":
        return any(is_test(child, frame) for child in node.named_children)
    if node.type == "test_command":
        return True
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and frame.text(name) in _TESTS


def arm(
    patterns: Sequence[Node], tested: tuple[str, frozenset[str]] | None, frame: Frame
) -> Decision:
    """Return whether an arm of a case is the one that runs."""
    if any(frame.text(pattern) == "*" for pattern in patterns):
        return Decision(truth=True)
    if tested is None:
        return UNDECIDED
    text, depends = tested
    found = [decisions.matches(p, text, frame.source, frame.scope) for p in patterns]
    if True in found:
        return Decision(truth=True, depends=depends)
    return UNDECIDED if None in found else Decision(truth=False, depends=depends)


def never_turns(node: Node, tests: Sequence[Node], frame: Frame) -> bool:
    """Return whether a while or until loop ends before its first turn."""
    if len(tests) != 1:
        return False
    decision = conditions.decide(tests[0], frame.source, frame.scope)
    is_until = any(child.type == "until" for child in node.children)
    return decision.is_certain and decision.truth is is_until


def set_variable(node: Node, frame: Frame) -> bool:
    """Set a for loop's variable for its turns; return False where there are none."""
    variable = node.child_by_field_name("variable")
    if node.type == "c_style_for_statement":
        assignments.forget_changed(frame.text(node).partition("))")[0], frame.scope)
    if variable is None:
        return True
    nodes = node.children_by_field_name("value")
    is_over_args = not any(child.type == "in" for child in node.children)
    values = [word for value in nodes for word in frame.words(value)]
    if is_over_args:
        values = list(frame.scope.args)
    values = [word for word in values if not isinstance(word, Splice) or word.options != ((),)]
    if not values:
        return False
    only = values[0] if len(values) == 1 else None
    value = only if isinstance(only, Word) else Word((unknown(),))
    frame.scope.variables[frame.text(variable)] = value
    return True
