"""A program behind its wrappers, and how to step over a wrapper's own options.

In: words and a Rule. Out: the words behind the options. Called by wrappers and containers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.script.words import Splice, Value, Word, Words, text_of, unknown

if TYPE_CHECKING:
    from omnipilot_slurm.script.wrapper_rules import Rule

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SHORT: Final = 2
_LONG_WITH_VALUE: Final = re.compile(r"--?[\w-]+=")


class StepOption(NamedTuple):
    """One option of an srun in front of the program, with the word its value stands in."""

    name: str
    value: str | None
    word: Word | None
    offset: int


@dataclass(slots=True)
class Unwrapped:
    """A program behind its wrappers.

    `words` begin with the program (empty where there is none); `shell_text` is what a shell is told
    to run instead, with `shell_args` as its arguments; `entrypoint` says that the words are
    arguments of an image's own program, `many` that it is started once per line of some input.
    `skipped` names the variables in front of the program that are taken as not set.
    """

    words: Words = field(default_factory=list)
    shell_text: Word | None = None
    shell_args: Words = field(default_factory=list)
    evaluated: bool = False
    reads_stdin: bool = False
    entrypoint: bool = False
    many: bool = False
    unseen_program: bool = False
    steps: list[StepOption] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    environment: dict[str, Word | None] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    skipped: frozenset[str] = frozenset()

    @property
    def program(self) -> str | None:
        """The program's base name, None where it is not known."""
        first = self.words[0] if self.words else None
        return first.base_name if isinstance(first, Word) else None

    @property
    def environment_values(self) -> dict[str, Value]:
        """The variables set in front of the program; an unknown one is not empty."""
        return {
            name: Word((unknown(),)) if word is None else word
            for name, word in self.environment.items()
        }

    def drop_leading_splices(self) -> None:
        """Take away expansions in front of the program that are empty as far as can be told."""
        while self.words and isinstance(self.words[0], Splice):
            first = self.words[0]
            if not first.is_blank:
                break
            if first.depends and _needs_program(self.words[1:]):
                self.words = [Word((unknown(first.depends),)), *self.words[1:]]
                break
            self.skipped |= first.depends
            self.words = self.words[1:]


def without_dashes(words: Words) -> Words:
    """Return the words without a leading `--`."""
    return words[1:] if words and text_of(words[0]) == "--" else words


def behind_verb(words: Words, rule: Rule) -> Words | None:
    """Return the words behind a wrapper's sub-command, None where it is another one."""
    if not rule.verbs:
        return words
    rest = behind_options(words, rule)
    if not rest or text_of(rest[0]) not in rule.verbs.split():
        return None
    return rest[1:]


def behind_options(words: Words, rule: Rule, values: dict[str, Word] | None = None) -> Words:
    """Return the words behind a wrapper's options; note options' values in `values`."""
    long = rule.long.split()
    index = 0
    while index < len(words):
        word = words[index]
        text = text_of(word)
        if text is None and isinstance(word, Word):
            text = _option_start(word)
        if text == "--":
            return words[index + 1 :]
        if isinstance(word, Splice) and _is_option(words[index + 1 : index + 2]):
            index += 1
            continue
        if text is None or text == "-" or not text.startswith("-"):
            break
        name, equals, _ = text.lstrip("-").partition("=")
        is_long = text.startswith("--") or name in long
        takes = name in long if is_long else text[1] in rule.short and len(text) == _SHORT
        takes = takes and not equals
        if values is not None:
            _note_value(values, name if is_long else text[1], words[index : index + 2], takes=takes)
        index += 2 if takes else 1
    return words[index:]


def _needs_program(words: Words) -> bool:
    """Return whether words can only be the arguments of a program in front of them."""
    text = text_of(words[0]) if words else None
    return text is not None and (text.startswith("-") or text == "serve" or text.endswith(".py"))


def _is_option(words: Words) -> bool:
    return bool(words) and (text_of(words[0]) or "").startswith("-")


def _option_start(word: Word) -> str | None:
    """Return the known start of `--option=$UNKNOWN`, None for other words."""
    first = word.segments[0].text if word.segments else None
    return first if first is not None and _LONG_WITH_VALUE.match(first) else None


def _note_value(values: dict[str, Word], name: str, words: Words, *, takes: bool) -> None:
    value = words[-1] if takes and len(words) == _SHORT else words[0]
    if not isinstance(value, Word):
        return
    is_inside = value is words[0] and not takes
    head = (value.shown.partition("=")[0] + "=") if is_inside and "=" in value.shown else ""
    values[name] = value.part(len(head))
