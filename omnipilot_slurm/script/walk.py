"""The order in which bash would run a script: statements in, one visit per simple command out.

Follows assignments, functions and branches; what a branch or loop decides is marked so. Nothing
is run, and nothing outside the text is looked at. Called by serving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from omnipilot_slurm.script import expand
from omnipilot_slurm.script.expand import Scope, Words
from omnipilot_slurm.script.source import Expired, Segment, Source, Splice, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_COMMANDS: Final = 5000
_MAX_DEPTH: Final = 60
_TESTS: Final = frozenset({"[", "test", "grep", "which", "type", "hash", "diff", "cmp", "false"})


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
class Heredoc:
    """The text fed to a command; `literal` says that its delimiter was quoted."""

    source: Source
    literal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command after expansion.

    `assignments` stand before its name; `stdin` is its heredoc; `writes` the file it is sent to.
    """

    words: Words
    assignments: dict[str, Word]
    scope: Scope
    context: Context
    stdin: Heredoc | None = None
    writes: Word | None = None


Visit: TypeAlias = Callable[[Command], None]


@dataclass(slots=True)
class Walker:
    """Walks syntax trees in the order of execution and calls `visit` for each command."""

    visit: Visit
    expired: Expired
    #: texts of syntax errors that may hide commands
    errors: list[str] = field(default_factory=list)
    _n_commands: int = 0
    _depth: int = 0

    def run(self, source: Source, scope: Scope, context: Context) -> None:
        """Walk a text; raises OverBudgetError where it cannot be parsed within the budget."""
        root = source.parse(self.expired)
        if root is None:
            raise OverBudgetError
        self.block(root.children, source, scope, context)

    def call(self, name: str, args: Words, scope: Scope, context: Context) -> bool:
        """Walk the body of a function called by name; False where there is no such function."""
        if name not in scope.functions or self._depth > _MAX_DEPTH // 2:
            return False
        source, body = scope.functions[name]
        inner = replace(
            scope, args=tuple(word for word in args if isinstance(word, Word)), in_function=True
        )
        parameters = context.parameters or bool(args)
        self.statement(body, source, inner, replace(context, parameters=parameters))
        return True

    def block(self, nodes: Sequence[Node], source: Source, scope: Scope, context: Context) -> None:
        """Walk statements one after the other."""
        for node in nodes:
            if node.is_named:
                self.statement(node, source, scope, context)

    def statement(
        self,
        node: Node,
        source: Source,
        scope: Scope,
        context: Context,
        stdin: Heredoc | None = None,
    ) -> None:
        """Walk one statement of any kind."""
        self._depth += 1
        if self._depth > _MAX_DEPTH or self.expired():
            raise OverBudgetError
        match node.type:
            case "command":
                self._command(node, (), source, scope, context, stdin)
            case "redirected_statement":
                self._redirected(node, source, scope, context, stdin)
            case "variable_assignment":
                self._assign(node, source, scope)
            case "variable_assignments":
                self._assign_all(node, source, scope)
            case "declaration_command":
                self._declare(node, source, scope)
            case "unset_command":
                self._unset(node, source, scope)
            case "pipeline":
                self._pipeline(node, source, scope, context)
            case "list":
                self._list(node, source, scope, context)
            case "if_statement":
                self._if(node, source, scope, context)
            case "case_statement":
                self._case(node, source, scope, context)
            case "for_statement" | "while_statement" | "c_style_for_statement":
                self._loop(node, source, scope, context)
            case "function_definition":
                self._define(node, source, scope)
            case "subshell":
                self.block(node.children, source, scope.branch(), context)
            case "ERROR":
                self._error(node, source, scope, context)
            case "comment" | "test_command":
                pass
            case _:
                self.block(node.children, source, scope, context)
        self._depth -= 1

    # simple commands

    def _command(
        self,
        node: Node,
        redirects: Sequence[Node],
        source: Source,
        scope: Scope,
        context: Context,
        stdin: Heredoc | None,
    ) -> None:
        self._n_commands += 1
        if self._n_commands > _MAX_COMMANDS:
            raise OverBudgetError
        words: Words = []
        assignments: dict[str, Word] = {}
        writes: Word | None = None
        for child in node.children:
            if child.type == "variable_assignment":
                self._prefix(child, source, scope, assignments)
            elif child.type == "file_redirect":
                writes = self._file(child, words, source, scope) or writes
            elif child.type == "herestring_redirect" or not child.is_named:
                continue
            elif child.type == "ERROR":
                context = replace(context, broken=True)
            else:
                words += expand.words_of(child, source, scope)
        for redirect in redirects:
            writes = self._file(redirect, words, source, scope) or writes
        self._simple(
            Command(words=words, assignments=assignments, scope=scope, context=context,
                    stdin=stdin, writes=writes)
        )  # fmt: skip

    def _prefix(
        self, node: Node, source: Source, scope: Scope, assignments: dict[str, Word]
    ) -> None:
        """Note an assignment before a command; the grammar swallows those of the line above."""
        if _line_ends_behind(node, source):
            self._assign(node, source, scope)
            return
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and value is not None:
            assignments[expand.text_of(name, source)] = expand.word_of(value, source, scope)

    def _file(self, node: Node, words: Words, source: Source, scope: Scope) -> Word | None:
        """Return the file of a redirect; words that the grammar counts to it are arguments."""
        if node.type != "file_redirect":
            return None
        targets = node.children_by_field_name("destination")
        for extra in targets[1:]:
            words += expand.words_of(extra, source, scope)
        if not targets or targets[0].type == "number":
            return None
        is_output = any(child.type in (">", ">>", "&>", "&>>", ">|") for child in node.children)
        return expand.word_of(targets[0], source, scope) if is_output else None

    def _simple(self, command: Command) -> None:
        words, scope = command.words, command.scope
        first = words[0].text if words and isinstance(words[0], Word) else None
        if first is not None and self.call(first, words[1:], scope, command.context):
            return
        if first in ("read", "mapfile", "readarray", "getopts"):
            self._read_into(words, scope)
        elif first == "set":
            self._set(words, scope)
        elif first == "shift" and len(words) == 1:
            scope.args = scope.args[1:]
        self.visit(command)

    def _read_into(self, words: Words, scope: Scope) -> None:
        for word in words[1:]:
            if isinstance(word, Word) and word.text and word.text.isidentifier():
                scope.variables[word.text] = Word(segments=(expand.unknown(),))

    def _set(self, words: Words, scope: Scope) -> None:
        texts = [word.text if isinstance(word, Word) else None for word in words]
        if "--" in texts:
            behind = words[texts.index("--") + 1 :]
            scope.args = tuple(word for word in behind if isinstance(word, Word))

    def _redirected(
        self, node: Node, source: Source, scope: Scope, context: Context, stdin: Heredoc | None
    ) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child != body and child.is_named]
        here = next((child for child in redirects if child.type == "heredoc_redirect"), None)
        followers: list[Node] = []
        if here is not None:
            stdin = self._heredoc(here, source, scope)
            inner = [child for child in here.children if child.is_named]
            redirects = [*redirects, *(child for child in inner if child.type == "file_redirect")]
            followers = [child for child in inner if not child.type.startswith(("heredoc", "file"))]
        if body is not None and body.type == "command":
            self._command(body, redirects, source, scope, context, stdin)
        elif body is not None:
            self.statement(body, source, scope, context, stdin)
        for follower in followers:
            self.statement(follower, source, scope, context, stdin)

    def _heredoc(self, node: Node, source: Source, scope: Scope) -> Heredoc | None:
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return None
        literal = any(mark in expand.text_of(start, source) for mark in "'\"\\")
        if literal:
            segments = source.literal(body.start_byte, body.end_byte)
        else:
            segments = expand.word_of(body, source, scope).segments
        return Heredoc(source=Source(segments), literal=literal)

    # variables

    def _assign(self, node: Node, source: Source, scope: Scope) -> None:
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node is None:
            return
        appends = any(child.type == "+=" for child in node.children)
        name = expand.text_of(name_node, source)
        if "[" in name:
            scope.variables[name.partition("[")[0]] = [Splice()]
            return
        new: Word | Words
        if value is not None and value.type == "array":
            new = [w for child in value.named_children if child.type != "comment"
                   for w in expand.words_of(child, source, scope)]  # fmt: skip
        elif value is None:
            new = Word(segments=(Segment(text=""),))
        else:
            new = expand.word_of(value, source, scope)
        scope.variables[name] = _appended(scope.variables.get(name), new) if appends else new

    def _assign_all(self, node: Node, source: Source, scope: Scope) -> None:
        for child in node.named_children:
            self._assign(child, source, scope)

    def _declare(self, node: Node, source: Source, scope: Scope) -> None:
        exports = bool(node.children) and node.children[0].type in ("export", "declare", "typeset")
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, source, scope)
                child = child.child_by_field_name("name") or child  # noqa: PLW2901 - the name counts
            if exports:
                scope.exported.add(expand.text_of(child, source))

    def _unset(self, node: Node, source: Source, scope: Scope) -> None:
        for child in node.named_children:
            scope.variables[expand.text_of(child, source)] = Word(segments=(Segment(text=""),))

    # compound statements

    def _pipeline(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        for child in node.children:
            if child.is_named:
                self.statement(child, source, scope, context)

    def _list(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        """Walk `A && B` and `A || B`; behind a test or `||` it depends whether B runs."""
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        self.statement(left, source, scope, context)
        if operator == "||" or _is_test(left, source):
            self._alternatives([[right]], [context], source, scope, complete=False)
        else:
            self.statement(right, source, scope, context)

    def _if(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        bodies: list[list[Node]] = [[]]
        complete = in_body = False
        for child in node.children:
            if child.type == "then":
                in_body = True
            elif child.type in ("elif_clause", "else_clause"):
                bodies.append(list(child.children))
                complete = complete or child.type == "else_clause"
            elif in_body:
                bodies[0].append(child)
            elif child.is_named:
                self.statement(child, source, scope, context)
        self._alternatives(bodies, [context] * len(bodies), source, scope, complete=complete)

    def _case(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        items = [child for child in node.children if child.type == "case_item"]
        bodies = [[c for index, c in enumerate(item.children)
                   if item.field_name_for_child(index) != "value"] for item in items]  # fmt: skip
        self._alternatives(bodies, [context] * len(bodies), source, scope, complete=False)

    def _alternatives(
        self,
        bodies: Sequence[Sequence[Node]],
        contexts: Sequence[Context],
        source: Source,
        scope: Scope,
        *,
        complete: bool,
    ) -> None:
        """Walk bodies of which at most one runs, then keep only what they agree on."""
        results = [] if complete else [scope.branch()]
        for body, context in zip(bodies, contexts, strict=True):
            inner = scope.branch()
            self.block(body, source, inner, replace(context, branch=True))
            results.append(inner)
        _merge(scope, results)

    def _loop(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        inner = scope.branch()
        variable = node.child_by_field_name("variable")
        if variable is not None:
            values = [word for child in node.children_by_field_name("value")
                      for word in expand.words_of(child, source, scope)]  # fmt: skip
            single = values[0] if len(values) == 1 else None
            value = single if isinstance(single, Word) else Word(segments=(expand.unknown(),))
            inner.variables[expand.text_of(variable, source)] = value
        for child in node.children_by_field_name("condition"):
            if child.is_named:
                self.statement(child, source, inner, replace(context, loop=True))
        body = node.child_by_field_name("body")
        if body is not None:
            self.block(body.children, source, inner, replace(context, loop=True))
        _merge(scope, [scope.branch(), inner])

    def _define(self, node: Node, source: Source, scope: Scope) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            scope.functions[expand.text_of(name, source)] = (source, body)

    def _error(self, node: Node, source: Source, scope: Scope, context: Context) -> None:
        text = expand.text_of(node, source)
        if text.strip(" \t\n&|;"):
            self.errors.append(text)
            self.block(node.children, source, scope, replace(context, broken=True))


def _line_ends_behind(node: Node, source: Source) -> bool:
    """Return whether a line end (not an escaped one) follows an assignment at once."""
    rest = source.data[node.end_byte : node.end_byte + 200]
    return rest.lstrip(b" \t").startswith((b"\n", b";", b"#"))


def _is_test(node: Node, source: Source) -> bool:
    while node.type in ("negated_command", "redirected_statement", "pipeline", "list"):
        if not node.named_children:
            return False
        node = node.named_children[-1 if node.type in ("pipeline", "list") else 0]
    if node.type == "test_command":
        return True
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and expand.text_of(name, source) in _TESTS | {"command"}


def _appended(old: Word | Words | None, new: Word | Words) -> Word | Words:
    if isinstance(old, list) or isinstance(new, list):
        return [*(old if isinstance(old, list) else [old] if old else []),
                *(new if isinstance(new, list) else [new])]  # fmt: skip
    return Word(segments=(*(old.segments if old else ()), *new.segments))


def _merge(scope: Scope, results: Sequence[Scope]) -> None:
    """Keep in `scope` the values on which all results agree; the rest is not known."""
    if not results:
        return
    names = {name for result in results for name in result.variables}
    for name in names:
        values = [result.variables.get(name) for result in results]
        if all(value is values[0] for value in values) and values[0] is not None:
            scope.variables[name] = values[0]
        else:
            scope.variables[name] = _agreed(values)
    for result in results:
        scope.functions.update(result.functions)
        scope.exported |= result.exported


def _agreed(values: Sequence[Word | Words | None]) -> Word | Words:
    if any(isinstance(value, list) for value in values):
        lists = [value if isinstance(value, list) else [] for value in values]
        common: Words = []
        for items in zip(*lists, strict=False):
            if any(item != items[0] for item in items):
                break
            common.append(items[0])
        longest = max(len(items) for items in lists)
        return common if len(common) == longest else [*common, Splice()]
    texts = {value.text if isinstance(value, Word) else None for value in values}
    if len(texts) == 1 and None not in texts:
        return Word(segments=(Segment(text=texts.pop(), how=expand.How.VARIABLE, fixed=False),))
    return Word(segments=(expand.unknown(),))
