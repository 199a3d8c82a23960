"""Shell text with its origin: pieces of words that know where in the script they stand.

In: bytes of a script (or of a string inside it: `bash -c "..."`, an eval, a heredoc). Out: a
syntax tree made within a budget, and Segments that map text back to the script's bytes. Called by
expand and walk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, TypeAlias

import tree_sitter
import tree_sitter_bash

#: longest text that is parsed; above it a script is not told apart
MAX_BYTES: Final = 64 * 1024
_CHUNK: Final = 4096
_LANGUAGE: Final = tree_sitter.Language(tree_sitter_bash.language())

#: answers True once the time for reading this script is over
Expired: TypeAlias = Callable[[], bool]


class How(IntEnum):
    """How a value is given in the script, in rising order of indirection."""

    LITERAL = 0
    ARRAY = 1
    VARIABLE = 2
    DEFAULT_EXPANSION = 3
    POSITIONAL_DEFAULT = 4
    FUNCTION_ARG = 5
    SLURM_ENV = 6
    COMPUTED = 7
    UNKNOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of one word's text with one origin.

    `text` None is not known. `start` is the byte of the script where the text stands literally,
    None where it stands nowhere. `splits`: it came from an unquoted expansion. `depends` names
    the variables that change it when they are set at submission; `fixed` is False where a branch
    decides it.
    """

    text: str | None
    start: int | None = None
    how: How = How.LITERAL
    splits: bool = False
    depends: frozenset[str] = frozenset()
    fixed: bool = True

    def through(self, how: How, *, depends: frozenset[str] = frozenset()) -> Segment:
        """Return the segment as seen through one more indirection."""
        return replace(self, how=max(self.how, how), depends=self.depends | depends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word after expansion; `end` is the byte behind it in the script, None when nowhere."""

    segments: tuple[Segment, ...]
    end: int | None = None

    @property
    def text(self) -> str | None:
        """The word's text, None if any of it is not known."""
        texts = [segment.text for segment in self.segments]
        return None if None in texts else "".join(text or "" for text in texts)

    @property
    def shown(self) -> str:
        """The word's text with `?` for what is not known."""
        return "".join("?" if s.text is None else s.text for s in self.segments)

    def part(self, offset: int) -> Word:
        """Return what stands from character `offset` on (offset counted in known text)."""
        segments, position = [], 0
        for segment in self.segments:
            length = len(segment.text or "")
            if position >= offset:
                segments.append(segment)
            elif position + length > offset:
                segments.append(_tail(segment, offset - position))
            position += length
        return replace(self, segments=tuple(segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """An expansion that may become any number of words."""

    depends: frozenset[str] = frozenset()


def _tail(segment: Segment, n_chars: int) -> Segment:
    text = segment.text or ""
    start = segment.start
    if start is not None:
        start += len(encode(text[:n_chars]))
    return replace(segment, text=text[n_chars:], start=start)


def encode(text: str) -> bytes:
    """Return the script's bytes of a text (surrogates stand for bytes that are not UTF-8)."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """Return the text of script bytes, reversibly."""
    return data.decode("utf-8", "surrogateescape")


class Source:
    """Text to be parsed, with the origin of each of its bytes.

    `segments` in order make up the text; unknown ones are replaced by an unset variable, so that
    they evaluate to an unknown value again. `end` is the byte of the script that follows the text.
    """

    UNKNOWN: Final = "${__omnipilot_unknown}"

    def __init__(self, segments: tuple[Segment, ...], *, end: int | None = None) -> None:
        self._segments = segments
        self._end = end
        self._starts: list[int] = []
        chunks: list[bytes] = []
        position = 0
        for segment in segments:
            self._starts.append(position)
            chunk = encode(self.UNKNOWN if segment.text is None else segment.text)
            chunks.append(chunk)
            position += len(chunk)
        self.data: Final = b"".join(chunks)

    @classmethod
    def of_script(cls, script: bytes) -> Source:
        """Return the source that a whole script is."""
        return cls((Segment(text=decode(script), start=0),), end=len(script))

    def literal(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the text at [start, end) as segments that know their place in the script."""
        found = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while start < end and index < len(self._segments):
            is_last = index + 1 == len(self._segments)
            stop = end if is_last else min(end, self._starts[index + 1])
            if stop > start:
                found.append(self._piece(index, start, stop))
            start, index = stop, index + 1
        return tuple(found)

    def _piece(self, index: int, start: int, stop: int) -> Segment:
        segment = self._segments[index]
        text = decode(self.data[start:stop])
        origin = None if segment.start is None else segment.start + start - self._starts[index]
        return Segment(
            text=text,
            start=origin,
            how=segment.how,
            depends=segment.depends,
            fixed=segment.fixed,
        )

    def origin(self, position: int) -> int | None:
        """Return the byte of the script at which text may be put to stand at `position` here.

        None inside or behind what an expansion brought from somewhere else.
        """
        if position >= len(self.data) and self._end is not None:
            return self._end
        index = max(bisect_right(self._starts, position) - 1, 0)
        for candidate in (index, index - 1):
            if not 0 <= candidate < len(self._segments):
                continue
            segment, base = self._segments[candidate], self._starts[candidate]
            reaches = position - base <= len(encode(segment.text or ""))
            if segment.start is not None and segment.how is How.LITERAL and reaches:
                return segment.start + position - base
        return None

    def parse(self, expired: Expired) -> tree_sitter.Node | None:
        """Return the root of the syntax tree, or None if it is too large or took too long.

        The parse goes through a read callback: the parse of a bytes object would hold the
        interpreter's lock and ignore the budget.
        """
        data = self.data
        if len(data) > MAX_BYTES:
            return None

        def read(offset: int, _point: object) -> bytes:
            return data[offset : offset + _CHUNK]

        def over(_offset: int, _has_error: bool = False) -> bool:
            return expired()

        try:
            tree = tree_sitter.Parser(_LANGUAGE).parse(read, progress_callback=over)
        except ValueError:
            return None
        return tree.root_node
