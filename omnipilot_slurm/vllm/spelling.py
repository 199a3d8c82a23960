"""Which option a word is: spelled out, abbreviated, with its value behind `=` or glued to it.

In: a Grammar and a word. Out: the full spelling and where the value starts, or why it is none.
Called by reader.py. Source: ArgumentParser._parse_optional and _get_option_tuples.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm.command_line import Effect, Problem
from omnipilot_slurm.vllm.refusals import unrecognized

if TYPE_CHECKING:
    from omnipilot_slurm.vllm.grammar import Grammar

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Spelled(NamedTuple):
    """An option as a word spells it; `value` (from `offset` on) is None where none is attached."""

    option: str
    written: str
    value: str | None = None
    offset: int = 0
    notes: tuple[Problem, ...] = ()


class Unresolved(NamedTuple):
    """A word that looks like an option and is none; a value may follow it."""

    problem: Problem
    takes_value: bool


def is_option(grammar: Grammar, text: str) -> bool:
    """Whether argparse takes a word for an option, known or not."""
    if text[:1] != "-" or text == "-":
        return False
    if text in grammar.options or text == "--":
        return True
    name = text.partition("=")[0]
    if name in grammar.options or _completions(grammar, name, text):
        return True
    return not _NEGATIVE_NUMBER.fullmatch(text) and " " not in text


def resolve(grammar: Grammar, text: str, word: int, *, may_be_newer: bool) -> Spelled | Unresolved:
    """Return the option that a word (at index `word`) spells, abbreviates or only resembles."""
    if text in grammar.options:
        return Spelled(text, text)
    name, equals, rest = text.partition("=")
    value = rest if equals else None
    offset = len(name) + 1
    if name in grammar.options:
        return Spelled(name, name, value, offset)
    found = _completions(grammar, name, text)
    if not found:
        return _unknown(grammar, name, word, may_be_newer=may_be_newer)
    if found == [text[:2]]:
        return Spelled(found[0], found[0], text[2:], 2)
    alone, certain = grammar.completing(found)
    if len(alone) != 1:
        return _ambiguous(grammar, name, word, found)
    return Spelled(
        alone[0], name, value, offset, _abbreviation(name, alone[0], word, certain=certain)
    )


def _completions(grammar: Grammar, name: str, text: str) -> list[str]:
    """Return the options that a word may abbreviate, or a short one with its value glued on."""
    if name.startswith("--"):
        return grammar.starting_with(name)
    short = [text[:2]] if text[:2] in grammar.options else []
    return short + grammar.starting_with(text)


def _abbreviation(name: str, option: str, word: int, *, certain: bool) -> tuple[Problem, ...]:
    text = f"{name}: an abbreviation of {option} that a later vLLM may find ambiguous"
    note = Problem("abbreviation", word, text, Effect.WARNED)
    if certain:
        return (note,)
    text = f"{name}: read as {option}; ambiguous or unknown in other versions of vLLM"
    return (Problem("ambiguous_prefix", word, text, Effect.UNSURE), note)


def _ambiguous(grammar: Grammar, name: str, word: int, found: list[str]) -> Unresolved:
    text = f"{name}: ambiguous option, could match {', '.join(found[:4])}"
    problem = Problem("ambiguous_prefix", word, text, Effect.REFUSED)
    return Unresolved(problem, bool(grammar.options[found[0]][0].takes))


def _unknown(grammar: Grammar, name: str, word: int, *, may_be_newer: bool) -> Unresolved:
    kind, text, takes = unrecognized(grammar, name)
    effect = Effect.UNSURE if may_be_newer else Effect.REFUSED
    return Unresolved(Problem(kind, word, text, effect), takes)
