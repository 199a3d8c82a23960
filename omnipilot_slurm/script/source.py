"""Shell text to be parsed, with the origin of each of its bytes.

In: bytes of a script, or the segments of a string inside it (`bash -c "..."`, an eval, a heredoc).
Out: a syntax tree made within the budget, and Segments that map text back to the script's bytes.
Called by expand and walk.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import tree_sitter
import tree_sitter_bash

from omnipilot_slurm.script.budget import Budget, Expired, OverBudgetError
from omnipilot_slurm.script.words import How, Segment, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_BYTES", "Expired", "Source", "decode", "encode", "name_of_unknown"]

#: longest text that is parsed; above it a script is not told apart
MAX_BYTES: Final = 64 * 1024
_CHUNK: Final = 4096
_BYTES_PER_STEP: Final = 64
# Hostile text makes the lexer read on to the end from every position. Real scripts are read at
# most 2.5 times over.
_READS: Final = 6
_READ_SLACK: Final = 32 * 1024
#: looks at the budget during one parse; 64 KiB of dense plain script take 900
_MAX_LOOKS: Final = 1500
_LANGUAGE: Final = tree_sitter.Language(tree_sitter_bash.language())
#: a variable in the middle of a word, as far as a cheap look can tell
_UNBRACED: Final = re.compile(
    r"(?<![\s\\;&|(<>$`])\$([A-Za-z_][A-Za-z_0-9]*)(?=[^\s\"'$;&|<>(){}\[\]`A-Za-z_0-9])"
)
_UNKNOWN: Final = re.compile(r"__omnipilot_(\d+)")
#: buffers that no parse uses. tree-sitter's binding (0.26) never lets go of what a read callback
#: returns: at 50,000 scripts a day new objects would add up to gigabytes
_FREE_BUFFERS: Final[list[bytearray]] = []


def name_of_unknown(index: int) -> str:
    """Return the variable that stands in a text for a piece that is not known."""
    return f"__omnipilot_{index}"


class Source:
    """Text to be parsed.

    `segments` in order make up the text; unknown ones are replaced by a variable that evaluates to
    the same segment again. `end` is the byte of the script that follows the text.
    """

    __slots__ = ("_end", "_is_script", "_segments", "_starts", "data")

    def __init__(self, segments: Sequence[Segment], *, end: int | None = None) -> None:
        segments = _with_braces(segments)
        self._segments = segments
        self._end = end
        self._is_script = False
        self._starts: list[int] = []
        chunks: list[bytes] = []
        position = 0
        for index, segment in enumerate(segments):
            self._starts.append(position)
            text = segment.text
            chunk = encode("${" + name_of_unknown(index) + "}" if text is None else text)
            chunks.append(chunk)
            position += len(chunk)
        self.data: Final = b"".join(chunks)

    @classmethod
    def of_script(cls, script: bytes) -> Source:
        """Return the source that a whole script is."""
        source = cls((Segment(decode(script), start=0),), end=len(script))
        source._is_script = source.data == script
        return source

    @property
    def segments(self) -> Sequence[Segment]:
        """The text as segments."""
        return self._segments

    def unknown_segment(self, name: str) -> Segment | None:
        """Return the segment that a variable made by name_of_unknown stands for."""
        match = _UNKNOWN.fullmatch(name)
        index = int(match[1]) if match else len(self._segments)
        return self._segments[index] if index < len(self._segments) else None

    def literal(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the text at [start, end) as segments that know their place in the script."""
        if self._is_script:
            # the same as below, for the source that nearly all text is in
            return (Segment(decode(self.data[start:end]), start),) if end > start else ()
        if len(self._segments) == 1:
            return (self._piece(0, start, end),) if end > start else ()
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
        if segment.start is None:
            return segment._replace(text=text, splits=False)
        origin = segment.start + start - self._starts[index]
        return Segment(
            text,
            origin,
            segment.how,
            depends=segment.depends,
            fixed=segment.fixed,
            follows=segment.follows,
        )

    def origin(self, position: int) -> int | None:
        """Return the byte of the script at which text may be put to stand at `position` here.

        None inside or behind what an expansion brought from somewhere else.
        """
        if self._end is not None and position >= len(self.data):
            return self._end
        if self._is_script:
            return position
        index = max(bisect_right(self._starts, position) - 1, 0)
        for candidate in (index, index - 1):
            if not 0 <= candidate < len(self._segments):
                continue
            segment, base = self._segments[candidate], self._starts[candidate]
            if segment.start is None or segment.how is not How.LITERAL:
                continue
            if position - base <= len(encode(segment.text or "")):
                return segment.start + position - base
        return None

    def parse(self, budget: Budget) -> tree_sitter.Node:
        """Return the root of the syntax tree.

        The parse goes through a read callback: the parse of a bytes object would hold the
        interpreter's lock and ignore the budget.
        Raises: OverBudgetError if the text is too large or takes too long.
        """
        data = self.data
        if len(data) > MAX_BYTES:
            raise OverBudgetError
        budget.spend(1 + len(data) // _BYTES_PER_STEP)
        meter = _Meter(data, budget)
        try:
            tree = tree_sitter.Parser(_LANGUAGE).parse(meter.read, progress_callback=meter.look)
        except ValueError as error:
            raise OverBudgetError from error
        finally:
            meter.close()
        if meter.is_over:
            raise OverBudgetError
        return tree.root_node


def _with_braces(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Write `$A/$B.log` as `$A/${B}.log`, which the grammar takes for two words otherwise."""
    if not any(s.text is not None and _UNBRACED.search(s.text) for s in segments):
        return segments
    found: list[Segment] = []
    for segment in segments:
        text, position = segment.text or "", 0
        for match in _UNBRACED.finditer(text):
            found.append(_cut(segment, position, match.start()))
            found.append(segment._replace(text="${" + match[1] + "}", start=None))
            position = match.end()
        found.append(segment if position == 0 else _cut(segment, position, len(text)))
    return found


def _cut(segment: Segment, start: int, stop: int) -> Segment:
    """Return the characters [start, stop) of a segment that is known."""
    text = segment.text or ""
    origin = segment.start
    if origin is not None:
        origin += len(encode(text[:start]))
    return segment._replace(text=text[start:stop], start=origin)


class _Meter:
    """Hands text to the parser until its share of work is done; from then on the text is over."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self._data = data
        self._budget = budget
        self._bytes_left = _READS * len(data) + _READ_SLACK
        self._looks_left = _MAX_LOOKS
        self.is_over = False
        self._buffer = bytearray()
        with suppress(IndexError):
            self._buffer = _FREE_BUFFERS.pop()

    def read(self, offset: int, _point: object) -> bytearray:
        chunk = self._data[offset : offset + _CHUNK]
        self._bytes_left -= len(chunk)
        self._buffer[:] = b"" if self._is_at_its_end() else chunk
        return self._buffer

    def close(self) -> None:
        """Give the buffer back."""
        _FREE_BUFFERS.append(self._buffer)

    def look(self, _offset: int, _has_error: bool = False) -> bool:
        self._looks_left -= 1
        return self._is_at_its_end()

    def _is_at_its_end(self) -> bool:
        if not self.is_over:
            is_used_up = self._bytes_left < 0 or self._looks_left < 0
            self.is_over = is_used_up or self._budget.expired()
        return self.is_over
