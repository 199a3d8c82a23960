"""What is read off one vLLM command line: its options, its positionals, what vLLM would refuse.

Records only; flags.parse fills them, engine_args.py and the script reader take them apart. Indices
count the words that were given to parse, offsets count characters inside one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Splice:
    """Stands for an expansion that may become any number of words, none included."""

    __slots__ = ()


class Effect(StrEnum):
    """What vLLM does about a problem; unsure: it depends on the version or on words not seen."""

    REFUSED = "refused"
    WARNED = "warned"
    UNSURE = "unsure"


class Problem(NamedTuple):
    """Something wrong with a word; `word` is its index, None where no single word is at fault."""

    kind: str
    word: int | None
    text: str
    effect: Effect

    def __str__(self) -> str:
        return self.text


class Occurrence(NamedTuple):
    """One option as it stands on the line.

    `option` is the full spelling that it resolves to, `written` the word itself (its part before
    `=`). The value's text starts at `offset` of the word `value_index`; a flag has no value word
    and the text "true" or "false". `text` is None where the script does not show it. `more` holds
    the further values of an option that takes several. An option given as dotted keys
    (`--speculative-config.model M`) is one occurrence with the JSON that vLLM makes of them.
    """

    dest: str
    option: str
    written: str
    option_index: int
    value_index: int | None
    offset: int
    text: str | None
    more: tuple[str | None, ...] = ()


class Positional(NamedTuple):
    """A word (by index) that is no option and no option's value.

    It is not certain where a Splice comes before it, whose last option may take it.
    """

    word: int
    text: str | None
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The words behind `vllm serve` or a server module, as vLLM's parser takes them apart.

    `open_from` is the index of the last word that could set any option (a Splice, or a word that
    the script does not show where no value is due): what stands before it may be overridden.
    """

    form: str
    version: str | None
    occurrences: tuple[Occurrence, ...] = ()
    positionals: tuple[Positional, ...] = ()
    problems: tuple[Problem, ...] = ()
    open_from: int | None = None

    def last(self, dest: str) -> Occurrence | None:
        """Return the occurrence of an option that counts, None where it is not given."""
        return next((found for found in reversed(self.occurrences) if found.dest == dest), None)

    def is_settled(self, given: Occurrence | None) -> bool:
        """Whether no unseen word can override an option (None: one that is not given)."""
        if self.open_from is None:
            return True
        return given is not None and given.option_index > self.open_from

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """The problems for which vLLM ends before it starts."""
        return tuple(found for found in self.problems if found.effect is Effect.REFUSED)
