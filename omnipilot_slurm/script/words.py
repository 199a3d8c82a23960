"""Shell words that know where their text comes from.

A Word is made of Segments, each a run of text with one origin: a place in the script, an
expansion, or nowhere. A Splice is an expansion that may become any number of words. Records only;
expand makes them, launches and rewrite read them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

_NO_NAMES: Final[frozenset[str]] = frozenset()
#: characters and pieces that one word may grow to; beyond, its text counts as not known
MAX_CHARS: Final = 64 * 1024
MAX_SEGMENTS: Final = 1024
#: words that one array may hold
MAX_WORDS: Final = 4096


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


class Segment(NamedTuple):
    """A run of one word's text with one origin.

    `text` None is not known; `options` then lists what it can be (empty: anything), where it is
    `fixed` first what it is unless one of `depends` is set. `start` is the
    byte of the script where the text stands literally, None where it stands nowhere. `splits`: it
    came from an unquoted expansion. `depends` names the variables that change it when they are set
    at submission; `fixed` is False where a branch or a file that is not seen decides it; `follows`:
    it moves with the GPUs of the job.
    """

    text: str | None
    start: int | None = None
    how: How = How.LITERAL
    splits: bool = False
    depends: frozenset[str] = _NO_NAMES
    fixed: bool = True
    follows: bool = False
    options: tuple[Word, ...] = ()

    def through(self, how: How, depends: frozenset[str] = _NO_NAMES) -> Segment:
        """Return the segment as seen through one more indirection."""
        if how <= self.how and not depends and not self.splits:
            return self
        return self._replace(how=max(self.how, how), depends=self.depends | depends, splits=False)


class Word(NamedTuple):
    """One word after expansion; `end` is the byte behind it in the script, None when nowhere."""

    segments: tuple[Segment, ...]
    end: int | None = None

    @property
    def text(self) -> str | None:
        """The word's text, None if any of it is not known."""
        segments = self.segments
        if len(segments) == 1:
            return segments[0].text
        texts = [segment.text for segment in segments]
        return None if None in texts else "".join(text or "" for text in texts)

    @property
    def shown(self) -> str:
        """The word's text with `?` for what is not known."""
        segments = self.segments
        if len(segments) == 1:
            text = segments[0].text
            return "?" if text is None else text
        return "".join("?" if s.text is None else s.text for s in segments)

    @property
    def depends(self) -> frozenset[str]:
        """The variables that change the word when they are set at submission."""
        return frozenset().union(*(segment.depends for segment in self.segments))

    @property
    def fixed(self) -> bool:
        """Whether the script alone decides the word."""
        return all(segment.fixed for segment in self.segments)

    @property
    def base_name(self) -> str | None:
        """What stands behind the last slash, None where that is not known."""
        tail = ""
        for segment in reversed(self.segments):
            if segment.text is None:
                return None
            _, slash, behind = segment.text.rpartition("/")
            tail = behind + tail
            if slash:
                break
        return tail or None

    @property
    def loosened(self) -> Word | Splice:
        """The word, or what it may become where it holds unquoted text that is not known."""
        if all(segment.text is not None or not segment.splits for segment in self.segments):
            return self
        return Splice(self.depends, fixed=False)

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
        return self._replace(segments=tuple(segments))

    def through(self, how: How, depends: frozenset[str] = _NO_NAMES) -> Word:
        """Return the word as seen through one more indirection; nothing can be put behind it."""
        return Word(tuple(segment.through(how, depends) for segment in self.segments))


class Splice(NamedTuple):
    """An expansion that may become any number of words.

    `options` lists what it can be (empty: anything, unless `depends` names the variables that are
    taken as not set). Where it is `fixed` it is the first of them unless one of `depends` is set.
    """

    depends: frozenset[str] = _NO_NAMES
    options: tuple[tuple[Word, ...], ...] = ()
    fixed: bool = True

    @property
    def is_blank(self) -> bool:
        """Whether it is no words at all, as far as can be told."""
        if self.options:
            return not self.options[0] and (self.fixed or len(self.options) == 1)
        return bool(self.depends)

    @property
    def is_choice(self) -> bool:
        """Whether all that it can be is known, and is more than nothing."""
        return bool(self.options) and self.options != ((),)

    def as_segment(self) -> Segment:
        """Return the expansion as a piece of text that is run later."""
        if self.fixed and self.is_choice and not self.options[0]:
            return Segment("", splits=True, depends=self.depends)
        options = tuple(_joined(option) for option in self.options if self.is_choice)
        return Segment(
            "" if self.options == ((),) else None,
            splits=True,
            depends=self.depends,
            fixed=self.fixed,
            options=options,
        )


def _joined(words: tuple[Word, ...]) -> Word:
    segments: list[Segment] = []
    for word in words:
        segments += (Segment(" "), *word.segments)
    return Word(tuple(segments))


#: what arguments become: words, and expansions of unknown length
Words: TypeAlias = "list[Word | Splice]"
#: what a variable holds: text, an array, or None where it is certain to have no value
Value: TypeAlias = "Word | Words | None"
EMPTY: Final = Word((Segment(""),))
BLANK: Final = Splice(options=((),))


def unknown(
    depends: frozenset[str] = _NO_NAMES,
    *,
    how: How = How.UNKNOWN,
    splits: bool = False,
    fixed: bool = True,
) -> Segment:
    """Return a segment whose text cannot be told."""
    return Segment(None, how=how, splits=splits, depends=depends, fixed=fixed)


def bounded(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return segments as they are, or one unknown where they have grown beyond all use."""
    few = len(segments) <= MAX_SEGMENTS
    if few and sum(len(s.text) for s in segments if s.text is not None) <= MAX_CHARS:
        return segments
    return (unknown(fixed=False),)


def loosened(words: Words) -> Words:
    """Return words to be counted: unquoted text that is not known may be any number of them."""
    return [word.loosened if isinstance(word, Word) else word for word in words if word != BLANK]


def text_of(word: Word | Splice) -> str | None:
    """Return a word's text, None for a Splice."""
    return word.text if isinstance(word, Word) else None


def texts_of(words: Words) -> list[str]:
    """Return the words' texts, `?` for what is not known."""
    return [word.shown if isinstance(word, Word) else "?" for word in words]


def shown(words: Words) -> str:
    """Return the words' texts joined by spaces."""
    return " ".join(texts_of(words))


def encode(text: str) -> bytes:
    """Return the script's bytes of a text (surrogates stand for bytes that are not UTF-8)."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """Return the text of script bytes, reversibly."""
    return data.decode("utf-8", "surrogateescape")


def _tail(segment: Segment, n_chars: int) -> Segment:
    text = segment.text or ""
    start = segment.start
    if start is not None:
        start += len(encode(text[:n_chars]))
    return segment._replace(text=text[n_chars:], start=start)
