"""Text of a YAML file into a tree whose every node knows its file, line and column.

In: bytes and the name to show for them. Out: a tree of Scalar, Items and Pairs, plus every Fault
found on the way. Nothing is resolved: a plain `no` stays the text `no`, and strict_yaml decides
what the place it stands in makes of it. Called by strict_yaml.

The tree is built from libyaml's event stream rather than with yaml.compose: the events cost a
fifth of the time, and depth, size, tags and anchors are seen before anything is built from them.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from omnipilot_slurm.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 24
MAX_NODES = 400_000

#: what YAML 1.1 lets stand in a file; everything else is a control character or a lone surrogate
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class Scalar:
    """One word or text; `plain` is False where it was quoted or a block."""

    text: str
    plain: bool
    file: str
    line: int
    column: int


@dataclass(slots=True)
class Items:
    """A list."""

    file: str
    line: int
    column: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Pairs:
    """A mapping: by the key's text, the key itself and its value, in the order written."""

    file: str
    line: int
    column: int
    pairs: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)


Node = Scalar | Items | Pairs


def fault_at(node: Node, message: str) -> Fault:
    """Return a Fault at the place of a node."""
    return Fault(file=node.file, line=node.line, column=node.column, message=message)


def read_tree(
    data: bytes, *, file: str, parser: type[Any] | None = None
) -> tuple[Node | None, list[Fault]]:
    """Read one YAML document; the tree is None where it is empty or cannot be read at all."""
    text = _decode(data, file)
    if isinstance(text, Fault):
        return None, [text]
    builder = _Builder(file)
    try:
        for event in _events(text, parser or _fastest_parser()):
            builder.take(event)
            if builder.stopped:
                break
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the pure parser on "\\U00110000"
        builder.faults.append(_syntax_fault(error, text, file))
        return None, builder.faults
    return builder.root, builder.faults


def _fastest_parser() -> type[Any]:
    parser: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return parser


def _events(text: str, parser: type[Any]) -> Iterator[Any]:
    events: Iterator[Any] = yaml.parse(text, Loader=parser)
    return events


def _decode(data: bytes, file: str) -> str | Fault:
    """Return the text of a file, or the first byte or character that YAML cannot hold."""
    if len(data) > MAX_BYTES:
        message = f"must be at most {MAX_BYTES} bytes, was {len(data)}"
        return Fault(file=file, line=1, column=1, message=message)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        message = f"must be UTF-8, was the byte 0x{data[error.start]:02x}; save the file as UTF-8"
        return _text_fault(before, len(before), file, message)
    bad = _NOT_PRINTABLE.search(text)
    if bad is None:
        return text
    message = f"control characters are not allowed, was {bad.group()!r}; delete it"
    return _text_fault(text, bad.start(), file, message)


def _text_fault(text: str, offset: int, file: str, message: str) -> Fault:
    line_start = text.rfind("\n", 0, offset) + 1
    line = text.count("\n", 0, offset) + 1
    return Fault(file=file, line=line, column=offset - line_start + 1, message=message)


def _syntax_fault(error: Exception, text: str, file: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Fault(file=file, line=1, column=1, message=f"is not YAML: {error}")
    lines = text.splitlines()
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    problem = getattr(error, "problem", None) or "cannot be read"
    if rest.startswith("\t"):
        problem = "a tab cannot indent YAML; use spaces"
    elif rest[:1] in {"%", "@", "`"}:
        problem = f"a plain value cannot start with {rest[0]!r}; put it in quotes"
    return Fault(file=file, line=mark.line + 1, column=mark.column + 1, message=problem)


class _Builder:
    """Turns events into a tree with a stack of its own, so depth costs no recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self.stopped = False
        self._open: list[Items | Pairs] = []
        self._keys: list[Scalar | None] = []
        self._n_nodes = 0
        self._n_documents = 0
        self._line = 0

    def take(self, event: Any) -> None:
        """Add one event to the tree; scalars, by far the most, are asked for first."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                self._refuse_marks(event)
            # most words come many times over
            self._add(self._scalar(event, sys.intern(event.value), plain=not event.style))
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._refuse_marks(event)
            self._enter(event, Pairs if kind is yaml.MappingStartEvent else Items)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._open.pop()
            self._keys.pop()
        elif kind is yaml.AliasEvent:
            self._fault(event, f"aliases are not allowed; write the value of *{event.anchor} out")
            self._add(self._scalar(event, "", plain=False))
        elif kind is yaml.DocumentStartEvent:
            self._n_documents += 1
            if self._n_documents > 1:
                self._stop(event, "only one document is allowed; remove the second ---")

    def _scalar(self, event: Any, text: str, *, plain: bool) -> Scalar:
        mark = event.start_mark
        if mark.line + 1 != self._line:
            # the numbers of a long file take as much room as its words: one object a line
            self._line = mark.line + 1
        return Scalar(text, plain, self.file, self._line, mark.column + 1)

    def _enter(self, event: Any, kind: type[Items | Pairs]) -> None:
        mark = event.start_mark
        node = kind(self.file, mark.line + 1, mark.column + 1)
        self._add(node)
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > MAX_DEPTH:
            self._stop(event, f"must be nested at most {MAX_DEPTH} deep")

    def _add(self, node: Node) -> None:
        """Put a node where it belongs: at the top, in a list, as a key or as a key's value."""
        self._n_nodes += 1
        if self._n_nodes > MAX_NODES:
            self.faults.append(fault_at(node, f"must hold at most {MAX_NODES} values"))
            self.stopped = True
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if type(parent) is Items:
            parent.items.append(node)
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = node if type(node) is Scalar else self._no_key(node)
        else:
            self._keys[-1] = None
            self._put(parent, key, node)

    def _no_key(self, node: Node) -> Scalar:
        self.faults.append(fault_at(node, "a key must be one word, was a list or a mapping"))
        return Scalar("", False, node.file, node.line, node.column)

    def _put(self, parent: Any, key: Scalar, node: Node) -> None:
        earlier = parent.pairs.setdefault(key.text, (key, node))
        if key.plain and key.text == "<<":
            self.faults.append(fault_at(key, "merge keys are not allowed; write the keys out"))
            del parent.pairs[key.text]
        elif earlier[0] is not key:
            message = f"{key.text!r} is already set in line {earlier[0].line}; keep one of them"
            self.faults.append(fault_at(key, message))

    def _refuse_marks(self, event: Any) -> None:
        if event.anchor is not None:
            self._fault(event, f"anchors are not allowed; remove &{event.anchor}")
        if event.tag is not None:
            self._fault(event, f"tags are not allowed; remove {event.tag!r}")

    def _fault(self, event: Any, message: str) -> None:
        mark = event.start_mark
        self.faults.append(
            Fault(file=self.file, line=mark.line + 1, column=mark.column + 1, message=message)
        )

    def _stop(self, event: Any, message: str) -> None:
        self._fault(event, message)
        self.stopped = True
