"""One pass over the tokens of a command line, as argparse makes it.

In: tokens and a Grammar. Out: occurrences, positionals, problems. Called by flags.parse.
Source: ArgumentParser._parse_known_args; nargs, `--`, interspersed positionals.
"""

from __future__ import annotations

from omnipilot_slurm.vllm import options
from omnipilot_slurm.vllm.command_line import Effect, Occurrence, Positional, Problem
from omnipilot_slurm.vllm.grammar import Grammar, Option, mask, span
from omnipilot_slurm.vllm.refusals import REQUIRES, refused_value
from omnipilot_slurm.vllm.spelling import Spelled, Unresolved, is_option, resolve
from omnipilot_slurm.vllm.tokens import Prepared, Token

_MODEL_REQUIRED = mask(options.MODEL_REQUIRED)
_API_SERVER_POSITIONAL = mask(options.API_SERVER_POSITIONAL)


class Reader:
    """Takes tokens apart; `open_from` is the last word that could set any option.

    `may_be_newer` says that an unknown option may be one of a version that was not read.
    """

    def __init__(self, prepared: Prepared, grammar: Grammar, *, may_be_newer: bool) -> None:
        self.grammar = grammar
        self.may_be_newer = may_be_newer
        self.tokens = prepared.tokens
        self.problems = prepared.problems
        self.occurrences = [prepared.config] if prepared.config else []
        self.positionals: list[Positional] = []
        self.open_from: int | None = None
        self._at = 0
        self._doubtful = False  # a word here may be a value of an option not seen
        self._only_values = False

    def read(self) -> None:
        """Take all tokens, then note what is missing or left over."""
        while self._at < len(self.tokens):
            token = self.tokens[self._at]
            self._at += 1
            if token.many:
                self._open(token)
                self._doubtful = True
            elif self._only_values or token.text is None or not is_option(self.grammar, token.text):
                self._take_positional(token)
            elif token.text == "--":
                self._take_separator(token)
            else:
                self._take_option(token, token.text)
        self._check_positionals()
        self._check_together()

    def _note(self, kind: str, word: int | None, text: str, effect: Effect) -> None:
        self.problems.append(Problem(kind, word, text, effect))

    def _open(self, token: Token) -> None:
        self.open_from = max(token.word, self.open_from or 0)

    def _next_value(self) -> Token | None:
        """Return the next token if it can be the value of the option before it."""
        following = self.tokens[self._at] if self._at < len(self.tokens) else None
        if following is None or following.text is None:
            return following
        return None if is_option(self.grammar, following.text) else following

    def _take_positional(self, token: Token) -> None:
        if token.text is None and self.positionals:
            self._open(token)
            return
        if self.positionals and self.positionals[-1].text is None:
            # one of them is the model and the other one an option: it cannot be told which
            self._open(token)
        self.positionals.append(Positional(token.word, token.text, not self._doubtful))

    def _take_separator(self, token: Token) -> None:
        """Take `--`: the positional swallows it, beside it or while it is still to come."""
        before = self.tokens[self._at - 2].word if self._at > 1 else None
        beside = bool(self.positionals) and before == self.positionals[-1].word
        seat = self._has_seat()
        if seat is False or (self.positionals and not beside):
            text = "--: unrecognized argument"
            self._note("extra_argument", token.word, text, _effect(certain=seat is not None))
        self._only_values = True

    def _has_seat(self) -> bool | None:
        """Whether this form takes a positional; None: not in every version."""
        if self.grammar.form in ("openai.api_server", "docker entrypoint"):
            return self.grammar.holds(_API_SERVER_POSITIONAL)
        return self.grammar.form == "vllm serve"

    def _take_option(self, token: Token, text: str) -> None:
        self._doubtful = False
        spelled = resolve(self.grammar, text, token.word, may_be_newer=self.may_be_newer)
        if isinstance(spelled, Unresolved):
            self.problems.append(spelled.problem)
            following = self._next_value()
            if spelled.takes_value and following is not None and not following.many:
                self._at += 1
            return
        self.problems += spelled.notes
        variants = self.grammar.options[spelled.option]
        option = variants[0]
        if option.versions != self.grammar.versions:
            self._check_versions(token.word, spelled.option, variants)
            option = self._fitting(variants, spelled.value)
        if option.letter == "q":
            text = f"{spelled.option}: prints and exits"
            self._note("exits", token.word, text, Effect.REFUSED)
        elif not option.takes:
            self._take_flag(token, spelled, option)
        else:
            self._store(token, spelled, option, self._values(token, spelled, option))

    def _check_versions(self, word: int, name: str, variants: tuple[Option, ...]) -> None:
        known = self.grammar.known(name)
        if known != self.grammar.versions:
            text = f"{name}: vLLM has it only {span(known)}"
            self._note("differs_by_version", word, text, Effect.UNSURE)
        if len({option.takes for option in variants}) > 1:
            text = f"{name}: takes other values in other versions of vLLM"
            self._note("differs_by_version", word, text, Effect.UNSURE)

    def _fitting(self, variants: tuple[Option, ...], value: str | None) -> Option:
        """Return the newest variant that can take the line as it goes on."""
        by_takes = {option.takes: option for option in reversed(variants)}
        if len(by_takes) == 1:
            return variants[0]
        if value is not None:
            return next(option for option in variants if option.takes)
        following = self._next_value()
        word = following.text if following is not None else None
        if "?" in by_takes:
            return by_takes["?"] if (word or "").lower() in ("true", "false") else by_takes[""]
        if "+" in by_takes and not self.positionals and self._has_seat() is not False:
            self._doubtful = True  # the words behind the first one are its values in some versions
            return by_takes["1"]
        return variants[0]

    def _take_flag(self, token: Token, spelled: Spelled, option: Option) -> None:
        if spelled.value:
            text = f"{spelled.option}: ignored explicit argument {spelled.value!r}"
            self._note("value_of_flag", token.word, text, Effect.REFUSED)
        state = "true" if option.is_on else "false"
        self.occurrences.append(
            Occurrence(option.dest, spelled.option, spelled.written, token.word, None, 0, state)
        )

    def _values(self, token: Token, spelled: Spelled, option: Option) -> list[Token]:
        """Return the values that belong to an option, as far as the next option."""
        if spelled.value is not None:
            return [token._replace(text=spelled.value, offset=token.offset + spelled.offset)]
        values: list[Token] = []
        while option.takes == "+" or not values:
            following = self._next_value()
            if following is None:
                break
            if following.many:
                self._open(following)
            values.append(following)
            self._at += 1
        return values

    def _store(self, token: Token, spelled: Spelled, option: Option, values: list[Token]) -> None:
        if not values and option.takes != "?":
            least = "at least one argument" if option.takes == "+" else "one argument"
            text = f"{spelled.option}: expected {least}"
            self._note("missing_value", token.word, text, Effect.REFUSED)
            return
        for value in values:
            if value.text is not None:
                self._check_value(value.word, spelled.option, value.text)
        first = values[0] if values else Token("true", token.word, composed=True)
        self.occurrences.append(
            Occurrence(
                option.dest,
                spelled.option,
                spelled.written,
                token.word,
                None if first.composed else first.word,
                first.offset,
                first.text,
                tuple(value.text for value in values[1:]),
            )
        )

    def _check_value(self, word: int, name: str, text: str) -> None:
        """Note a value that some or all versions refuse."""
        bad, reason = refused_value(self.grammar, self.grammar.options[name], text)
        if bad:
            certain = bad == self.grammar.versions
            where = "" if certain else f" (vLLM refuses it {span(bad)})"
            self._note("invalid_value", word, f"{name}: {reason}{where}", _effect(certain=certain))

    def _check_positionals(self) -> None:
        """Note a model that is missing, and words too many."""
        seat = self._has_seat()
        certain = [found for found in self.positionals if found.certain]
        for extra in certain[0 if seat is False else 1 :]:
            text = f"{extra.text}: unrecognized argument"
            effect = _effect(certain=self.open_from is None)
            self._note("extra_argument", extra.word, text, effect)
        if certain and seat is not False and self.grammar.form != "vllm serve":
            self._note_ignored(certain[0])
        if self.grammar.form == "vllm serve" and not self.positionals and self.open_from is None:
            self._check_model_required()

    def _note_ignored(self, model: Positional) -> None:
        """Note a positional behind the api_server, which takes its model from --model."""
        if self.grammar.form == "docker entrypoint":
            text = f"{model.text}: the model in newer images only; older ones want --model"
            self._note("ignored_argument", model.word, text, Effect.UNSURE)
        else:
            text = f"{model.text}: ignored; this server takes its model from --model"
            self._note("ignored_argument", model.word, text, Effect.WARNED)

    def _check_model_required(self) -> None:
        required = self.grammar.holds(_MODEL_REQUIRED)
        if required is not False:
            text = "the following arguments are required: model_tag"
            self._note("no_model", None, text, _effect(certain=required is True))

    def _check_together(self) -> None:
        """Note options that vLLM refuses without another one."""
        dests = {found.dest for found in self.occurrences if found.text != "false"}
        for first, second, versions in REQUIRES:
            if first in dests and second not in dests and self.open_from is None:
                holds = self.grammar.holds(versions)
                text = f"--{first.replace('_', '-')} requires --{second.replace('_', '-')}"
                if holds is not False:
                    self._note("requires", None, text, _effect(certain=holds is True))


def _effect(*, certain: bool) -> Effect:
    return Effect.REFUSED if certain else Effect.UNSURE
