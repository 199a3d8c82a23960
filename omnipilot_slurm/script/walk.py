"""The order in which bash would run a script: statements in, one visit per simple command out.

Follows assignments, functions, branches and substitutions; what a branch or loop decides is marked
so. Nothing is run, and nothing outside the text is looked at. Called by reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from omnipilot_slurm.script import assignments, branches, conditions, statements
from omnipilot_slurm.script.budget import OverBudgetError
from omnipilot_slurm.script.commands import echoed, heredoc, read_command
from omnipilot_slurm.script.decisions import UNDECIDED, Decision
from omnipilot_slurm.script.frame import Command, Frame
from omnipilot_slurm.script.inert import is_inert
from omnipilot_slurm.script.words import Words, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.budget import Budget
    from omnipilot_slurm.script.scope import Scope

_MAX_CALLS: Final = 12
#: statements and comments of one block; a list of more takes too long to make
_MOST_CHILDREN: Final = 10_000
_STEPS_OF_A_COMMAND: Final = 4
_SKIPPED: Final = frozenset({"comment", "test_command"})

Visit: TypeAlias = Callable[[Command], None]


class _EndedError(Exception):
    """Nothing behind this point of the text is run."""


class _Choice(NamedTuple):
    """One body of an if or case, and whether it is the one that runs."""

    body: Sequence[Node]
    decision: Decision


@dataclass(slots=True)
class Walker:
    """Walks syntax trees in the order of execution and calls `visit` for each command.

    `errors` collects the texts of syntax errors, which may hide commands.
    """

    visit: Visit
    budget: Budget
    errors: list[str] = field(default_factory=list)
    _n_calls: int = 0

    def run(self, frame: Frame) -> None:
        """Walk a text; raises OverBudgetError where the budget does not reach."""
        root = frame.source.parse(self.budget)
        if root.child_count > _MOST_CHILDREN:
            raise OverBudgetError
        if root.has_error:
            self._note_missing(root)
        self._to_its_end(root.children, frame)

    def _note_missing(self, root: Node) -> None:
        """Note what the parser had to put in itself: a `fi` or a bracket that never comes."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self.budget.spend()
            if node.is_missing:
                self.errors.append(node.type)
            elif node.has_error:
                waiting += node.children

    def _to_its_end(self, nodes: Sequence[Node], frame: Frame) -> None:
        """Walk statements that may end early without ending what stands around them."""
        depth = self.budget.depth
        try:
            self._block(nodes, frame)
        except _EndedError:
            self.budget.depth = depth

    def _block(self, nodes: Sequence[Node], frame: Frame) -> None:
        for node in nodes:
            if node.is_named:
                self._statement(node, frame)

    def _statement(self, node: Node, frame: Frame) -> None:
        if node.child_count > _MOST_CHILDREN:
            raise OverBudgetError
        self.budget.enter()
        self.budget.spend()
        handler = self._HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, frame)
        elif node.type not in _SKIPPED:
            self._block(node.children, frame)
        if frame.scope.substitutions:
            self._substitutions(frame)
        self.budget.leave()

    def _substitutions(self, frame: Frame) -> None:
        """Walk the commands inside the `$(...)` that were met."""
        met = frame.scope.substitutions
        found = {(id(source), node.start_byte): (node, source) for node, source in met}
        met.clear()
        for node, source in found.values():
            inner = replace(frame.branched(), source=source, stdin=None, is_piped=False)
            self._to_its_end(node.children, inner)

    # simple commands

    def _command(self, node: Node, frame: Frame, redirects: Sequence[Node] = ()) -> None:
        self.budget.spend(_STEPS_OF_A_COMMAND)
        scope = frame.scope
        data = frame.source.data
        # a function may have the name of any command
        if not (redirects or scope.functions) and is_inert(data[node.start_byte : node.end_byte]):
            return
        command = read_command(node, frame, redirects)
        words = command.words
        first = text_of(words[0]) if words else None
        if first is not None and first in scope.functions and self._n_calls < _MAX_CALLS:
            self._call(first, words[1:], frame)
            return
        if first is not None:
            assignments.apply(first, command)
        self.visit(command)
        if statements.ends_text(first, words) and command.context.is_certain:
            raise _EndedError

    def _call(self, name: str, args: Words, frame: Frame) -> None:
        scope = frame.scope
        source, body = scope.functions[name]
        outer = scope.args, scope.in_function
        scope.args = args
        scope.in_function = True
        marked = frame.marked(parameters=frame.context.parameters or bool(args))
        self._n_calls += 1
        self._to_its_end([body], replace(marked, source=source))
        self._n_calls -= 1
        scope.args, scope.in_function = outer

    def _redirected(self, node: Node, frame: Frame) -> None:
        """Walk a statement with its redirects, its heredoc and what is piped behind that."""
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child != body and child.is_named]
        here = next((child for child in redirects if child.type == "heredoc_redirect"), None)
        followers: list[Node] = []
        if here is not None:
            frame = replace(frame, stdin=heredoc(here, frame))
            inner = [child for child in here.children if child.is_named]
            redirects += [child for child in inner if child.type == "file_redirect"]
            followers = [c for c in inner if not c.type.startswith(("heredoc", "file", "ERROR"))]
        if body is None:
            self._command(node, frame)
        elif body.type == "command":
            self._command(body, frame, redirects)
        else:
            self._statement(body, frame)
        for follower in followers:
            self._statement(follower, frame)

    def _pipeline(self, node: Node, frame: Frame) -> None:
        """Walk `A | B`; what a plain `echo` prints is what B reads."""
        inner = frame
        for child in node.named_children:
            self._to_its_end([child], inner)
            inner = replace(frame, stdin=echoed(child, inner), is_piped=True)

    def _subshell(self, node: Node, frame: Frame) -> None:
        """Walk `( ... )`, whose assignments and exits stay inside."""
        self._to_its_end(node.children, frame.branched())

    # what depends on tests

    def _and_or(self, node: Node, frame: Frame) -> None:
        """Walk `A && B` and `A || B`; behind a test or `||` it depends whether B runs."""
        named = node.named_children
        if not named:
            return
        left, right = named[0], named[-1]
        is_or = any(child.type == "||" for child in node.children)
        decision = conditions.decide(left, frame.source, frame.scope)
        self._statement(left, frame)
        if left == right:
            return
        if decision.truth is None and not is_or and not statements.is_test(left, frame):
            self._statement(right, frame)
        else:
            self._choose([_Choice([right], decision.negated() if is_or else decision)], frame)

    def _if(self, node: Node, frame: Frame) -> None:
        choices = [self._clause(node, frame)]
        for child in node.children:
            if child.type == "elif_clause":
                choices.append(self._clause(child, frame))
            elif child.type == "else_clause":
                choices.append(_Choice(child.children, Decision(truth=True)))
        self._choose(choices, frame)

    def _clause(self, node: Node, frame: Frame) -> _Choice:
        """Walk the condition of an if or elif; return its body and how the condition ends."""
        tests: list[Node] = []
        body: list[Node] = []
        target = tests
        for child in node.children:
            if child.type == "then":
                target = body
            elif child.is_named and child.type not in ("elif_clause", "else_clause", "comment"):
                target.append(child)
        decision = UNDECIDED
        if len(tests) == 1:
            decision = conditions.decide(tests[0], frame.source, frame.scope)
        self._block(tests, frame)
        return _Choice(body, decision)

    def _case(self, node: Node, frame: Frame) -> None:
        value = node.child_by_field_name("value")
        tested = None
        if value is not None:
            tested = conditions.tested_word(value, frame.source, frame.scope)
        choices = []
        for item in node.children:
            if item.type == "case_item":
                self.budget.spend()
                patterns = item.children_by_field_name("value")
                body = [child for child in item.children if child not in patterns]
                choices.append(_Choice(body, statements.arm(patterns, tested, frame)))
        self._choose(choices, frame)

    def _choose(self, choices: Sequence[_Choice], frame: Frame) -> None:
        """Walk the bodies of which the first whose condition holds is run."""
        possible = []
        for choice in choices:
            if choice.decision.is_certain and not choice.decision.truth:
                continue
            possible.append(choice)
            if choice.decision.is_certain:
                break
        if any(choice.decision.truth is None for choice in possible):
            self._alternatives(possible, frame)
        elif possible:
            self._assume(possible, frame)

    def _survives(self, body: Sequence[Node], frame: Frame) -> bool:
        """Walk a body; return whether what stands behind it may be reached."""
        named = [node for node in body if node.is_named]
        self._block(named, frame)
        return not (named and statements.ends(named[-1], frame))

    def _alternatives(self, choices: Sequence[_Choice], frame: Frame) -> None:
        """Walk bodies of which at most one runs, then keep what they agree on."""
        is_complete = choices[-1].decision.is_certain
        results = [] if is_complete else [frame.scope.branch()]
        for choice in choices:
            inner = frame.marked(branch=True).branched()
            if self._survives(choice.body, inner):
                results.append(inner.scope)
        if results:
            branches.merge(frame.scope, results)

    def _assume(self, choices: Sequence[_Choice], frame: Frame) -> None:
        """Walk all bodies, and go on with the one that runs if nothing is set at submission.

        A body that ends the script guards against misuse: what stands behind it is read.
        """
        taken: Scope | None = None
        before = frame.scope.branch()
        skipped: list[Scope] = []
        ground = Decision()
        for choice in choices:
            inner = frame.marked(branch=True).branched()
            survives = self._survives(choice.body, inner)
            if taken is None:
                ground = ground.resting_on(choice.decision)
            if not survives:
                continue
            if taken is None and choice.decision.truth:
                taken = inner.scope
            else:
                skipped.append(inner.scope)
        if taken is None:
            branches.assume(frame.scope, before, skipped, ground)
        else:
            is_certain = not ground.depends
            branches.assume(frame.scope, taken, [] if is_certain else [before, *skipped], ground)

    def _loop(self, node: Node, frame: Frame) -> None:
        """Walk the body of a loop once; what it changes is not known behind it."""
        tests = [test for test in node.children_by_field_name("condition") if test.is_named]
        if node.type == "while_statement" and statements.never_turns(node, tests, frame):
            return
        inner = frame.marked(loop=True).branched()
        if not statements.set_variable(node, inner):
            return
        self._block(tests, inner)
        body = node.child_by_field_name("body")
        if body is not None:
            self._block(body.children, inner)
        branches.merge(frame.scope, [frame.scope.branch(), inner.scope])

    # what changes the shell's state

    def _assign(self, node: Node, frame: Frame) -> None:
        for child in node.named_children if node.type == "variable_assignments" else (node,):
            assignments.assign(child, frame)

    def _declare(self, node: Node, frame: Frame) -> None:
        assignments.declare(node, frame)

    def _unset(self, node: Node, frame: Frame) -> None:
        assignments.unset(node, frame)

    def _define(self, node: Node, frame: Frame) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            frame.scope.functions[frame.text(name)] = (frame.source, body)

    def _compound(self, node: Node, frame: Frame) -> None:
        """Walk `{ ... }`; what `(( ... ))` changes is not known behind it."""
        if node.children and node.children[0].type == "((":
            assignments.forget_changed(frame.text(node), frame.scope)
        else:
            self._block(node.children, frame)

    def _error(self, node: Node, frame: Frame) -> None:
        """Note a syntax error, and walk what can be read inside it."""
        text = frame.text(node)
        if text.strip(" \t\n&|;"):
            self.errors.append(text)
            self._block(node.children, frame.marked(broken=True))

    _HANDLERS: ClassVar[dict[str, Callable[[Walker, Node, Frame], None]]] = {
        "command": _command,
        "redirected_statement": _redirected,
        "pipeline": _pipeline,
        "subshell": _subshell,
        "list": _and_or,
        "if_statement": _if,
        "case_statement": _case,
        "for_statement": _loop,
        "c_style_for_statement": _loop,
        "while_statement": _loop,
        "variable_assignment": _assign,
        "variable_assignments": _assign,
        "declaration_command": _declare,
        "unset_command": _unset,
        "function_definition": _define,
        "compound_statement": _compound,
        "ERROR": _error,
    }
