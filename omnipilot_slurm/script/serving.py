"""Find the vLLM launches of a batch script and read them.

In: script bytes, what came with the submission (arguments, environment) and the GPU request. Out:
a Script. Unclear stays unclear: a script that cannot be told apart is never called a server.
Called by decide, detect and advise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Script
from omnipilot_slurm.script import engine_runs, python_source
from omnipilot_slurm.script.budget import Budget, OverBudgetError, never
from omnipilot_slurm.script.judging import summed_up, unclear
from omnipilot_slurm.script.programs import Kind
from omnipilot_slurm.script.reader import Reader
from omnipilot_slurm.script.scope import Scope
from omnipilot_slurm.script.slurm_environment import slurm_variables
from omnipilot_slurm.script.source import MAX_BYTES
from omnipilot_slurm.script.words import Segment, Splice, Word, decode

if TYPE_CHECKING:
    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.script.budget import Expired
    from omnipilot_slurm.script.tres import GpuRequest

_CANDIDATE: Final = re.compile(rb"(?<!\bn)vllm|#\s?OMNIPILOT", re.IGNORECASE)
#: a file that is run and named like a server
_SERVER_FILE: Final = re.compile(
    rb"^[^#\n]*(?<![a-z])(?:serve|engine|launch)[\w.-]{,40}\.(?:sh|bash|py)\b", re.MULTILINE
)
_CONFLICT: Final = re.compile(rb"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)
_TEMPLATE: Final = re.compile(rb"^#SBATCH\b.*(?:\{\{|\{%|<%|(?<!\$)\{[A-Za-z_]\w*\})", re.MULTILINE)
_COMMAND: Final = re.compile(rb"^[ \t]*[^#\s]", re.MULTILINE)
#: a question to the first argument
_ARGUMENT: Final = re.compile(rb"(?:\bcase\s+\S{,8}|\[[^\]\n]{,80}|\btest\b[^;\n]{,80})\$\{?1\b")
_SHELL_SHEBANG: Final = re.compile(rb"^#!\s*\S*?(?:/|env\s+(?:-\S+\s+)?)(?:ba|da|k|z)?sh\b")
_PYTHON_SHEBANG: Final = re.compile(rb"^#!.*\bpython[\d.]*\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A script with the trace of its commands: equal traces run the same commands."""

    script: Script
    trace: tuple[tuple[str, ...], ...] = ()


def find(
    submission: Submission,
    request: GpuRequest,
    *,
    environment_is_complete: bool = False,
    expired: Expired = never,
) -> Script:
    """Return what a batch script does.

    `environment_is_complete`: a variable that the submission does not carry was not set there.
    `expired` answers True once the time for reading is over; the script is then not told apart.
    """
    return read(
        submission, request, environment_is_complete=environment_is_complete, expired=expired
    ).script


def read(
    submission: Submission,
    request: GpuRequest,
    *,
    environment_is_complete: bool = False,
    expired: Expired = never,
) -> Reading:
    """Return what a batch script does, as find does, and the trace of its commands."""
    known = _without_reading(submission.script)
    if known is not None:
        return Reading(script=known)
    complete = environment_is_complete
    scope = Scope(
        environment=submission.environment,
        complete=complete,
        slurm=slurm_variables(submission, request, complete=complete),
        budget=Budget(expired),
    )
    scope.args = [Word((Segment(arg),)) for arg in submission.args]
    reading = _read(submission, request, scope)
    if complete or submission.args or not _may_start_by_arguments(reading, submission.script):
        return reading
    # arguments that may yet be given decide whether there is a server
    scope = replace(scope, variables={}, functions={}, exported=set(), budget=Budget(expired))
    scope.args = [Splice(fixed=False)]
    other = _read(submission, request, scope)
    return other if other.script.launches else reading


def _may_start_by_arguments(reading: Reading, script: bytes) -> bool:
    is_server = reading.script.is_serving is not False
    return not is_server and b"vllm" in script and _ARGUMENT.search(script) is not None


def _read(submission: Submission, request: GpuRequest, scope: Scope) -> Reading:
    tasks = submission.num_tasks or (submission.ntasks_per_node or 1) * request.n_nodes
    reader = Reader(script=submission.script, budget=scope.budget, n_tasks=tasks)
    try:
        reader.read(scope)
    except OverBudgetError:
        return Reading(script=unclear("too large or too deep to be read in time"))
    names_it = any(p.search(submission.script) for p in (_CANDIDATE, _SERVER_FILE))
    script = summed_up(reader.notes, submission, request, names_server=names_it)
    return Reading(script=script, trace=tuple(reader.notes.trace))


def _without_reading(script: bytes) -> Script | None:
    """Return what can be said of a script that is not read as shell text, None for the others."""
    if len(script) > MAX_BYTES:
        return unclear(f"longer than {MAX_BYTES} bytes")
    if _CONFLICT.search(script):
        return unclear("the script holds merge-conflict markers")
    if _is_template(script):
        return unclear("a template that is not filled in")
    if not script.startswith(b"#!") or _SHELL_SHEBANG.match(script):
        return None
    if _CANDIDATE.search(script) is None:
        return Script(kind=Kind.NONE, is_serving=False, why="starts no vLLM server")
    if _PYTHON_SHEBANG.match(script):
        return _python_script(decode(script))
    return unclear("not a script for bash or sh")


def _is_template(script: bytes) -> bool:
    """Return whether the job's own directives hold placeholders, not those of a job it writes."""
    found = _TEMPLATE.search(script)
    return found is not None and _COMMAND.search(script, 0, found.start()) is None


def _python_script(source: str) -> Script:
    if python_source.starts_server(source):
        return unclear("a Python batch script that may start a server")
    engine = python_source.offline_engine(source)
    if engine is None:
        return Script(kind=Kind.NONE, is_serving=False, why="a Python batch script")
    run = engine_runs.of_python(engine)
    return Script(
        kind=Kind.OFFLINE, is_serving=False, engine_run=run, why="offline batch in Python"
    )
