"""Read a vLLM command line as vLLM's own parser reads it, by version.

In: the words behind `vllm serve`, `-m vllm.entrypoints.openai.api_server` or the legacy
`-m vllm.entrypoints.api_server`, and the version where it is known. Out: a CommandLine with every
option, positional and problem. Called by the script reader, `omnipilot fit` and the tests.
The rules are argparse's (prefixes, `=`, nargs, `--`, last one wins) behind those of tokens.py; the
options are those of options.py. Where the version is not known, what all versions agree on is read
as certain, else the newest reading is taken and the difference noted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnipilot_slurm.vllm import options
from omnipilot_slurm.vllm.command_line import (
    CommandLine,
    Effect,
    Occurrence,
    Positional,
    Problem,
    Splice,
)
from omnipilot_slurm.vllm.engine_args import engine_args
from omnipilot_slurm.vllm.grammar import (
    FORMS,
    Grammar,
    Option,
    grammar,
    is_beyond,
    mask,
    since,
    span,
)
from omnipilot_slurm.vllm.refusals import REQUIRES, refused_value, unrecognized
from omnipilot_slurm.vllm.tokens import Token, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FORMS",
    "CommandLine",
    "Effect",
    "Occurrence",
    "Positional",
    "Problem",
    "Splice",
    "engine_args",
    "parse",
]

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_MODEL_REQUIRED = mask(options.MODEL_REQUIRED)
#: images whose entrypoint is known to be `vllm serve`; before 0.11 it is the api_server
_IMAGE_SERVES = since("0.26.0")
_API_SERVER_POSITIONAL = mask(options.API_SERVER_POSITIONAL)


def parse(
    words: Sequence[str | Splice | None], *, version: str | None = None, form: str = "vllm serve"
) -> CommandLine:
    """Return what vLLM's parser makes of the words behind the launcher.

    A word None is one word whose text is not known; a Splice is any number of words. `version` is
    a version string, a partial one ("0.8") or None; `form` one of FORMS.
    """
    rules = grammar(form, version)
    if form == "docker entrypoint" and rules.holds(_IMAGE_SERVES):
        rules = grammar("vllm serve", version)
    reader = _Reader(words, rules, may_be_newer=is_beyond(version))
    reader.read()
    return CommandLine(
        form=form,
        version=version,
        occurrences=tuple(reader.occurrences),
        positionals=tuple(reader.positionals),
        problems=tuple(reader.problems),
        open_from=reader.open_from,
    )


class _Reader:
    """One pass over the tokens, as argparse makes it."""

    def __init__(
        self, words: Sequence[str | Splice | None], grammar: Grammar, *, may_be_newer: bool
    ) -> None:
        self.grammar = grammar
        self.may_be_newer = may_be_newer
        prepared = prepare(words, grammar)
        self.tokens = prepared.tokens
        self.problems = prepared.problems
        self.occurrences = [prepared.config] if prepared.config else []
        self.positionals: list[Positional] = []
        self.open_from: int | None = None
        self.at = 0
        self.after_splice = False
        self.only_values = False

    def read(self) -> None:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.many:
                self._open(token)
                self.after_splice = True
                self.at += 1
            elif self.only_values or not self._is_option(token):
                self._take_positional(token)
            elif token.text == "--":
                self._take_separator(token)
            else:
                self._take_option(token)
        self._check_positionals()
        self._check_together()

    def _problem(self, kind: str, index: int | None, text: str, effect: Effect) -> None:
        self.problems.append(Problem(kind, index, text, effect))

    def _open(self, token: Token) -> None:
        self.open_from = max(token.word, self.open_from or 0)

    def _is_option(self, token: Token) -> bool:
        """Whether argparse takes a token for an option (known or not), as its pattern 'O'."""
        text = token.text
        if text is None or text[:1] != "-" or text == "-":
            return False
        if text in self.grammar.options or text == "--":
            return True
        name = text.partition("=")[0]
        if name in self.grammar.options or self._completions(name, text):
            return True
        return not _NEGATIVE_NUMBER.fullmatch(text) and " " not in text

    def _completions(self, name: str, text: str) -> list[str]:
        """Return the options that a word may abbreviate: argparse's prefixes."""
        if name.startswith("--"):
            return self.grammar.starting_with(name)
        short = [text[:2]] if text[:2] in self.grammar.options else []
        return short + self.grammar.starting_with(text)

    def _take_positional(self, token: Token) -> None:
        self.at += 1
        if token.text is None and self.positionals:
            self._open(token)
            return
        if self.positionals and self.positionals[-1].text is None:
            # one of them is the model and the other one an option: it cannot be told which
            self._open(self.tokens[self.at - 1])
        certain = not self.after_splice
        self.positionals.append(Positional(token.word, token.text, certain))

    def _take_separator(self, token: Token) -> None:
        """Take `--`: the positional swallows it, beside it or while it is still to come."""
        beside = (
            self.at > 0
            and self.positionals
            and self.tokens[self.at - 1].word == (self.positionals[-1].word)
        )
        seat = self._has_seat()
        if seat is False or (self.positionals and not beside):
            text = "--: unrecognized argument"
            self._problem("extra_argument", token.word, text, _effect(certain=seat is not None))
        self.only_values = True
        self.at += 1

    def _has_seat(self) -> bool | None:
        """Whether this form takes a positional; None: not in every version."""
        if self.grammar.form in ("openai.api_server", "docker entrypoint"):
            return self.grammar.holds(_API_SERVER_POSITIONAL)
        return self.grammar.form == "vllm serve"

    def _take_option(self, token: Token) -> None:
        text = token.text or ""
        self.at += 1
        self.after_splice = False
        resolved = self._resolve(text)
        if resolved is None:
            return
        spelling, value, offset = resolved
        variants = self.grammar.options[spelling]
        option = variants[0]
        self._check_versions(token, spelling, variants)
        written = text if value is None else text[: len(text) - len(value)].removesuffix("=")
        if option.letter == "q":
            self._problem("exits", token.word, f"{spelling}: prints and exits", Effect.REFUSED)
        elif not option.takes:
            self._take_flag(token, written, spelling, option, value)
        elif value is not None:
            given = token._replace(text=value, offset=token.offset + offset)
            self._store(token, written, spelling, variants, [given])
        else:
            self._take_values(token, written, spelling, variants)

    def _resolve(self, text: str) -> tuple[str, str | None, int] | None:
        """Return the full spelling, the value behind `=` and its offset; None: not an option."""
        if text in self.grammar.options:
            return text, None, 0
        name, equals, value = text.partition("=")
        given = value if equals else None
        if name in self.grammar.options:
            return name, given, len(name) + 1
        found = self._completions(name, text)
        if len(found) == 1 and found[0] == text[:2]:
            return found[0], text[2:], 2
        spelling = self._expand(name, found)
        if spelling is None:
            return None
        return spelling, given, len(name) + 1

    def _expand(self, name: str, found: list[str]) -> str | None:
        """Return what a prefix stands for, None (and a problem) where it stands for nothing."""
        index = self.tokens[self.at - 1].word
        if not found:
            self._unknown(index, name)
            return None
        if len(found) == 1:
            self._abbreviated(index, name, found[0])
            return found[0]
        each = [g.starting_with(name) for g in self.grammar.each()]
        alone = {matches[0] for matches in each if len(matches) == 1}
        if len(alone) == 1:
            spelling = alone.pop()
            certain = all(len(matches) == 1 for matches in each)
            text = f"{name}: read as {spelling}; ambiguous or unknown in other versions of vLLM"
            if not certain:
                self._problem("ambiguous_prefix", index, text, Effect.UNSURE)
            self._abbreviated(index, name, spelling)
            return spelling
        some = ", ".join(found[:4])
        text = f"{name}: ambiguous option, could match {some}"
        self._problem("ambiguous_prefix", index, text, Effect.REFUSED)
        if self.grammar.options[found[0]][0].takes:
            self._pass_over_value()
        return None

    def _abbreviated(self, index: int, name: str, spelling: str) -> None:
        text = f"{name}: an abbreviation of {spelling} that a later vLLM may find ambiguous"
        self._problem("abbreviation", index, text, Effect.WARNED)

    def _unknown(self, word: int, name: str) -> None:
        """Note an option that is none, and pass over what may be its value."""
        kind, text, takes = unrecognized(self.grammar, name)
        effect = Effect.UNSURE if self.may_be_newer else Effect.REFUSED
        self._problem(kind, word, text, effect)
        if takes:
            self._pass_over_value()

    def _pass_over_value(self) -> None:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        if following and not following.many and not self._is_option(following):
            self.at += 1

    def _check_versions(self, token: Token, spelling: str, variants: tuple[Option, ...]) -> None:
        known = variants[0].versions
        if known == self.grammar.versions:
            return
        for option in variants[1:]:
            known |= option.versions
        if known != self.grammar.versions:
            text = f"{spelling}: vLLM has it only {span(known)}"
            self._problem("differs_by_version", token.word, text, Effect.UNSURE)
        if len({(option.dest, option.takes) for option in variants}) > 1:
            text = f"{spelling}: takes other values in other versions of vLLM"
            self._problem("differs_by_version", token.word, text, Effect.UNSURE)

    def _take_flag(
        self, token: Token, written: str, spelling: str, option: Option, value: str | None
    ) -> None:
        if value:
            text = f"{spelling}: ignored explicit argument {value!r}"
            self._problem("value_of_flag", token.word, text, Effect.REFUSED)
        state = "true" if option.is_on else "false"
        self.occurrences.append(
            Occurrence(option.dest, spelling, written, token.word, None, 0, state)
        )

    def _take_values(
        self, token: Token, written: str, spelling: str, variants: tuple[Option, ...]
    ) -> None:
        takes = variants[0].takes
        values: list[Token] = []
        while self.at < len(self.tokens) and (takes == "+" or not values):
            following = self.tokens[self.at]
            if following.many:
                self._open(following)
            elif self._is_option(following):
                break
            values.append(following)
            self.at += 1
        if not values and takes != "?":
            least = "at least one argument" if takes == "+" else "one argument"
            self._problem(
                "missing_value", token.word, f"{spelling}: expected {least}", Effect.REFUSED
            )
            return
        self._store(token, written, spelling, variants, values)

    def _store(
        self,
        token: Token,
        written: str,
        spelling: str,
        variants: tuple[Option, ...],
        values: list[Token],
    ) -> None:
        option = variants[0]
        for value in values:
            if value.text is not None:
                self._check_value(value.word, spelling, variants, value.text)
        first = values[0] if values else Token("true", token.word, composed=True)
        self.occurrences.append(
            Occurrence(
                option.dest,
                spelling,
                written,
                token.word,
                None if first.composed else first.word,
                first.offset,
                first.text,
                tuple(value.text for value in values[1:]),
            )
        )

    def _check_value(
        self, word: int, spelling: str, variants: tuple[Option, ...], text: str
    ) -> None:
        """Note a value that some or all versions refuse."""
        bad, reason = refused_value(self.grammar, variants, text)
        if bad:
            certain = bad == self.grammar.versions
            where = "" if certain else f" (vLLM refuses it {span(bad)})"
            effect = Effect.REFUSED if certain else Effect.UNSURE
            self._problem("invalid_value", word, f"{spelling}: {reason}{where}", effect)

    def _check_positionals(self) -> None:
        """Note a model that is missing, and words too many."""
        form = self.grammar.form
        seats = self._has_seat()
        allowed = 0 if seats is False else 1
        certain = [found for found in self.positionals if found.certain]
        for extra in certain[allowed:]:
            effect = Effect.REFUSED if self.open_from is None else Effect.UNSURE
            text = f"{extra.text}: unrecognized argument"
            self._problem("extra_argument", extra.word, text, effect)
        if certain and seats is not False and form != "vllm serve":
            self._note_ignored(certain[0])
        if form == "vllm serve" and not self.positionals and self.open_from is None:
            self._check_model_required()

    def _note_ignored(self, model: Positional) -> None:
        """Note a positional behind the api_server, which takes its model from --model."""
        if self.grammar.form == "docker entrypoint":
            text = f"{model.text}: the model in newer images only; older ones want --model"
            self._problem("ignored_argument", model.word, text, Effect.UNSURE)
        else:
            text = f"{model.text}: ignored; this server takes its model from --model"
            self._problem("ignored_argument", model.word, text, Effect.WARNED)

    def _check_model_required(self) -> None:
        required = self.grammar.holds(_MODEL_REQUIRED)
        if required is not False:
            text = "the following arguments are required: model_tag"
            effect = Effect.REFUSED if required else Effect.UNSURE
            self._problem("no_model", None, text, effect)

    def _check_together(self) -> None:
        """Note options that vLLM refuses without another one."""
        dests = {found.dest for found in self.occurrences if found.text != "false"}
        for first, second, versions in REQUIRES:
            if first in dests and second not in dests and self.open_from is None:
                holds = self.grammar.holds(versions)
                text = f"--{first.replace('_', '-')} requires --{second.replace('_', '-')}"
                if holds is not False:
                    self._problem("requires", None, text, _effect(certain=holds is True))


def _effect(*, certain: bool) -> Effect:
    return Effect.REFUSED if certain else Effect.UNSURE
