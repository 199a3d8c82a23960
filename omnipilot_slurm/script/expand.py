"""Expansion as bash does it: a syntax node and the variables in force in, words out.

What cannot be known from the script (command output, unset variables, array task ids) becomes
unknown, never a guess. Called by walk and assignments for every command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import outputs, parameters
from omnipilot_slurm.script.scope import Numbers
from omnipilot_slurm.script.words import (
    BLANK,
    MAX_WORDS,
    How,
    Segment,
    Splice,
    Word,
    Words,
    bounded,
    decode,
    encode,
    unknown,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN: Final = frozenset({"word", "number"})
_EXPANSIONS: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
)
_SPECIAL_IN_QUOTES: Final = b'"$`\\'
_SPECIAL_IN_HEREDOC: Final = b"$`\\"
_ANSI_C: Final = {b"n": "\n", b"t": "\t", b"r": "\r", b"\\": "\\", b"'": "'", b'"': '"'}
_NOTHING: Final = (Segment(""),)
_BLANK: Final = re.compile(r"\s")
_BREAK: Final = re.compile(r"\s+|\S+")


def word_of(node: Node, source: Source, scope: Scope) -> Word:
    """Return a node as exactly one word, as in an assignment (no splitting)."""
    found = bounded(_segments(node, source, scope, quoted=True))
    scope.budget.spend(len(found))
    return Word(found, source.origin(node.end_byte))


def words_of(node: Node, source: Source, scope: Scope) -> Words:
    """Return the words that an argument becomes after expansion and splitting."""
    end = node.end_byte
    if node.type in _PLAIN:
        scope.budget.spend()
        return [Word(_unescaped(source, node.start_byte, end), source.origin(end))]
    array = parameters.array_of(node, source, scope)
    if array is not None:
        scope.budget.spend(1 + len(array))
        return array if node.type == "string" else _loose(array)
    if parameters.spreads(node, source, scope):
        scope.budget.spend()
        return [Splice(fixed=False)]
    found = bounded(_segments(node, source, scope, quoted=False))
    scope.budget.spend(1 + len(found))
    return split(found, source.origin(end))


def text_of(node: Node, source: Source) -> str:
    """Return a node's source text."""
    return decode(source.data[node.start_byte : node.end_byte])


def expression_of(node: Node, source: Source, scope: Scope) -> Word:
    """Return what stands in `$((...))` with its `$` expansions filled in, which bash does first."""
    opening, *inner, closing = node.children
    segments: list[Segment] = []
    position = opening.end_byte
    for child in (*inner, closing):
        segments += _unescaped(source, position, child.start_byte)
        if child != closing:
            segments += _segments(child, source, scope, quoted=True)
        position = child.end_byte
    return Word(bounded(tuple(segments)))


class _Splitter:
    """Splits the parts that came unquoted from expansions at white space."""

    def __init__(self, end: int | None) -> None:
        self.words: Words = []
        self._end = end
        self._current: list[Segment] = []
        self._is_open = False

    def add(self, segment: Segment) -> None:
        self._current.append(segment)
        self._is_open = True

    def close(self) -> None:
        """End the word that is open, if any; an unknown that stands alone may be any words."""
        if not self._is_open:
            return
        only = self._current[0] if len(self._current) == 1 else None
        if only is not None and only.splits and only.text is None and not _is_one_word(only):
            self.words.append(_spliced(only))
        else:
            self.words.append(Word(tuple(self._current), self._end))
        self._current.clear()
        self._is_open = False

    def add_split(self, segment: Segment) -> None:
        text = segment.text or ""
        for match in _BREAK.finditer(text):
            if match[0].isspace():
                self.close()
                continue
            start = segment.start
            if start is not None:
                start += len(encode(text[: match.start()]))
            self.add(segment._replace(text=match[0], start=start, splits=False))


def _is_one_word(segment: Segment) -> bool:
    """Return whether text that is not known is taken for one word: what programs print."""
    return segment.how in (How.COMPUTED, How.SLURM_ENV) and not segment.depends


def split(segments: tuple[Segment, ...], end: int | None) -> Words:
    """Return the words that unquoted segments become."""
    if len(segments) == 1 and not segments[0].splits:
        return [Word(segments, end)]
    splitter = _Splitter(end)
    for segment in segments:
        if segment.splits and segment.text is not None:
            splitter.add_split(segment)
            continue
        if segment.splits and _starts_with_space(segment):
            splitter.close()
        splitter.add(segment)
    splitter.close()
    return splitter.words[:MAX_WORDS] or [_blank(segments)]


def _blank(segments: tuple[Segment, ...]) -> Splice:
    """Return what is left of an expansion that is empty: what that rests on."""
    depends = frozenset().union(*(segment.depends for segment in segments))
    is_fixed = all(segment.fixed for segment in segments)
    return Splice(depends, ((),), is_fixed) if depends or not is_fixed else BLANK


def _starts_with_space(segment: Segment) -> bool:
    """Return whether all that a segment can be begins a new word, or is nothing."""
    texts = [option.text or "" for option in segment.options]
    return bool(texts) and all(text[:1].isspace() or not text for text in texts)


def _spliced(segment: Segment) -> Splice:
    options = tuple(map(_words_of_option, segment.options))
    depends = segment.depends.union(*(option.depends for option in segment.options))
    return Splice(depends, options, segment.fixed)


def _words_of_option(option: Word) -> tuple[Word, ...]:
    """Return the words of one possible value; what is not known in it counts as one word."""
    loose = tuple(segment._replace(splits=True) for segment in option.segments)
    return tuple(
        word if isinstance(word, Word) else Word((unknown(word.depends, fixed=word.fixed),))
        for word in split(loose, None)
        if isinstance(word, Word) or word.options != ((),)
    )


def split_option(option: Word) -> Words:
    """Return the words that one of an unquoted variable's possible values becomes."""
    loose = tuple(segment._replace(splits=True) for segment in option.segments)
    return [word for word in split(loose, None) if isinstance(word, Word) or not word.is_blank]


def _loose(words: Words) -> Words:
    """Return the words of an array that stands without quotes: blanks split them again."""
    found: Words = []
    for word in words:
        text = word.text if isinstance(word, Word) else None
        if isinstance(word, Word) and text is not None and (not text or _BLANK.search(text)):
            found += split_option(word)
        else:
            found.append(word)
    return found or [BLANK]


def _segments(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    match node.type:
        case "raw_string":
            return source.literal(node.start_byte + 1, node.end_byte - 1) or _NOTHING
        case "string" | "translated_string":
            return _double_quoted(node, source, scope)
        case "ansi_c_string":
            return _ansi_c(node, source)
        case "simple_expansion" | "expansion":
            return _parameter(node, source, scope, quoted=quoted)
        case "command_substitution":
            return outputs.of_command(node, source, scope, quoted=quoted, word=word_of)
        case "arithmetic_expansion":
            numbers = Numbers(scope)
            return (numbers.segment(numbers.evaluated(expression_of(node, source, scope))),)
        case "process_substitution":
            scope.substitutions.append((node, source))
            return (unknown(),)
        case "heredoc_body":
            return _with_expansions(node, node.start_byte, node.end_byte, source, scope)
        case "concatenation" | "command_name":
            return _children(node, source, scope, quoted=quoted)
        case _ if node.child_count == 0:
            return _unescaped(source, node.start_byte, node.end_byte)
        case _:
            return _children(node, source, scope, quoted=quoted)


def _parameter(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    """Expand $X, ${X}, ${X:-d} and kin."""

    def inner(child: Node) -> tuple[Segment, ...]:
        return _segments(child, source, scope, quoted=True)

    def plain(start: int, end: int) -> tuple[Segment, ...]:
        return _unescaped(source, start, end)

    scope.budget.enter()
    found = parameters.expanded(node, source, scope, parameters.Default(inner, plain))
    scope.budget.leave()
    if quoted:
        return found
    return tuple(segment._replace(splits=True) for segment in found)


def _children(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    scope.budget.enter()
    segments: list[Segment] = []
    position = node.start_byte
    for child in node.children:
        if child.start_byte > position:
            segments += _unescaped(source, position, child.start_byte)
        segments += _segments(child, source, scope, quoted=quoted)
        position = child.end_byte
    if node.end_byte > position:
        segments += _unescaped(source, position, node.end_byte)
    scope.budget.leave()
    return tuple(segments)


def _unescaped(source: Source, start: int, end: int) -> tuple[Segment, ...]:
    """Return unquoted text with its backslashes taken away and continued lines joined."""
    return _without_escapes(source, start, end, special=None)


def _without_escapes(
    source: Source, start: int, end: int, *, special: bytes | None
) -> tuple[Segment, ...]:
    data = source.data
    if data.find(b"\\", start, end) < 0:
        return source.literal(start, end)
    segments: list[Segment] = []
    position = start
    for match in _ESCAPE.finditer(data, start, end):
        char = match[1]
        if special is not None and char not in special and char != b"\n":
            continue
        segments += source.literal(position, match.start())
        position = match.start() + 1 + (char == b"\n")
    segments += source.literal(position, end)
    return tuple(segments)


def _double_quoted(node: Node, source: Source, scope: Scope) -> tuple[Segment, ...]:
    start = node.start_byte + (2 if node.type == "translated_string" else 1)
    return _with_expansions(node, start, node.end_byte - 1, source, scope) or _NOTHING


def _with_expansions(
    node: Node, start: int, end: int, source: Source, scope: Scope
) -> tuple[Segment, ...]:
    """Return the text of a string or heredoc, whose expansions are the node's children."""
    special = _SPECIAL_IN_HEREDOC if node.type == "heredoc_body" else _SPECIAL_IN_QUOTES
    scope.budget.enter()
    segments: list[Segment] = []
    for child in node.children:
        if child.type in _EXPANSIONS:
            segments += _without_escapes(source, start, child.start_byte, special=special)
            segments += _segments(child, source, scope, quoted=True)
            start = child.end_byte
    segments += _without_escapes(source, start, end, special=special)
    scope.budget.leave()
    return tuple(segments)


def _ansi_c(node: Node, source: Source) -> tuple[Segment, ...]:
    """Return the text of $'...' with its usual escapes."""
    body = source.data[node.start_byte + 2 : node.end_byte - 1]
    if b"\\" not in body:
        return source.literal(node.start_byte + 2, node.end_byte - 1) or _NOTHING
    pieces: list[str] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        if match[1] not in _ANSI_C:
            return (unknown(),)
        pieces += (decode(body[position : match.start()]), _ANSI_C[match[1]])
        position = match.end()
    return (Segment("".join(pieces) + decode(body[position:])),)
