"""From the words of one vLLM launch to a Launch, and from all notes on a script to a Script.

In: words with their origin, the wrappers around them, notes taken on the way. Out: engine
arguments, where the tensor-parallel degree stands, and whether it may be edited. Called by serving.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from omnipilot_slurm.records import Edit, Editable, EngineArgs, Launch, Script, StepRequest
from omnipilot_slurm.script.expand import unknown
from omnipilot_slurm.script.programs import STRENGTH, Kind
from omnipilot_slurm.script.source import How, Splice, Word, encode
from omnipilot_slurm.vllm import flags, versions
from omnipilot_slurm.vllm.engine_args import ENGINE_DESTS
from omnipilot_slurm.vllm.grammar import grammar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnipilot_slurm.script.python_source import Offline
    from omnipilot_slurm.script.tres import GpuRequest
    from omnipilot_slurm.script.walk import Command
    from omnipilot_slurm.script.wrappers import StepOption, Unwrapped

Words: TypeAlias = "list[Word | Splice]"
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
_STEP_OPTIONS: Final = frozenset(
    "gres gpus gpus-per-node gpus-per-task gpus-per-socket tres-per-task nodes ntasks"
    " ntasks-per-node ntasks-per-gpu mem-per-gpu cpus-per-gpu constraint nodelist".split()
)
_ENGINE_VARIABLES: Final = re.compile(r"^(?:VLLM_|CUDA_VISIBLE_DEVICES$|HIP_VISIBLE_DEVICES$)")
_MODEL_ARG: Final = re.compile(r"--model_args[= ](\S+)")


@dataclass(slots=True)
class Notes:
    """What is noted while the commands of a script pass by."""

    kinds: list[Kind] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    engine_run: Launch | None = None
    hints: list[str] = field(default_factory=list)
    gpu_work: list[str] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    pinned: bool = False
    outer: Unwrapped | None = None


def of_words(
    form: str, words: Words, unwrapped: Unwrapped, command: Command, notes: Notes
) -> Launch:
    """Return the launch that the words behind `vllm serve` (or another form) make."""
    words, assumed = _settled([word for word in words if not _is_blank(word)])
    pin = versions.find_version(notes.hints)
    version = pin.version if pin is not None else None
    grammar_form = form if form in flags.FORMS else "openai.api_server"
    line = flags.parse([_token(word) for word in words], version=version, form=grammar_form)
    engine = flags.engine_args(line, version=version)
    launch = Launch(
        form=form,
        engine=engine,
        tp=None if "tensor_parallel" in engine.unknown else engine.tensor_parallel,
        tp_source="absent",
        steps=_steps([*(notes.outer.steps if notes.outer else ()), *unwrapped.steps]),
        environment=_environment(unwrapped, command, notes),
        version_hints=tuple(notes.hints),
        problems=tuple(str(problem) for problem in line.refusals),
    )
    launch = _with_tp(launch, line, words, command)
    relevant = _relevant(words, line)
    return _judged(launch, relevant, assumed, command)


def _is_blank(word: Word | Splice) -> bool:
    return isinstance(word, Word) and not word.segments


def _token(word: Word | Splice) -> str | flags.Splice | None:
    return word.text if isinstance(word, Word) else flags.Splice()


def _settled(words: Words) -> tuple[Words, frozenset[str]]:
    """Take away expansions of variables that nothing sets, and name what is assumed unset.

    One that must be an option's value stays, as one word that is not known.
    """
    kept: Words = []
    assumed: set[str] = set()
    for word in words:
        if isinstance(word, Word) or not word.depends:
            kept.append(word)
        elif kept and _wants_value(kept[-1]):
            kept.append(Word(segments=(unknown(word.depends),)))
        else:
            assumed |= word.depends
    return kept, frozenset(assumed)


def _wants_value(word: Word | Splice) -> bool:
    text = word.text if isinstance(word, Word) else None
    if text is None or not text.startswith("-") or "=" in text:
        return False
    known = grammar("vllm serve", None)
    name = text.replace("_", "-")
    names = [name] if name in known.options else known.starting_with(name)
    return bool(names) and all(known.options[full][0].takes for full in names)


def _relevant(words: Words, line: flags.CommandLine) -> Words:
    """Return the words that decide what the engine does: all but values of other options."""
    others = {
        found.value_index
        for found in line.occurrences
        if found.dest not in ENGINE_DESTS and found.value_index != found.option_index
    }
    return [word for index, word in enumerate(words) if index not in others]


def _steps(options: Iterable[StepOption]) -> tuple[StepRequest, ...]:
    found = []
    for option in options:
        if option.name not in _STEP_OPTIONS:
            continue
        place = _place(option.word.part(option.offset)) if option.word is not None else None
        start, end = (place.start, place.end) if place else (None, None)
        found.append(StepRequest(name=option.name, value=option.value, start=start, end=end))
    return tuple(found)


def _environment(unwrapped: Unwrapped, command: Command, notes: Notes) -> dict[str, str | None]:
    """Return the variables that change what the engine does; the innermost assignment wins."""
    scope = command.scope
    found: dict[str, str | None] = {}
    for name, text in scope.environment.items():
        if _ENGINE_VARIABLES.match(name):
            found[name] = text
    for name in scope.exported | scope.environment.keys():
        value = scope.variables.get(name)
        if isinstance(value, Word) and _ENGINE_VARIABLES.match(name):
            found[name] = value.text
    for around in (notes.outer, unwrapped):
        for name, word in around.environment.items() if around else ():
            if _ENGINE_VARIABLES.match(name):
                found[name] = word.text if word is not None else None
    return found


def _place(word: Word) -> Edit | None:
    """Return where a word's whole text stands in the script in one piece, None if nowhere."""
    segments = [segment for segment in word.segments if segment.text != ""]
    if len(segments) != 1 or segments[0].start is None or segments[0].text is None:
        return None
    old = encode(segments[0].text)
    start = segments[0].start
    return Edit(start=start, end=start + len(old), old=old, new=b"")


def _with_tp(launch: Launch, line: flags.CommandLine, words: Words, command: Command) -> Launch:
    """Add how the tensor-parallel degree is given and where it stands."""
    given = line.last(_TP)
    if given is None:
        if launch.tp is None and launch.engine.config_file is None:
            return replace(launch, tp_source="unknown")
        if launch.engine.config_file is not None:
            return replace(launch, tp=None, tp_source="config_file")
        end = command.end
        place = None if end is None else Edit(start=end, end=end, old=b"", new=b"")
        return replace(launch, tp=1, tp_source="absent", tp_place=place)
    value = _value_word(words, given)
    if value is None:
        return replace(launch, tp=None, tp_source="unknown")
    how = max((segment.how for segment in value.segments), default=How.UNKNOWN)
    text = value.text
    number = int(text) if text is not None and re.fullmatch(r"\d{1,4}", text.strip()) else None
    place = None if how in (How.SLURM_ENV, How.COMPUTED, How.UNKNOWN) else _place(value)
    return replace(launch, tp=number, tp_source=_SOURCES[how], tp_place=place)


def _value_word(words: Words, given: flags.Occurrence) -> Word | None:
    if given.value_index is None:
        return None
    word = words[given.value_index]
    return word.part(given.offset) if isinstance(word, Word) else None


def _judged(launch: Launch, words: Words, assumed: frozenset[str], command: Command) -> Launch:
    """Say whether this launch by itself may be edited; the script as a whole is judged later."""
    conditions = _conditions(words) | assumed
    problem = _objection(launch, words, command)
    if problem is not None:
        return replace(launch, editable=Editable.NO, why=problem)
    if conditions:
        names = " and ".join(sorted(conditions))
        why = f"only when {names} is not set at submission"
        return replace(launch, editable=Editable.CONDITIONAL, why=why, conditions=conditions)
    return replace(launch, editable=Editable.YES, why=_how_given(launch))


def _conditions(words: Words) -> frozenset[str]:
    found: set[str] = set()
    for word in words:
        if isinstance(word, Splice):
            found |= word.depends
        else:
            for segment in word.segments:
                found |= segment.depends
    return frozenset(found)


def _how_given(launch: Launch) -> str:
    if launch.tp_source == "slurm_env":
        return "TP follows the allocation; change the GRES only"
    if launch.tp_source == "absent":
        return "flag absent, default 1; insert after the last word"
    return f"TP given as {launch.tp_source.replace('_', ' ')}"


def _objection(launch: Launch, words: Words, command: Command) -> str | None:
    """Return the first reason why this launch must be left as it is, None for none."""
    context, engine = command.context, launch.engine
    reasons = (
        (context.broken, "the line cannot be read for certain"),
        (engine.config_file is not None, "settings live in a file the plugin does not see"),
        (not engine.model, "the model cannot be told from the script"),
        (context.evaluated, "the command is built as a string and evaluated"),
        (context.generated, "the launch is in a file that the script writes"),
        (context.branch, "the launch is inside a branch"),
        (context.loop, "the launch is inside a loop"),
        (context.parameters, "the launch is inside a function with parameters"),
        (any(isinstance(word, Splice) and not word.depends for word in words),
         "some arguments are not in the script"),
        (launch.tp is None, "the tensor-parallel degree cannot be told from the script"),
        (launch.tp_source == "computed", "the tensor-parallel degree is computed"),
        (_decided_by_branch(words), "a branch decides some of the arguments"),
        (launch.tp_source != "slurm_env" and launch.tp_place is None,
         "the tensor-parallel degree does not stand in the script"),
        (_copies(launch.steps), "srun starts several copies"),
    )  # fmt: skip
    return next((text for holds, text in reasons if holds), None)


def _decided_by_branch(words: Words) -> bool:
    return any(
        not segment.fixed for word in words if isinstance(word, Word) for segment in word.segments
    )


def _copies(steps: Sequence[StepRequest]) -> bool:
    values = {step.name: step.value for step in steps}
    return any(values.get(name) not in (None, "1") for name in ("ntasks", "nodes")) or (
        values.get("ntasks") is None and values.get("ntasks-per-node") not in (None, "1")
    )


def of_python(engine: Offline) -> Launch:
    """Return the engine that Python code makes, read but never changed."""
    arguments = engine.arguments
    tp = arguments.get(_TP, 1)
    given = _TP in arguments or not engine.complete
    read = EngineArgs(
        model=_text(arguments.get("model")),
        tensor_parallel=tp if isinstance(tp, int) else 1,
        pipeline_parallel=_number(arguments.get("pipeline_parallel_size")) or 1,
        dtype=_text(arguments.get("dtype")) or "auto",
        quantization=_text(arguments.get("quantization")),
        max_model_len=_number(arguments.get("max_model_len")),
    )
    return Launch(
        form="LLM()",
        engine=read,
        tp=tp if isinstance(tp, int) and engine.complete else None,
        tp_source="python" if given else "absent",
        why="offline batch in Python, not a server",
    )


def of_model_args(args: Sequence[str], *, form: str) -> Launch | None:
    """Return the engine that `lm_eval --model vllm --model_args k=v,...` makes."""
    match = _MODEL_ARG.search(" ".join(args))
    if match is None:
        return None
    pairs = dict(part.partition("=")[::2] for part in match[1].split(","))
    tp = pairs.get(_TP, "1")
    model = pairs.get("pretrained")
    engine = EngineArgs(
        model=None if model is None or "?" in model else model,
        tensor_parallel=int(tp) if tp.isdigit() else 1,
        dtype=pairs.get("dtype", "auto"),
        quantization=pairs.get("quantization"),
        max_model_len=_number(pairs.get("max_model_len")),
    )
    source = ("literal" if tp.isdigit() else "unknown") if _TP in pairs else "absent"
    return Launch(form=form, engine=engine, tp=int(tp) if tp.isdigit() else None, tp_source=source)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) else None


def summed_up(notes: Notes, request: GpuRequest, *, names_vllm: bool) -> Script:
    """Return what a script is, from the notes on all its commands.

    A program that is not seen is taken for a possible server only where the script names vLLM.
    """
    if notes.launches:
        judged = _judged_together(notes, request)
        return Script(kind=Kind.SERVER, is_serving=True, launches=judged, why=judged[0].why)
    if any(re.search("vllm", text, re.IGNORECASE) for text in notes.errors):
        return Script(kind=Kind.OPAQUE, is_serving=None, why="the script cannot be parsed")
    kinds = {kind for kind in notes.kinds if names_vllm or kind is not Kind.OPAQUE}
    kind = next((kind for kind in STRENGTH if kind in kinds), Kind.NONE)
    if kind is Kind.OPAQUE:
        why = "the launch, if any, is inside a program that is not seen"
        return Script(kind=kind, is_serving=None, why=why)
    run = notes.engine_run if kind in (Kind.OFFLINE, Kind.BENCH) else None
    return Script(kind=kind, is_serving=False, engine_run=run, why=_WHY[kind])


_WHY: Final = {
    Kind.OFFLINE: "offline batch, not a server",
    Kind.BENCH: "a benchmark with an engine of its own, not a server",
    Kind.TRAINING: "training with an embedded vLLM engine",
    Kind.OTHER_SERVER: "another engine",
    Kind.GENERATOR: "writes another job; that job is seen on its own submission",
    Kind.CLIENT: "talks to a server elsewhere",
    Kind.NONE: "starts no vLLM server",
    Kind.SERVER: "",
}


def _judged_together(notes: Notes, request: GpuRequest) -> tuple[Launch, ...]:
    """Add the objections that hold for the script as a whole."""
    problem = None
    if len(notes.launches) > 1:
        problem = "several servers in one script"
    elif request.n_nodes > 1:
        problem = "multi-node"
    elif notes.pinned or notes.launches[0].environment.get("CUDA_VISIBLE_DEVICES", "") != "":
        problem = "devices are pinned in the script"
    elif notes.gpu_work:
        problem = f"other work on the same GPUs ({notes.gpu_work[0]})"
    elif notes.errors:
        problem = "parts of the script cannot be parsed"
    if problem is None:
        return tuple(notes.launches)
    return tuple(
        replace(launch, editable=Editable.NO, why=problem, conditions=frozenset())
        if launch.editable is not Editable.NO
        else launch
        for launch in notes.launches
    )
