"""Whether a launch may be edited, and what a script is: the verdicts on what was read.

In: a Launch with the words behind it; the Notes on all commands. Out: the Launch with its
Editable and why; the Script. Called by launches and serving.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Editable, Launch, Script, StepRequest
from omnipilot_slurm.script.programs import STRENGTH, Kind
from omnipilot_slurm.script.words import Segment, Word, Words, text_of
from omnipilot_slurm.vllm.engine_args import ENGINE_DESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.script.frame import Context
    from omnipilot_slurm.script.notes import Notes
    from omnipilot_slurm.script.tres import GpuRequest
    from omnipilot_slurm.vllm import flags

#: options whose value says which server it is and on how many GPUs
_CORE_DESTS: Final = frozenset(
    "model config tensor_parallel_size pipeline_parallel_size data_parallel_size nnodes node_rank"
    " data_parallel_size_local data_parallel_rank prefill_context_parallel_size".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a verdict on one launch rests on.

    `assumed` names the variables taken as not set; `unsure`: a file that is not seen may set them;
    `follows`: the TP degree moves with the job's GPUs; `has_several`: one command, many starts;
    `n_tasks` is what an srun in front starts unless it says otherwise.
    """

    words: Words
    line: flags.CommandLine
    assumed: frozenset[str]
    unsure: bool
    follows: bool
    has_several: bool
    n_tasks: int


def judged(launch: Launch, evidence: Evidence, context: Context) -> Launch:
    """Say whether this launch by itself may be edited; the script as a whole is judged later."""
    problem = _objection(launch, evidence, context)
    if problem is not None:
        return replace(launch, editable=Editable.NO, why=problem)
    conditions = evidence.assumed | _depends(_deciding(evidence, ENGINE_DESTS))
    if conditions:
        names = " and ".join(sorted(conditions))
        why = f"only when {names} is not set at submission"
        return replace(launch, editable=Editable.CONDITIONAL, why=why, conditions=conditions)
    return replace(launch, editable=Editable.YES, why=_how_given(launch, evidence))


def _deciding(evidence: Evidence, dests: frozenset[str]) -> Words:
    """Return the words that decide what some options say: all but the values of other options."""
    words = evidence.words
    others = {
        found.value_index
        for found in evidence.line.occurrences
        if found.dest not in dests and _is_value_only(found, words)
    }
    return [word for index, word in enumerate(words) if index not in others]


def _is_value_only(found: flags.Occurrence, words: Words) -> bool:
    """Return whether a word's only open question is an option's value: also in `--port=$PORT`."""
    if found.value_index != found.option_index:
        return True
    word = words[found.option_index]
    name = word.segments[0] if isinstance(word, Word) else Segment(None)
    return not name.depends and name.fixed and len(name.text or "") >= found.offset


def _depends(words: Words) -> frozenset[str]:
    return frozenset().union(*(word.depends for word in words))


def _how_given(launch: Launch, evidence: Evidence) -> str:
    if evidence.follows:
        return "TP follows the allocation; change the GRES only"
    if launch.tp_source == "absent":
        return "flag absent, default 1; insert after the last word"
    return f"TP given as {launch.tp_source.replace('_', ' ')}"


def _objection(launch: Launch, evidence: Evidence, context: Context) -> str | None:
    """Return the first reason why this launch must be left as it is, None for none."""
    core = _deciding(evidence, _CORE_DESTS)
    stands = launch.tp_place is not None or evidence.follows
    reasons = (
        (context.broken, "the line cannot be read for certain"),
        (launch.engine.config_file is not None, "settings live in a file the plugin does not see"),
        (not launch.engine.model, "the model cannot be told from the script"),
        (context.evaluated, "the command is built as a string and evaluated"),
        (context.generated, "the launch is in a file that the script writes"),
        (context.branch, "the launch is inside a branch"),
        (context.loop, "the launch is inside a loop"),
        (context.parameters, "the launch is inside a function with parameters"),
        (evidence.has_several, "the launch is repeated for every line of some input"),
        (launch.tp is None, "the tensor-parallel degree cannot be told from the script"),
        (any(text_of(word) is None for word in core), "some arguments are not in the script"),
        (evidence.unsure, "a file that is not seen may set some of the arguments"),
        (any(isinstance(word, Word) and not word.fixed for word in core),
         "a branch or a file that is not seen decides some of the arguments"),
        (not stands, "the tensor-parallel degree does not stand in the script"),
        (_copies(launch.steps, evidence.n_tasks), "srun may start several copies"),
    )  # fmt: skip
    return next((text for holds, text in reasons if holds), None)


def _copies(steps: Sequence[StepRequest], n_tasks: int) -> bool:
    values = {step.name: step.value for step in steps}
    if any(values.get(name, "1") != "1" for name in ("ntasks", "nodes")):
        return True
    return "ntasks" not in values and values.get("ntasks-per-node", str(n_tasks)) != "1"


_WHY: Final = {
    Kind.OFFLINE: "offline batch, not a server",
    Kind.BENCH: "a benchmark with an engine of its own, not a server",
    Kind.TRAINING: "training with an embedded vLLM engine",
    Kind.OTHER_SERVER: "another engine",
    Kind.GENERATOR: "writes another job; that job is seen on its own submission",
    Kind.CLIENT: "talks to a server elsewhere",
    Kind.NONE: "starts no vLLM server",
    Kind.OPAQUE: "the launch, if any, is inside a program that is not seen",
}


def unclear(why: str) -> Script:
    """Return a script of which it cannot be told what it does."""
    return Script(kind=Kind.OPAQUE, is_serving=None, why=why)


def summed_up(
    notes: Notes, submission: Submission, request: GpuRequest, *, names_server: bool
) -> Script:
    """Return what a script is, from the notes on all its commands.

    A program that is not seen is taken for a possible server only where the script names vLLM, or
    a file that sounds like a server.
    """
    if notes.launches:
        found = _servers(_judged_together(notes, submission, request))
        return Script(kind=Kind.SERVER, is_serving=True, launches=found, why=found[0].why)
    if any(re.search("vllm", text, re.IGNORECASE) for text in notes.errors):
        return unclear("the script cannot be parsed")
    kind = _strongest(kind for kind in notes.kinds if names_server or kind is not Kind.OPAQUE)
    run = notes.engine_run if kind in (Kind.OFFLINE, Kind.BENCH) else None
    is_serving = None if kind is Kind.OPAQUE else False
    return Script(kind=kind, is_serving=is_serving, engine_run=run, why=_WHY[kind])


def _servers(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """Return the launches without those of ranks that only work for another in the script."""
    fronts = tuple(launch for launch in launches if not launch.engine.headless)
    return fronts or launches


def _strongest(kinds: Iterable[Kind]) -> Kind:
    found = set(kinds)
    return next((kind for kind in STRENGTH if kind in found), Kind.NONE)


def _judged_together(
    notes: Notes, submission: Submission, request: GpuRequest
) -> tuple[Launch, ...]:
    """Add the objections that hold for the script as a whole."""
    problem = _common_objection(notes, submission, request)
    if problem is None:
        return tuple(notes.launches)
    return tuple(
        replace(launch, editable=Editable.NO, why=problem, conditions=frozenset())
        if launch.editable is not Editable.NO
        else launch
        for launch in notes.launches
    )


def _common_objection(notes: Notes, submission: Submission, request: GpuRequest) -> str | None:
    if len(notes.launches) > 1:
        return "several servers in one script"
    if request.n_nodes > 1:
        return "multi-node"
    if submission.het_job_offset is not None:
        return "a heterogeneous job"
    if notes.pinned:
        return "devices are pinned in the script"
    if notes.gpu_work:
        return f"other work on the same GPUs ({notes.gpu_work[0]})"
    if notes.errors:
        return "parts of the script cannot be parsed"
    return None
