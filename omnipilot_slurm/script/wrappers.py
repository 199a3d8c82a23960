"""What stands in front of a program: srun, containers, env, conda run, bash -c and their kin.

In: the words of a command. Out: the program behind all wrappers, the text a shell is told to run,
and what the wrappers say of GPUs, images and variables. Called by reader.
"""

from __future__ import annotations

import re
from typing import Final

from omnipilot_slurm.script import containers, slurm_options
from omnipilot_slurm.script.unwrapped import (
    SHELLS,
    StepOption,
    Unwrapped,
    behind_options,
    behind_verb,
    without_dashes,
)
from omnipilot_slurm.script.words import (
    How,
    Segment,
    Splice,
    Word,
    Words,
    text_of,
    unknown,
)
from omnipilot_slurm.script.wrapper_rules import CONTAINERS, RULES, Rule

_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_]\w*=")
_MAX_WRAPPERS: Final = 16
_ENV: Final = Rule(short="uCS", long="unset chdir split-string")
_TMUX_VERBS: Final = frozenset({"new", "new-session", "new-window", "neww"})
_TMUX: Final = Rule(short="scnxytFe")
_NO_OPTIONS: Final = Rule()
_SPACE: Final = Segment(" ")
#: no script holds it
_UNSEEN: Final = "\0"
_INPUTS: Final = frozenset({":::", "::::", ":::+", "::::+"})


def unwrap(words: Words) -> Unwrapped:
    """Take all wrappers away from the words of a command."""
    found = Unwrapped(words=list(words))
    for _ in range(_MAX_WRAPPERS):
        found.drop_leading_splices()
        name = found.program
        if name is None or not _step(name, found):
            break
        found.names.append(name)
        if found.shell_text is not None or found.reads_stdin or found.entrypoint:
            break
    else:
        found.unseen_program = True
    return found


def _step(name: str, found: Unwrapped) -> bool:
    """Take one wrapper away; False where the first word is none."""
    if name == "srun":
        _srun(found)
    elif name == "env":
        _env(found)
    elif name in SHELLS:
        return _shell(found)
    elif name == "eval":
        _evaluate(found, found.words[1:])
    elif name in CONTAINERS:
        return containers.unwrap(found, CONTAINERS[name])
    elif name in ("screen", "tmux", "script"):
        return _terminal(name, found)
    elif name == "ray":
        return _ray(found)
    elif name == "uv" and [text_of(word) for word in found.words[1:3]] == ["tool", "run"]:
        found.words = found.words[2:]
        return _plain("uvx", found)
    elif name in RULES:
        return _plain(name, found)
    else:
        return False
    return True


def _plain(name: str, found: Unwrapped) -> bool:
    rule = RULES[name]
    rest = behind_verb(found.words[1:], rule)
    if rest is None:
        return False
    behind = behind_options(rest, rule)
    if name == "ssh" and len(behind) > 1:
        _evaluate(found, behind[1:])
        return True
    if behind[: rule.skip]:
        behind = without_dashes(behind)
        behind = behind_options(behind[rule.skip :], _NO_OPTIONS)
    behind = without_dashes(behind)
    if name in ("xargs", "parallel"):
        return _fed(name, found, behind)
    found.words = behind
    return bool(behind)


def _srun(found: Unwrapped) -> None:
    words = _first_component(found.words[1:])
    options, command = slurm_options.parse([_marked(word) for word in words])
    for option in options:
        word = words[option.index]
        value = None if _UNSEEN in (option.value or "") else option.value
        found.steps.append(
            StepOption(option.name, value, word if isinstance(word, Word) else None, option.offset)
        )
        if option.name == "container-image" and value:
            found.images.append(value)
        if option.name == "multi-prog":
            found.unseen_program = True
    while command + 1 < len(words) and isinstance(words[command], Splice):
        found.skipped |= words[command].depends
        command += 1
    found.words = words[command:]


def _marked(word: Word | Splice) -> str | None:
    """Return a word's text with a mark for each piece that is not known: `--gres=gpu:$N`."""
    if isinstance(word, Splice):
        return None
    return "".join(_UNSEEN if s.text is None else s.text for s in word.segments)


def _first_component(words: Words) -> Words:
    """Return the words up to the `:` that separates the parts of a heterogeneous step."""
    for index, word in enumerate(words):
        if text_of(word) == ":":
            return words[:index]
    return words


def _env(found: Unwrapped) -> None:
    rest = behind_options(found.words[1:], _ENV)
    n_assigned = 0
    for word in rest:
        text = word.shown if isinstance(word, Word) else ""
        if not _ASSIGNMENT.match(text):
            break
        name = text.partition("=")[0]
        found.environment[name] = word.part(len(name) + 1) if isinstance(word, Word) else None
        n_assigned += 1
    found.words = rest[n_assigned:]


def _shell(found: Unwrapped) -> bool:
    """Read `bash -lc TEXT`; `bash FILE` stays a program, bare `bash` reads its standard input."""
    words = found.words[1:]
    for index, word in enumerate(words):
        text = text_of(word)
        if text is None and isinstance(word, Splice):
            continue
        if text is None or not text.startswith(("-", "+")):
            return False
        if text in ("-s", "-"):
            found.shell_args = without_dashes(words[index + 1 :])
            break
        if not text.startswith("--") and "c" in text[1:]:
            return _shell_text(found, words[index + 1 :])
    found.reads_stdin = True
    found.words = []
    return True


def _shell_text(found: Unwrapped, words: Words) -> bool:
    while words and (text_of(words[0]) or "").startswith("-"):
        words = words[1:]
    if not words or not isinstance(words[0], Word):
        return False
    found.shell_text = words[0]
    # what follows is $0, then the arguments
    found.shell_args = words[2:]
    found.evaluated = found.evaluated or _is_built(words[0])
    found.words = []
    return True


def _is_built(word: Word) -> bool:
    """Return whether a text to be run comes from variables alone."""
    return all(segment.how is not How.LITERAL for segment in word.segments)


def _evaluate(found: Unwrapped, words: Words) -> None:
    segments: list[Segment] = []
    for word in words:
        if segments:
            segments.append(_SPACE)
        segments += word.segments if isinstance(word, Word) else (word.as_segment(),)
    found.shell_text = Word(tuple(segments))
    found.evaluated = True
    found.words = []


def _terminal(name: str, found: Unwrapped) -> bool:
    """Read `screen -dmS name CMD...`, `tmux new-session -d "CMD"` and `script -c CMD file`."""
    words = found.words[1:]
    if name == "script":
        return _typescript(found, words)
    if name == "tmux":
        if not words or text_of(words[0]) not in _TMUX_VERBS:
            return False
        words = behind_options(words[1:], _TMUX)
    else:
        while words and (text_of(words[0]) or "").startswith("-"):
            words = words[2 if (text_of(words[0]) or "").endswith("S") else 1 :]
    if not words:
        return False
    if len(words) == 1:
        _evaluate(found, words)
    else:
        found.words = words
    return True


def _typescript(found: Unwrapped, words: Words) -> bool:
    for index, word in enumerate(words[:-1]):
        text = text_of(word) or ""
        if text.startswith("-") and text.endswith("c"):
            _evaluate(found, [words[index + 1]])
            return True
    return False


def _ray(found: Unwrapped) -> bool:
    """Read `ray job submit [options] -- CMD` and `ray symmetric-run [options] -- CMD`."""
    texts = [text_of(word) for word in found.words[1:]]
    runs = texts[:2] == ["job", "submit"] or texts[:1] == ["symmetric-run"]
    if not runs or "--" not in texts:
        return False
    found.words = found.words[texts.index("--") + 2 :]
    return bool(found.words)


def _fed(name: str, found: Unwrapped, words: Words) -> bool:
    """Read `xargs CMD` and `parallel CMD ::: ARGS`: the program runs with words not seen."""
    if name == "parallel":
        words = _before_inputs(words)
    if not words:
        return False
    found.many = True
    only = words[0] if len(words) == 1 else None
    if name == "parallel" and isinstance(only, Word) and " " in only.shown:
        _evaluate(found, [_opened(only)])
        return True
    opened: Words = [_opened(word) if isinstance(word, Word) else word for word in words]
    found.words = opened if opened != words else [*words, Splice()]
    return True


def _before_inputs(words: Words) -> Words:
    for index, word in enumerate(words):
        if text_of(word) in _INPUTS:
            return words[:index]
    return words


def _opened(word: Word) -> Word:
    """Return a word with `{}` replaced by something that is not known."""
    text = word.text
    if text is None or "{}" not in text:
        return word
    segments: list[Segment] = []
    for index, piece in enumerate(text.split("{}")):
        if index:
            segments.append(unknown())
        if piece:
            segments.append(Segment(piece))
    return Word(tuple(segments))
