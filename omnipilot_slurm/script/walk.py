"""The order in which bash would run a script: statements in, one visit per simple command out.

Follows assignments, functions and branches; what a branch or loop decides is marked so. Nothing
is run, and nothing outside the text is looked at. Called by serving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from omnipilot_slurm.script import branches, expand
from omnipilot_slurm.script.source import Segment, Source, Splice, Word

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.expand import Scope, Words
    from omnipilot_slurm.script.source import Expired

_MAX_COMMANDS: Final = 5000
_MAX_DEPTH: Final = 60
_TESTS: Final = frozenset({"[", "test", "grep", "which", "type", "hash", "command", "cmp", "false"})
_READERS: Final = frozenset({"read", "mapfile", "readarray", "getopts"})
_OUTPUTS: Final = frozenset({">", ">>", "&>", "&>>", ">|"})


class OverBudgetError(Exception):
    """The script is too large, too deep or too slow to be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What stands around a command; each flag names why its launch must not be edited."""

    branch: bool = False
    loop: bool = False
    parameters: bool = False
    evaluated: bool = False
    generated: bool = False
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The text being walked, the variables in force, and what stands around."""

    source: Source
    scope: Scope
    context: Context = Context()

    def marked(self, **flags: bool) -> Frame:
        """Return the frame with flags of its context set."""
        return replace(self, context=replace(self.context, **flags))

    def words(self, node: Node) -> Words:
        """Expand an argument."""
        return expand.words_of(node, self.source, self.scope)

    def word(self, node: Node) -> Word:
        """Expand a node as one word."""
        return expand.word_of(node, self.source, self.scope)

    def text(self, node: Node) -> str:
        """Return a node's own text."""
        return expand.text_of(node, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command after expansion.

    `assignments` stand before its name; `stdin` is its heredoc; `writes` the file it is sent to;
    `end` is the byte of the script behind its last word, None where nothing may be put there.
    """

    words: Words
    assignments: dict[str, Word]
    scope: Scope
    context: Context
    stdin: Source | None = None
    writes: Word | None = None
    end: int | None = None


@dataclass(slots=True)
class _Parts:
    """What the children of a command node add up to."""

    words: Words = field(default_factory=list)
    assignments: dict[str, Word] = field(default_factory=dict)
    writes: Word | None = None
    end: int = 0
    broken: bool = False
    line_start: int = 0

    def add_words(self, node: Node, frame: Frame) -> None:
        self.words += frame.words(node)
        self.end = max(self.end, node.end_byte)


Visit: TypeAlias = Callable[[Command], None]


@dataclass(slots=True)
class Walker:
    """Walks syntax trees in the order of execution and calls `visit` for each command.

    `errors` collects the texts of syntax errors, which may hide commands.
    """

    visit: Visit
    expired: Expired
    errors: list[str] = field(default_factory=list)
    _n_commands: int = 0
    _depth: int = 0

    def run(self, frame: Frame) -> None:
        """Walk a text; raises OverBudgetError where it cannot be parsed within the budget."""
        root = frame.source.parse(self.expired)
        if root is None:
            raise OverBudgetError
        self._block(root.children, frame)

    def _block(self, nodes: Sequence[Node], frame: Frame) -> None:
        for node in nodes:
            if node.is_named:
                self._statement(node, frame)

    def _statement(self, node: Node, frame: Frame, stdin: Source | None = None) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH or self.expired():
            raise OverBudgetError
        if node.type == "command":
            self._command(node, (), frame, stdin)
        elif node.type == "redirected_statement":
            self._redirected(node, frame, stdin)
        elif node.type == "pipeline":
            for index, child in enumerate(node.named_children):
                self._statement(child, frame, stdin if index == 0 else None)
        elif node.type == "subshell":
            self._block(node.children, replace(frame, scope=frame.scope.branch()))
        elif node.type not in ("comment", "test_command"):
            handler = _HANDLERS.get(node.type)
            if handler is not None:
                handler(self, node, frame)
            else:
                self._block(node.children, frame)
        self._depth -= 1

    # simple commands

    def _command(
        self, node: Node, redirects: Sequence[Node], frame: Frame, stdin: Source | None
    ) -> None:
        self._n_commands += 1
        if self._n_commands > _MAX_COMMANDS:
            raise OverBudgetError
        parts = _Parts(line_start=_line_start(node, frame.source))
        for child in (*node.children, *redirects):
            self._part(child, frame, parts)
        context = replace(frame.context, broken=True) if parts.broken else frame.context
        command = Command(
            words=parts.words,
            assignments=parts.assignments,
            scope=frame.scope,
            context=context,
            stdin=stdin,
            writes=parts.writes,
            end=frame.source.origin(parts.end),
        )
        self._run_command(command, frame)

    def _part(self, child: Node, frame: Frame, parts: _Parts) -> None:
        if child.type == "variable_assignment":
            self._prefix(child, frame, parts)
        elif child.type == "file_redirect":
            self._redirect(child, frame, parts)
        elif child.type == "ERROR":
            parts.broken = True
        elif child.is_named and child.type not in ("herestring_redirect", "heredoc_redirect"):
            parts.add_words(child, frame)

    def _prefix(self, node: Node, frame: Frame, parts: _Parts) -> None:
        """Note an assignment before a command; the grammar swallows those of the line above."""
        if node.end_byte <= parts.line_start:
            _assign(self, node, frame)
            return
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None:
            empty = Word(segments=(Segment(text=""),))
            parts.assignments[frame.text(name)] = empty if value is None else frame.word(value)

    def _redirect(self, node: Node, frame: Frame, parts: _Parts) -> None:
        """Note where output goes; words that the grammar counts to a redirect are arguments."""
        targets = node.children_by_field_name("destination")
        for extra in targets[1:]:
            parts.add_words(extra, frame)
        to_file = targets and targets[0].type != "number"
        if to_file and any(child.type in _OUTPUTS for child in node.children):
            parts.writes = frame.word(targets[0])

    def _run_command(self, command: Command, frame: Frame) -> None:
        words, scope = command.words, command.scope
        first = words[0].text if words and isinstance(words[0], Word) else None
        if first is not None and first in scope.functions and self._depth <= _MAX_DEPTH // 2:
            self._call(first, words[1:], frame)
            return
        if first in _READERS:
            _forget(words[1:], scope)
        elif first == "set":
            _set_arguments(words, scope)
        elif first == "shift" and len(words) == 1:
            scope.args = scope.args[1:]
        self.visit(command)

    def _call(self, name: str, args: Words, frame: Frame) -> None:
        source, body = frame.scope.functions[name]
        given = tuple(word for word in args if isinstance(word, Word))
        inner = replace(frame.scope, args=given, in_function=True)
        marked = frame.marked(parameters=frame.context.parameters or bool(args))
        self._statement(body, replace(marked, source=source, scope=inner))

    def _redirected(self, node: Node, frame: Frame, stdin: Source | None) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child != body and child.is_named]
        here = next((child for child in redirects if child.type == "heredoc_redirect"), None)
        followers: list[Node] = []
        if here is not None:
            stdin = _heredoc(here, frame)
            inner = [child for child in here.children if child.is_named]
            redirects += [child for child in inner if child.type == "file_redirect"]
            followers = [c for c in inner if not c.type.startswith(("heredoc", "file", "ERROR"))]
        if body is not None and body.type == "command":
            self._command(body, redirects, frame, stdin)
        elif body is not None:
            self._statement(body, frame, stdin)
        for follower in followers:
            self._statement(follower, frame, stdin)

    # statements

    def _list(self, node: Node, frame: Frame) -> None:
        """Walk `A && B` and `A || B`; behind a test or `||` it depends whether B runs."""
        named = node.named_children
        if not named:
            return
        left, right = named[0], named[-1]
        self._statement(left, frame)
        is_or = any(child.type == "||" for child in node.children)
        if is_or or _is_test(left, frame):
            self._alternatives([[right]], frame, complete=False)
        else:
            self._statement(right, frame)

    def _if(self, node: Node, frame: Frame) -> None:
        bodies: list[list[Node]] = [[]]
        complete = in_body = False
        for child in node.children:
            if child.type in ("elif_clause", "else_clause"):
                bodies.append(list(child.children))
                complete = complete or child.type == "else_clause"
            elif child.type == "then":
                in_body = True
            elif in_body:
                bodies[0].append(child)
            elif child.is_named:
                self._statement(child, frame)
        self._alternatives(bodies, frame, complete=complete)

    def _case(self, node: Node, frame: Frame) -> None:
        bodies = [
            [c for i, c in enumerate(item.children) if item.field_name_for_child(i) != "value"]
            for item in node.children
            if item.type == "case_item"
        ]
        self._alternatives(bodies, frame, complete=False)

    def _alternatives(
        self, bodies: Sequence[Sequence[Node]], frame: Frame, *, complete: bool
    ) -> None:
        """Walk bodies of which at most one runs, then keep only what they agree on."""
        results = [] if complete else [frame.scope.branch()]
        for body in bodies:
            inner = replace(frame.marked(branch=True), scope=frame.scope.branch())
            self._block(body, inner)
            results.append(inner.scope)
        branches.merge(frame.scope, results)

    def _loop(self, node: Node, frame: Frame) -> None:
        inner = replace(frame.marked(loop=True), scope=frame.scope.branch())
        variable = node.child_by_field_name("variable")
        if variable is not None:
            values = [w for v in node.children_by_field_name("value") for w in frame.words(v)]
            single = values[0] if len(values) == 1 else None
            value = single if isinstance(single, Word) else Word(segments=(expand.unknown(),))
            inner.scope.variables[frame.text(variable)] = value
        self._block(node.children_by_field_name("condition"), inner)
        body = node.child_by_field_name("body")
        if body is not None:
            self._block(body.children, inner)
        branches.merge(frame.scope, [frame.scope.branch(), inner.scope])

    def _error(self, node: Node, frame: Frame) -> None:
        text = frame.text(node)
        if text.strip(" \t\n&|;"):
            self.errors.append(text)
            self._block(node.children, frame.marked(broken=True))


def _line_start(node: Node, source: Source) -> int:
    """Return where the line of a command's name starts, behind assignments of earlier lines."""
    name = node.child_by_field_name("name")
    if name is None or name.start_byte == node.start_byte:
        return 0
    start, position = 0, node.start_byte
    for child in node.children:
        gap = source.data[position : child.start_byte].replace(b"\\\n", b"")
        if b"\n" in gap or b";" in gap:
            start = child.start_byte
        if child == name:
            break
        position = child.end_byte
    return start


def _assign(_walker: Walker, node: Node, frame: Frame) -> None:
    name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name_node is None:
        return
    variables, name = frame.scope.variables, frame.text(name_node)
    if "[" in name:
        variables[name.partition("[")[0]] = [Splice()]
        return
    new: Word | Words
    if value is None:
        new = Word(segments=(Segment(text=""),))
    elif value.type == "array":
        items = [child for child in value.named_children if child.type != "comment"]
        new = [word for child in items for word in frame.words(child)]
    else:
        new = frame.word(value)
    is_append = any(child.type == "+=" for child in node.children)
    variables[name] = branches.appended(variables.get(name), new) if is_append else new


def _assign_all(walker: Walker, node: Node, frame: Frame) -> None:
    for child in node.named_children:
        _assign(walker, child, frame)


def _declare(walker: Walker, node: Node, frame: Frame) -> None:
    exports = bool(node.children) and node.children[0].type in ("export", "declare", "typeset")
    for child in node.named_children:
        name: Node | None = child
        if child.type == "variable_assignment":
            _assign(walker, child, frame)
            name = child.child_by_field_name("name")
        if exports and name is not None:
            frame.scope.exported.add(frame.text(name))


def _unset(_walker: Walker, node: Node, frame: Frame) -> None:
    for child in node.named_children:
        frame.scope.variables[frame.text(child)] = Word(segments=(Segment(text=""),))


def _define(_walker: Walker, node: Node, frame: Frame) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        frame.scope.functions[frame.text(name)] = (frame.source, body)


def _forget(words: Words, scope: Scope) -> None:
    for word in words:
        if isinstance(word, Word) and word.text and word.text.isidentifier():
            scope.variables[word.text] = Word(segments=(expand.unknown(),))


def _set_arguments(words: Words, scope: Scope) -> None:
    texts = [word.text if isinstance(word, Word) else None for word in words]
    if "--" in texts:
        behind = words[texts.index("--") + 1 :]
        scope.args = tuple(word for word in behind if isinstance(word, Word))


def _heredoc(node: Node, frame: Frame) -> Source | None:
    """Return the text of a heredoc: as it stands behind a quoted delimiter, else expanded."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    if start is None or body is None:
        return None
    if any(mark in frame.text(start) for mark in "'\"\\"):
        segments = frame.source.literal(body.start_byte, body.end_byte)
    else:
        segments = frame.word(body).segments
    return Source(segments)


def _is_test(node: Node, frame: Frame) -> bool:
    while node.type in ("negated_command", "redirected_statement", "pipeline", "list"):
        if not node.named_children:
            return False
        node = node.named_children[-1 if node.type in ("pipeline", "list") else 0]
    if node.type == "test_command":
        return True
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and frame.text(name) in _TESTS


_Handler: TypeAlias = Callable[[Walker, "Node", Frame], None]
_HANDLERS: Final[dict[str, _Handler]] = {
    "variable_assignment": _assign,
    "variable_assignments": _assign_all,
    "declaration_command": _declare,
    "unset_command": _unset,
    "function_definition": _define,
    "list": Walker._list,
    "if_statement": Walker._if,
    "case_statement": Walker._case,
    "for_statement": Walker._loop,
    "c_style_for_statement": Walker._loop,
    "while_statement": Walker._loop,
    "ERROR": Walker._error,
}
