"""One simple command, taken apart: words, assignments in front, redirects, heredoc.

In: a command node, the redirects around it and a Frame. Out: a Command. Called by walk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import assignments, expand, outputs
from omnipilot_slurm.script.frame import Command
from omnipilot_slurm.script.source import Source
from omnipilot_slurm.script.words import (
    EMPTY,
    Segment,
    Splice,
    Word,
    Words,
    decode,
    shown,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from omnipilot_slurm.script.frame import Frame

_OUTPUTS: Final = frozenset({">", ">>", "&>", "&>>", ">|"})
_ESCAPED_BLANK: Final = re.compile(rb"[ \t]*\\[ \t]")


@dataclass(slots=True)
class _Parts:
    """What the children of a command node add up to."""

    line_start: int
    words: Words = field(default_factory=list)
    assignments: dict[str, Word] = field(default_factory=dict)
    stdin: Source | None = None
    writes: Word | None = None
    end: int = 0
    broken: bool = False

    def add_words(self, node: Node, frame: Frame) -> None:
        gap = frame.source.data[self.end : node.start_byte] if self.words else b""
        if _ESCAPED_BLANK.search(gap):
            # the grammar takes `a\ b` for two words
            self.broken = True
        new = frame.words(node)
        if self.words and node.start_byte == self.end and new:
            new[:1] = self._glued(self.words.pop(), new[0])
        self.words += new
        self.end = max(self.end, node.end_byte)

    def _glued(self, left: Word | Splice, right: Word | Splice) -> Words:
        """Return the one word that two nodes without a gap between them are."""
        if isinstance(left, Word) and isinstance(right, Word):
            return [Word(left.segments + right.segments, right.end)]
        self.broken = True
        return [left, right]


def read_command(node: Node, frame: Frame, redirects: Sequence[Node] = ()) -> Command:
    """Return a command after expansion."""
    parts = _Parts(_line_start(node, frame.source))
    for child in (*node.children, *redirects):
        _add(child, frame, parts)
    is_broken = parts.broken or _ESCAPED_BLANK.match(frame.source.data, parts.end) is not None
    context = frame.context._replace(broken=True) if is_broken else frame.context
    end = max([node.end_byte, *(redirect.end_byte for redirect in redirects)])
    return Command(
        words=parts.words,
        assignments=parts.assignments,
        frame=frame,
        context=context,
        stdin=parts.stdin or frame.stdin,
        writes=parts.writes,
        end=frame.source.origin(parts.end),
        raw=decode(frame.source.data[node.start_byte : end]),
    )


def _add(child: Node, frame: Frame, parts: _Parts) -> None:
    match child.type:
        case "variable_assignment":
            _add_assignment(child, frame, parts)
        case "file_redirect":
            _add_redirect(child, frame, parts)
        case "herestring_redirect" if child.named_children:
            parts.stdin = Source(frame.word(child.named_children[-1]).segments)
        case "ERROR":
            parts.broken = True
        case "heredoc_redirect":
            pass
        case _ if child.is_named:
            parts.add_words(child, frame)


def _add_assignment(node: Node, frame: Frame, parts: _Parts) -> None:
    """Note an assignment before a command; the grammar swallows those of the line above."""
    if node.end_byte <= parts.line_start:
        assignments.assign(node, frame)
        return
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is not None:
        parts.assignments[frame.text(name)] = EMPTY if value is None else frame.word(value)


def _add_redirect(node: Node, frame: Frame, parts: _Parts) -> None:
    """Note where output goes; words that the grammar counts to a redirect are arguments."""
    targets = node.children_by_field_name("destination")
    for extra in targets[1:]:
        parts.add_words(extra, frame)
    to_file = targets and targets[0].type != "number"
    if to_file and any(child.type in _OUTPUTS for child in node.children):
        parts.writes = frame.word(targets[0])
    elif to_file:
        # `< <(command)`: expanded for the command inside
        frame.word(targets[0])


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


def heredoc(node: Node, frame: Frame) -> Source | None:
    """Return the text of a heredoc: as it stands behind a quoted delimiter, else expanded."""
    segments = outputs.heredoc_segments(node, frame.source, frame.scope, expand.word_of)
    return None if segments is None else Source(segments)


def echoed(node: Node, frame: Frame) -> Source | None:
    """Return what a plain `echo WORDS` prints, None for other commands."""
    name = node.child_by_field_name("name") if node.type == "command" else None
    if name is None or frame.text(name) != "echo":
        return None
    arguments = node.children_by_field_name("argument")
    words = [word for child in arguments for word in frame.words(child)]
    if words and (text_of(words[0]) or "").startswith("-"):
        words = words[1:]
    only = words[0] if len(words) == 1 else None
    if isinstance(only, Word):
        return Source(only.segments)
    return Source((Segment(shown(words)),))
