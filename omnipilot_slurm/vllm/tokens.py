"""What vLLM's FlexibleArgumentParser does to the words before argparse sees them, by version.

In: the words of a command line and a Grammar. Out: tokens that remember where they came from: the
model moved to the front, `--config FILE` taken out, `_` turned into `-`, `-O3` spelled out, dotted
keys gathered into JSON. Called by flags.parse. Source: FlexibleArgumentParser.parse_args and
_pull_args_from_config of each version in options.VERSIONS.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm.command_line import Effect, Occurrence, Problem, Splice
from omnipilot_slurm.vllm.grammar import before, since
from omnipilot_slurm.vllm.values import human_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.vllm.grammar import Grammar

_CONFIG_FILES = since("0.6.0")
_CONFIG_NEEDS_MODEL_FIRST = since("0.6.3.post1") & before("0.8.3")
_CONFIG_MAY_NAME_MODEL = since("0.8.3")
_CONFIG_BEHIND_FIRST_WORD = before("0.10.2")
_SERVE_REFUSES_MODEL_FLAG = since("0.8.3") & before("0.11.1")
_SERVE_MOVES_MODEL_FLAG = since("0.11.1")
_SERVED_NAME_NEEDS_MODEL_FIRST = since("0.17.0")
_DOTTED_LONG = since("0.9.0")
_DOTTED_ANY = since("0.9.2")
_DOTTED_JSON_VALUES = since("0.9.2")
_DOTTED_SUFFIXES = since("0.20.0")
_DASHES_UP_TO_DOT = since("0.9.1")
_O_IS_LEVEL = since("0.9.2") & before("0.11.1")
_O_IS_MODE = since("0.11.1") & before("0.12.0")
_O_IS_OPTION = since("0.12.0")
_O_DOTS_ARE_CC = since("0.12.0") & before("0.13.0")
#: keys deeper than this are no configuration of vLLM's; they are not followed
_DEEPEST = 32
_LEVELS = ("0", "1", "2", "3")


class Token(NamedTuple):
    """A word or a part of one; `text` None is not known, `word` its index, `many` marks a Splice.

    A `composed` token stands nowhere on the line: it is a name or JSON made of dotted keys.
    """

    text: str | None
    word: int
    offset: int = 0
    many: bool = False
    composed: bool = False


class Prepared:
    """Tokens for argparse, and what was found out on the way."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.config: Occurrence | None = None
        self.problems: list[Problem] = []

    def refuse(self, kind: str, index: int | None, text: str) -> None:
        """Note that vLLM ends here."""
        self.problems.append(Problem(kind, index, text, Effect.REFUSED))


def prepare(words: Sequence[str | Splice | None], grammar: Grammar) -> Prepared:
    """Return the words as argparse gets them."""
    tokens = [
        Token(None, index, many=True) if isinstance(word, Splice) else Token(word, index)
        for index, word in enumerate(words)
    ]
    prepared = Prepared(tokens)
    if grammar.form == "vllm serve":
        _move_model(prepared, grammar)
        _check_served_name(prepared, grammar)
    _take_config(prepared, grammar)
    _spell_out(prepared, grammar)
    _gather_dotted(prepared, grammar)
    return prepared


def _is_flag(token: Token, name: str) -> bool:
    text = token.text
    return text is not None and (text == name or text.startswith(name + "="))


def _move_model(prepared: Prepared, grammar: Grammar) -> None:
    tokens = prepared.tokens
    at = next((i for i, token in enumerate(tokens) if _is_flag(token, "--model")), None)
    if at is None:
        return
    flag = tokens[at]
    if grammar.holds(_SERVE_REFUSES_MODEL_FLAG) is not False and flag.text == "--model":
        _note_model_flag(prepared, grammar, flag)
    if not grammar.holds(_SERVE_MOVES_MODEL_FLAG):
        return
    if flag.text != "--model":
        moved = [Token((flag.text or "")[8:], flag.word, 8)]
        rest = tokens[at + 1 :]
    elif at + 1 < len(tokens):
        moved, rest = [tokens[at + 1]], tokens[at + 2 :]
    else:
        prepared.refuse("missing_value", flag.word, "--model: expected one argument")
        return
    prepared.tokens = [*moved, *tokens[:at], *rest]
    text = "--model: vllm serve wants the model as its first word"
    prepared.problems.append(Problem("model_flag", flag.word, text, Effect.WARNED))


def _note_model_flag(prepared: Prepared, grammar: Grammar, flag: Token) -> None:
    certain = grammar.holds(_SERVE_REFUSES_MODEL_FLAG)
    text = (
        "--model: with `vllm serve`, you should provide the model as a positional argument"
        " (0.8.3 to 0.11.0 refuse the option)"
    )
    effect = Effect.REFUSED if certain else Effect.UNSURE
    prepared.problems.append(Problem("model_flag", flag.word, text, effect))


def _check_served_name(prepared: Prepared, grammar: Grammar) -> None:
    tokens = prepared.tokens
    first = tokens[0].text if tokens else None
    if first is None or not first.startswith("-"):
        return
    named = next(
        (
            token
            for token in tokens
            if _is_flag(token, "--served-model-name") or _is_flag(token, "--served_model_name")
        ),
        None,
    )
    if named is None or any(_is_flag(token, "--config") for token in tokens):
        return
    holds = grammar.holds(_SERVED_NAME_NEEDS_MODEL_FIRST)
    if holds is not False:
        text = "--served-model-name: the model must be the first word of `vllm serve` (from 0.17.0)"
        effect = Effect.REFUSED if holds else Effect.UNSURE
        prepared.problems.append(Problem("model_not_first", named.word, text, effect))


def _take_config(prepared: Prepared, grammar: Grammar) -> None:
    tokens = prepared.tokens
    at = [i for i, token in enumerate(tokens) if token.text == "--config"]
    if not at or grammar.holds(_CONFIG_FILES) is False:
        return
    first = at[0]
    flag = tokens[first]
    if len(at) > 1:
        prepared.refuse("config", tokens[at[1]].word, "--config: more than one config file")
    if first + 1 == len(tokens):
        prepared.refuse("missing_value", flag.word, "--config: no config file specified")
        return
    file = tokens[first + 1]
    if file.text is not None and file.text.rpartition(".")[2] not in ("yaml", "yml"):
        text = f"--config: the file must end in .yaml or .yml, not {file.text!r}"
        prepared.refuse("config", file.word, text)
    prepared.config = Occurrence(
        "config", "--config", "--config", flag.word, file.word, file.offset, file.text
    )
    _check_config_place(prepared, grammar, first)
    prepared.tokens = tokens[:first] + tokens[first + 2 :]


def _check_config_place(prepared: Prepared, grammar: Grammar, at: int) -> None:
    """Note where the file's options would land badly: they go in behind the first word."""
    first = prepared.tokens[0]
    word = prepared.tokens[at].word
    if grammar.form != "vllm serve":
        if grammar.holds(_CONFIG_BEHIND_FIRST_WORD):
            _check_first_word(prepared, grammar, first, word)
    elif (first.text or "").startswith("-"):
        if at == 0 and grammar.holds(_CONFIG_NEEDS_MODEL_FIRST):
            prepared.refuse("config", word, "--config: no model_tag specified before it")
        elif grammar.holds(_CONFIG_NEEDS_MODEL_FIRST):
            _check_first_word(prepared, grammar, first, word)
        else:
            text = "--config: the model must be the first word or in the file"
            prepared.problems.append(Problem("config", word, text, Effect.UNSURE))


def _check_first_word(prepared: Prepared, grammar: Grammar, first: Token, word: int) -> None:
    """Refuse a first option whose value would stand behind the file's options."""
    name, equals, _ = (first.text or "").replace("_", "-").partition("=")
    option = next(iter(grammar.starting_with(name)), "")
    takes = option and grammar.options[option][0].takes
    if name == "--config" or (takes and not equals):
        prepared.refuse("config", word, f"{name}: expected one argument (--config puts its own in)")


def _spell_out(prepared: Prepared, grammar: Grammar) -> None:
    tokens = prepared.tokens
    spelled: list[Token] = []
    for i, token in enumerate(tokens):
        text = token.text
        if text is None or text[:1] != "-":
            spelled.append(token)
        elif text.startswith("--"):
            spelled.append(_with_dashes(token, text, grammar) if "_" in text else token)
        elif text.startswith("-O"):
            following = tokens[i + 1].text if i + 1 < len(tokens) else None
            spelled += _optimization(token, text, following, grammar)
        else:
            spelled.append(token)
    prepared.tokens = spelled


def _with_dashes(token: Token, text: str, grammar: Grammar) -> Token:
    name, equals, value = text.partition("=")
    stem, dot, keys = name.partition(".")
    if grammar.holds(_DASHES_UP_TO_DOT) is False:
        keys = keys.replace("_", "-")
    return token._replace(text=stem.replace("_", "-") + dot + keys + equals + value)


def _optimization(token: Token, text: str, following: str | None, grammar: Grammar) -> list[Token]:
    """Spell out -O3, -O=3, `-O 3` and -O.key as the version does."""
    if grammar.holds(_O_DOTS_ARE_CC) and text.startswith("-O."):
        return [token._replace(text="-cc" + text[2:])]
    as_option = grammar.holds(_O_IS_OPTION) is not False
    as_key = "-O.mode" if grammar.holds(_O_IS_MODE) else "-O.level"
    if not as_option and not (grammar.holds(_O_IS_LEVEL) or grammar.holds(_O_IS_MODE)):
        return [token]
    if text == "-O":
        name = "--optimization-level" if as_option else as_key
        return [token._replace(text=name) if following in _LEVELS else token]
    if text.startswith("-O.") and not grammar.holds(_O_IS_OPTION):
        return [token]
    start = 3 if text[2] == "=" else 2
    if not as_option:
        return [token._replace(text=f"{as_key}={text[start:]}")]
    value = token._replace(text=text[start:], offset=start)
    return [token._replace(text="--optimization-level"), value]


def _gather_dotted(prepared: Prepared, grammar: Grammar) -> None:
    """Turn `--key.a.b value` into one `--key {"a": {"b": value}}` behind all other words."""
    any_dash = grammar.holds(_DOTTED_ANY) is not False
    if grammar.holds(_DOTTED_LONG) is False or not any(
        token.text is not None and token.text[:1] == "-" and "." in token.text
        for token in prepared.tokens
    ):
        return
    kept: list[Token] = []
    gathered: dict[str, _Dotted] = {}
    tokens = iter(prepared.tokens)
    for token in tokens:
        name, equals, value = (token.text or "").partition("=")
        if "." not in name or not name.startswith("-" if any_dash else "--"):
            kept.append(token)
            continue
        text: str | None = value
        if not equals:
            following = next(tokens, None)
            if following is None:
                prepared.refuse("missing_value", token.word, f"{name}: expected one argument")
                continue
            text = following.text
        key, *path = name.split(".")
        gathered.setdefault(key, _Dotted(token.word)).add(path, text, grammar)
    for key, dotted in gathered.items():
        kept.append(Token(key, dotted.index, composed=True))
        kept.append(Token(dotted.text(), dotted.index, composed=True))
    prepared.tokens = kept


class _Dotted:
    """The JSON that the dotted keys of one option add up to; unknown as soon as a value is."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._known = True
        self._value: dict[str, object] = {}

    def add(self, path: list[str], text: str | None, grammar: Grammar) -> None:
        if text is None or len(path) > _DEEPEST:
            self._known = False
            return
        value: object = text
        if path[-1].endswith("+"):
            path[-1] = path[-1][:-1]
            value = text.split(",")
        elif grammar.holds(_DOTTED_JSON_VALUES) is not False:
            value = _json_or_text(text, suffixes=grammar.holds(_DOTTED_SUFFIXES) is not False)
        for key in reversed(path):
            value = {key: value}
        if isinstance(value, dict):
            _merge(self._value, value)

    def text(self) -> str | None:
        return json.dumps(self._value) if self._known else None


def _json_or_text(text: str, *, suffixes: bool) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        if not suffixes:
            return text
    else:
        return value
    try:
        return human_int(text)
    except ValueError:
        return text


def _merge(into: dict[str, object], new: dict[str, object]) -> None:
    for key, value in new.items():
        old = into.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list):
            into[key] = old + value
        else:
            into[key] = value
