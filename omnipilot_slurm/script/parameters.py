"""Parameter expansion: $X, ${X:-default}, ${X##*/}, "${ARRAY[@]}" and "$@".

In: an expansion node and the variables in force. Out: segments, or whole words for an array.
Called by expand.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.script.words import (
    MAX_WORDS,
    How,
    Segment,
    Splice,
    Value,
    Word,
    Words,
    decode,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_PARAMETER: Final = re.compile(
    r"^\$\{?(?P<mark>[!#](?=[\w@*]))?(?P<name>\w+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?"
    r"(?P<op>:?[-=?+]|[%#]{1,2}|//?|\^{1,2}|,{1,2}|:|@|$|\}$)"
)
_SLICE: Final = re.compile(r":\s*(?P<first>\d{1,6})\s*(?::\s*(?P<count>\d{1,6})\s*)?\}$")
#: plain text for plain text: no pattern, no expansion, no quotes
_REPLACEMENT: Final = re.compile(
    r"\$\{\w+//?(?P<old>(?![#%])(?:\\/|[^][*?(){}$\"'`/\\])+)(?:/(?P<new>(?:\\/|[^&{}$\"'`\\])*))?\}"
)
_ESCAPED: Final = re.compile(r"\\(/)")
_SPREAD: Final = re.compile(rb"\$\{(?P<name>\w+)\[@\]\}|\$@|\$\{@\}")
_NOTHING: Final = (Segment(""),)
_MAX_PATTERN_TEXT: Final = 512
_CHARS_PER_STEP: Final = 4
_QUOTE_EXPANSION_QUOTE: Final = 3


class Default(NamedTuple):
    """How to read the word behind an operator: nodes inside it, and the plain text between."""

    inner: Callable[[Node], tuple[Segment, ...]]
    plain: Callable[[int, int], tuple[Segment, ...]]


class _Operation(NamedTuple):
    """One `${name<operator>word}`; `value` None: the parameter is not set as far as is known."""

    node: Node
    scope: Scope
    name: str
    operator: str
    value: tuple[Segment, ...] | None
    default: Default

    @property
    def is_missing(self) -> bool:
        """Whether the operator finds the parameter unset (or, behind a colon, empty)."""
        if self.value is None:
            return True
        is_empty = all(segment.text == "" for segment in self.value)
        return is_empty and self.operator.startswith(":")


def expanded(node: Node, source: Source, scope: Scope, default: Default) -> tuple[Segment, ...]:
    """Return the segments that a `$X` or `${X...}` becomes."""
    match = _PARAMETER.match(_text(node, source))
    if match is None or match["mark"] == "!":
        return (unknown(),)
    name, operator = match["name"], match["op"].rstrip("}")
    if match["mark"] == "#" or (name == "#" and not operator):
        return (_length(name, match["index"], scope),)
    placed = source.unknown_segment(name)
    if placed is not None:
        return (placed,)
    value = scope.value(name, match["index"])
    if operator:
        return _operated(_Operation(node, scope, name, operator, value, default), source)
    if value is not None or scope.is_known_unset(name):
        return value or ()
    how = How.SLURM_ENV if name.startswith("SLURM_") else How.UNKNOWN
    return (unknown(frozenset({name}), how=how, fixed=not scope.unseen),)


def _operated(operation: _Operation, source: Source) -> tuple[Segment, ...]:
    kind = operation.operator.lstrip(":")
    if kind in ("-", "="):
        return _default(operation) if operation.is_missing else _given(operation)
    if kind == "+":
        return _alternative(operation)
    if kind == "?":
        return (unknown(),) if operation.value is None else operation.value
    return (_trimmed(operation, source),)


def _given(operation: _Operation) -> tuple[Segment, ...]:
    """Return the value of a parameter that makes its default unused."""
    name, scope = operation.name, operation.scope
    how = How.LITERAL
    if name.isdecimal():
        how = scope.argument_default_how
    elif name in scope.environment and name not in scope.variables:
        how = How.DEFAULT_EXPANSION
    return tuple(segment.through(how) for segment in operation.value or ())


def _default(operation: _Operation) -> tuple[Segment, ...]:
    name, scope = operation.name, operation.scope
    how = scope.argument_default_how if name.isdecimal() else How.DEFAULT_EXPANSION
    depends = frozenset() if scope.is_known_unset(name) else frozenset({name})
    is_fixed = not (scope.unseen and depends)
    result = tuple(
        segment.through(how, depends)._replace(fixed=segment.fixed and is_fixed)
        for segment in _word_behind_operator(operation) or _NOTHING
    )
    if operation.operator.endswith("="):
        scope.variables[name] = Word(result)
    return result


def _alternative(operation: _Operation) -> tuple[Segment, ...]:
    if operation.value is None and not operation.scope.is_known_unset(operation.name):
        options = (Word(()), Word(_word_behind_operator(operation)))
        return (unknown(frozenset({operation.name}))._replace(options=options),)
    if operation.is_missing or operation.value is None:
        return ()
    if any(segment.text is None for segment in operation.value):
        return (unknown(),)
    return tuple(segment.through(How.VARIABLE) for segment in _word_behind_operator(operation))


def _word_behind_operator(operation: _Operation) -> tuple[Segment, ...]:
    node, default = operation.node, operation.default
    segments: list[Segment] = []
    position: int | None = None
    for index, child in enumerate(node.children):
        if child.type == "}":
            break
        if position is None:
            if node.field_name_for_child(index) == "operator":
                position = child.end_byte
            continue
        segments += default.plain(position, child.start_byte)
        segments += default.inner(child)
        position = child.end_byte
    if position is not None:
        segments += default.plain(position, node.end_byte - 1)
    return tuple(segment for segment in segments if segment.text != "")


def _trimmed(operation: _Operation, source: Source) -> Segment:
    """Apply `#`, `##`, `%`, `%%`, `/`, `//`, `^^` and `,,` to a value that is known."""
    word = Word(operation.value or ())
    pattern = Word(_word_behind_operator(operation)).text
    text = word.text
    result = None
    if text is not None and operation.value and len(text) <= _MAX_PATTERN_TEXT:
        operation.scope.budget.spend(len(text) // _CHARS_PER_STEP)
        if operation.operator in ("^^", ",,") and _text(operation.node, source).endswith(
            operation.operator + "}"
        ):
            result = text.upper() if operation.operator == "^^" else text.lower()
        elif operation.operator in ("#", "##", "%", "%%") and pattern is not None:
            result = _without_affix(text, operation.operator, pattern)
        elif operation.operator in ("/", "//"):
            result = _replaced(text, operation.operator, _text(operation.node, source))
    depends = word.depends if operation.value is not None else frozenset({operation.name})
    follows = any(segment.follows for segment in operation.value or ())
    return Segment(result, how=How.COMPUTED, depends=depends, fixed=word.fixed, follows=follows)


def _without_affix(text: str, operator: str, pattern: str) -> str:
    """Return a text without the shortest (one sign) or longest (two) match at its start or end."""
    matches = re.compile(fnmatch.translate(pattern)).match
    lengths = range(len(text) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        at_start = operator[0] == "#"
        affix = text[:length] if at_start else text[len(text) - length :]
        if matches(affix):
            return text[length:] if at_start else text[: len(text) - length]
    return text


def _replaced(text: str, operator: str, expansion: str) -> str | None:
    """Return a text with the first `old` of `${X/old/new}` replaced, or with `//` all of them."""
    match = _REPLACEMENT.fullmatch(expansion)
    if match is None:
        return None
    old = _ESCAPED.sub(r"\1", match["old"])
    new = _ESCAPED.sub(r"\1", match["new"] or "")
    return text.replace(old, new) if operator == "//" else text.replace(old, new, 1)


def _length(name: str, index: str | None, scope: Scope) -> Segment:
    if name in ("@", "#", "*"):
        if any(isinstance(word, Splice) for word in scope.args):
            return unknown(how=How.COMPUTED, fixed=False)
        return Segment(str(len(scope.args)), how=How.COMPUTED)
    if index not in ("@", "*"):
        return unknown(how=How.COMPUTED)
    found = _items(name, "@", scope)
    items = [item for item in found or () if isinstance(item, Word)]
    if found is None or len(items) < len(found):
        return unknown(how=How.COMPUTED)
    return Segment(
        str(len(items)),
        how=How.COMPUTED,
        depends=frozenset().union(*(item.depends for item in items)),
        fixed=all(item.fixed for item in items),
        follows=any(segment.follows for item in items for segment in item.segments),
    )


def array_of(node: Node, source: Source, scope: Scope) -> Words | None:
    """Return the words of "${ARRAY[@]}" and "$@" standing alone, None for anything else."""
    inner = _inside_quotes(node)
    if inner is None or inner.type not in ("expansion", "simple_expansion"):
        return None
    text = _text(inner, source)
    match = _PARAMETER.match(text)
    if match is None or match["mark"]:
        return None
    operator = match["op"].rstrip("}")
    part = _SLICE.match(text, match.start("op")) if operator == ":" else None
    if operator and part is None:
        return None
    items = _items(match["name"], match["index"], scope)
    if items is None or part is None:
        return items
    return _sliced(items, part, is_arguments=match["name"] == "@")


def spreads(node: Node, source: Source, scope: Scope) -> bool:
    """Return whether a word holds an array of several words among other text."""
    for match in _SPREAD.finditer(source.data, node.start_byte, node.end_byte):
        name = decode(match["name"] or b"@")
        value = scope.variables.get(name)
        if isinstance(value, list) and len(value) > 1:
            return True
    return False


def _inside_quotes(node: Node) -> Node | None:
    while node.type in ("string", "command_name") and node.named_child_count == 1:
        if node.type == "string" and node.child_count != _QUOTE_EXPANSION_QUOTE:
            return None
        node = node.named_children[0]
    return node


def _items(name: str, index: str | None, scope: Scope) -> Words | None:
    if name == "@":
        how = scope.argument_how
        return [w if isinstance(w, Splice) else w.through(how) for w in scope.args]
    if index != "@":
        return None
    value: Value = scope.variables.get(name)
    if isinstance(value, list):
        return [w if isinstance(w, Splice) else w.through(How.ARRAY) for w in value[:MAX_WORDS]]
    if isinstance(value, Word):
        return [value.through(How.ARRAY)]
    if scope.is_known_unset(name):
        return []
    return [Splice(depends=frozenset({name}), fixed=not scope.unseen)]


def _sliced(items: Words, part: re.Match[str], *, is_arguments: bool) -> Words:
    """Return `${A[@]:first:count}`; arguments are counted from 1."""
    first = max(int(part["first"]) - is_arguments, 0)
    if any(isinstance(item, Splice) for item in items):
        return [Splice()]
    end = None if part["count"] is None else first + int(part["count"])
    return items[first:end]


def _text(node: Node, source: Source) -> str:
    return decode(source.data[node.start_byte : node.end_byte])
