"""Why vLLM's parser refuses a word: in its own terms, and in which versions.

In: a Grammar and the option or value in question. Out: bits of the refusing versions and the
reason. Called by flags.parse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.vllm.grammar import before, since, span
from omnipilot_slurm.vllm.grammar import grammar as grammar_of
from omnipilot_slurm.vllm.values import CONVERTERS, TYPE_NAMES

if TYPE_CHECKING:
    from omnipilot_slurm.vllm.grammar import Grammar, Option

#: an option, the one it requires, and the versions that check it
REQUIRES = (
    ("enable_auto_tool_choice", "tool_call_parser", since("0.5.5")),
    ("enable_reasoning", "reasoning_parser", since("0.7.2") & before("0.9.0")),
    ("enable_log_outputs", "enable_log_requests", since("0.11.0")),
)
_NULL = "~"
_LONGEST = 60


def refused_value(grammar: Grammar, variants: tuple[Option, ...], text: str) -> tuple[int, str]:
    """Return the bits of the versions that refuse a value, and why; 0 where none does."""
    bad, reason = 0, ""
    for option in variants:
        refused, why = _refused_by(grammar, option, text)
        bad |= refused
        reason = reason or why
    return bad, reason


def _refused_by(grammar: Grammar, option: Option, text: str) -> tuple[int, str]:
    if option.nullable and text in ("", "None"):
        bad = grammar.refusing(option.dest, _NULL) & option.versions
        return bad, f"invalid choice: {_shown(text)}" if bad else ""
    convert = CONVERTERS.get(option.letter)
    try:
        value = convert(text) if convert else text
    except ValueError:
        return option.versions, f"invalid {TYPE_NAMES[option.letter]} value: {_shown(text)}"
    if option.letter == "o" and isinstance(value, dict):
        for key in value:
            bad = grammar.refusing_key(option.dest, key) & option.versions
            if bad:
                return bad, f"unexpected key {key!r}"
    bad = grammar.refusing(option.dest, str(value)) & option.versions
    return bad, f"invalid choice: {_shown(text)}" if bad else ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")


def unrecognized(grammar: Grammar, name: str) -> tuple[str, str, bool]:
    """Return the kind of an unknown option, what to say of it, and whether a value may follow."""
    every = grammar_of(grammar.form, None)
    if name in every.options:
        text = f"{name}: unrecognized argument; vLLM has it {span(every.known(name))}"
        return "other_version", text, bool(every.options[name][0].takes)
    return "unknown_option", f"{name}: unrecognized argument{_hint(grammar, name)}", True


def _hint(grammar: Grammar, name: str) -> str:
    stem = "-" + name.lstrip("-").rstrip("0123456789")
    if stem in grammar.options:
        return f"; write {stem} and the value behind a space"
    near = grammar.neighbour(name)
    return f"; the nearest is {near}" if near else ""
