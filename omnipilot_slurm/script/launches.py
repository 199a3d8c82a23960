"""From the words of one vLLM launch to a Launch.

In: words with their origin and the Site they stand at. Out: engine arguments, where the
tensor-parallel degree stands, and whether it may be edited. Called by reader and python_runs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.records import Edit, EngineArgs, Launch, StepRequest
from omnipilot_slurm.script import judging
from omnipilot_slurm.script.words import (
    How,
    Splice,
    Word,
    Words,
    encode,
    text_of,
    unknown,
)
from omnipilot_slurm.vllm import flags, versions
from omnipilot_slurm.vllm.grammar import grammar
from omnipilot_slurm.vllm.variables import with_variables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.script.notes import Site
    from omnipilot_slurm.script.unwrapped import StepOption

_TP: Final = "tensor_parallel_size"
_SOURCES: Final = {
    How.LITERAL: "literal",
    How.ARRAY: "array",
    How.VARIABLE: "variable",
    How.DEFAULT_EXPANSION: "default_expansion",
    How.POSITIONAL_DEFAULT: "positional_default",
    How.FUNCTION_ARG: "function_arg",
    How.SLURM_ENV: "slurm_env",
    How.COMPUTED: "computed",
    How.UNKNOWN: "unknown",
}
#: srun options on the launch line that must stay consistent with the job's request
STEP_OPTIONS: Final = frozenset(
    "gres gpus gpus-per-node gpus-per-task gpus-per-socket tres-per-task nodes ntasks"
    " ntasks-per-node ntasks-per-gpu mem-per-gpu cpus-per-gpu constraint nodelist".split()
)
_ENGINE_VARIABLES: Final = re.compile(r"^(?:VLLM_\w+|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)$")
#: settings that say which server it is and on how many GPUs
_CORE_FIELDS: Final = (
    "model tensor_parallel pipeline_parallel data_parallel n_nodes node_rank headless"
    " data_parallel_rank data_parallel_local prefill_context_parallel config_file"
).split()

_SETTINGS: Final = frozenset(EngineArgs.__slots__) - {"warnings", "vllm_version", "unknown"}
#: one for all, so that equal command lines are equal
_SPLICE: Final = flags.Splice()


class Read(NamedTuple):
    """A launch, and the words that carry its TP value and GPU requests, which a rewrite moves."""

    launch: Launch
    moved: tuple[Word | Splice, ...]


class _Settled(NamedTuple):
    """Words without the expansions that can be left out, and what that rests on."""

    words: Words
    assumed: frozenset[str] = frozenset()
    unsure: bool = False
    maybe: tuple[tuple[int, Splice], ...] = ()


class _Varied(NamedTuple):
    """A command line with additions that branches decide.

    `varying` names the settings that one of them changes, which are not known; `assumed` the
    variables that are taken as not set.
    """

    words: Words
    engine: EngineArgs
    varying: frozenset[str] = frozenset()
    assumed: frozenset[str] = frozenset()


def of_words(form: str, given: Words, site: Site) -> Read:
    """Return the launch that the words behind `vllm serve` (or another form) make."""
    settled = _settled(given)
    pin = versions.find_version(site.hints)
    version = pin.version if pin is not None else None
    reader = _LineReader(form, version)
    words, engine, varying, assumed = _with_options(settled, reader)
    line, environment = reader.line(words), _environment(site)
    launch = Launch(
        form=form,
        engine=with_variables(engine, environment) if environment else engine,
        tp=None if "tensor_parallel" in engine.unknown else engine.tensor_parallel,
        tp_source="absent",
        steps=_steps(option for wrapper in site.around for option in wrapper.steps),
        environment=environment,
        version_hints=site.hints,
        problems=tuple(str(problem) for problem in line.refusals),
    )
    value = None if "tensor_parallel" in varying else _value_word(words, line.last(_TP))
    launch, follows = _with_tp(launch, line, value, _end_of(given, site))
    skipped = frozenset().union(*(wrapper.skipped for wrapper in site.around))
    evidence = judging.Evidence(
        words=words,
        line=line,
        assumed=settled.assumed | assumed | skipped,
        unsure=settled.unsure,
        follows=follows,
        has_several=any(wrapper.many for wrapper in site.around),
        n_tasks=site.n_tasks if any("srun" in wrapper.names for wrapper in site.around) else 1,
    )
    return Read(judging.judged(launch, evidence, site.command.context), _moved(words, line, site))


class _LineReader(NamedTuple):
    """Reads words as the vLLM of one form and version does."""

    form: str
    version: str | None

    def line(self, words: Words) -> flags.CommandLine:
        return self._parsed(words)[0]

    def engine(self, words: Words) -> EngineArgs:
        return self._parsed(words)[1]

    def _parsed(self, words: Words) -> tuple[flags.CommandLine, EngineArgs]:
        form = self.form if self.form in flags.FORMS else "openai.api_server"
        tokens = tuple(word.text if isinstance(word, Word) else _SPLICE for word in words)
        return _parsed(tokens, form, self.version)


@lru_cache(maxsize=64)
def _parsed(
    tokens: tuple[str | flags.Splice | None, ...], form: str, version: str | None
) -> tuple[flags.CommandLine, EngineArgs]:
    """Return a command line as vLLM reads it; a site's scripts start the same few again."""
    line = flags.parse(tokens, version=version, form=form)
    return line, flags.engine_args(line, version=version)


def _settled(words: Words) -> _Settled:
    """Take away expansions that are empty as far as can be told.

    One that must be an option's value stays, as one word that is not known.
    """
    kept: Words = []
    assumed: frozenset[str] = frozenset()
    unsure = False
    maybe: list[tuple[int, Splice]] = []
    for word in words:
        if isinstance(word, Word):
            kept += _apart(word)
        elif kept and _wants_value(kept[-1]):
            is_slurm = any(name.startswith("SLURM_") for name in word.depends)
            how = How.SLURM_ENV if is_slurm else How.UNKNOWN
            kept.append(Word((unknown(word.depends, how=how, fixed=word.fixed),)))
        elif word.is_choice:
            maybe.append((len(kept), word))
            if not word.fixed:
                assumed |= word.depends
        elif word.is_blank:
            assumed |= word.depends
            unsure = unsure or not word.fixed
        else:
            kept.append(word)
    return _Settled(kept, assumed, unsure, tuple(maybe))


def _apart(word: Word) -> tuple[Word, ...]:
    """Return `--port=$PORT` as two words, where the value is not known."""
    name, equals, _ = (word.segments[0].text or "" if word.segments else "").partition("=")
    if word.text is not None or not equals:
        return (word,)
    option = Word((word.segments[0]._replace(text=name),))
    return (option, word.part(len(name) + 1)) if _wants_value(option) else (word,)


def _wants_value(word: Word | Splice) -> bool:
    text = text_of(word)
    if text is None or not text.startswith("-") or "=" in text:
        return False
    known = grammar("vllm serve", None)
    name = text.replace("_", "-")
    names = [name] if name in known.options else known.starting_with(name)
    return bool(names) and all(known.options[full][0].takes for full in names)


def _with_options(settled: _Settled, reader: _LineReader) -> _Varied:
    """Return what additions in branches leave of a command line.

    One that would change which server it is stays in the words, as anything; one that is not there
    unless a variable was set at submission counts only where it changes the engine.
    """
    words, engine = settled.words, reader.engine(settled.words)
    if not settled.maybe:
        return _Varied(words, engine)
    varying: set[str] = set()
    assumed: frozenset[str] = frozenset()
    kept: list[tuple[int, Splice]] = []
    for index, splice in settled.maybe:
        changed = set()
        for option in splice.options:
            other = reader.engine([*words[:index], *option, *words[index:]])
            changed |= _differences(engine, other)
        if splice.fixed:
            assumed |= splice.depends if changed else frozenset()
            continue
        varying |= changed
        if not changed.isdisjoint(_CORE_FIELDS):
            kept.append((index, splice))
    if kept:
        words = list(words)
        for index, splice in reversed(kept):
            words.insert(index, Splice(fixed=splice.fixed))
        engine = reader.engine(words)
    model = None if "model" in varying else engine.model
    unknown_fields = engine.unknown | varying
    engine = replace(engine, model=model, unknown=unknown_fields)
    return _Varied(words, engine, frozenset(varying), assumed)


def _differences(one: EngineArgs, other: EngineArgs) -> set[str]:
    names = {name for name in _SETTINGS if getattr(one, name) != getattr(other, name)}
    return names | (one.unknown ^ other.unknown)


def _steps(options: Iterable[StepOption]) -> tuple[StepRequest, ...]:
    found = []
    for option in options:
        if option.name in STEP_OPTIONS:
            place = _place(option.word.part(option.offset)) if option.word is not None else None
            start, end = (place.start, place.end) if place else (None, None)
            found.append(StepRequest(name=option.name, value=option.value, start=start, end=end))
    return tuple(found)


def _environment(site: Site) -> dict[str, str | None]:
    """Return the variables that change what the engine does; the innermost assignment wins."""
    scope = site.command.scope
    found: dict[str, str | None] = {
        name: text for name, text in scope.environment.items() if _ENGINE_VARIABLES.match(name)
    }
    for name in scope.exported | scope.environment.keys():
        value = scope.variables.get(name)
        if isinstance(value, Word) and _ENGINE_VARIABLES.match(name):
            found[name] = value.text
    for wrapper in site.around:
        for name, word in wrapper.environment.items():
            if _ENGINE_VARIABLES.match(name):
                found[name] = word.text if word is not None else None
    return found


def _place(word: Word) -> Edit | None:
    """Return where a word's whole text stands in the script in one piece, None if nowhere."""
    segments = [segment for segment in word.segments if segment.text != ""]
    only = segments[0] if len(segments) == 1 else None
    if only is None or only.start is None or only.text is None:
        return None
    old = encode(only.text)
    return Edit(start=only.start, end=only.start + len(old), old=old, new=b"")


def _end_of(words: Words, site: Site) -> int | None:
    """Return the byte behind a launch's last word, None where nothing may be put there."""
    if not words:
        return None
    last = words[-1]
    if last is site.command.words[-1]:
        return site.command.end
    return last.end if isinstance(last, Word) else None


def _with_tp(
    launch: Launch, line: flags.CommandLine, value: Word | None, end: int | None
) -> tuple[Launch, bool]:
    """Add how the TP degree is given and where it stands; return whether it follows the job.

    `end` is where a flag that is not given would be put.
    """
    if line.last(_TP) is None:
        return _without_flag(launch, end), False
    if value is None:
        return replace(launch, tp=None, tp_source="unknown"), False
    how = max((segment.how for segment in value.segments), default=How.UNKNOWN)
    text = value.text
    number = int(text) if text is not None and re.fullmatch(r"\d{1,4}", text.strip()) else None
    is_derived = how in (How.SLURM_ENV, How.COMPUTED, How.UNKNOWN)
    found = replace(
        launch,
        tp=number,
        tp_source=_SOURCES[how],
        tp_place=None if is_derived else _place(value),
    )
    return found, any(segment.follows for segment in value.segments)


def _without_flag(launch: Launch, end: int | None) -> Launch:
    if launch.engine.config_file is not None:
        return replace(launch, tp=None, tp_source="config_file")
    if launch.tp is None:
        return replace(launch, tp_source="unknown")
    place = None if end is None else Edit(start=end, end=end, old=b"", new=b"")
    return replace(launch, tp=1, tp_source="absent", tp_place=place)


def _value_word(words: Words, given: flags.Occurrence | None) -> Word | None:
    if given is None or given.value_index is None:
        return None
    word = words[given.value_index]
    return word.part(given.offset) if isinstance(word, Word) else None


def _moved(words: Words, line: flags.CommandLine, site: Site) -> tuple[Word | Splice, ...]:
    found: list[Word | Splice] = []
    for given in line.occurrences:
        if given.dest == _TP:
            found.append(words[given.option_index])
            if given.value_index is not None:
                found.append(words[given.value_index])
    for wrapper in site.around:
        found += [o.word for o in wrapper.steps if o.name in STEP_OPTIONS and o.word is not None]
    return tuple(found)
