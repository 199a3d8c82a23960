"""Move a job to another arm: the tensor-parallel degree, the GPUs and the partition, together.

In: a submission, the launch read in it, where it should run. Out: a Rewrite whose result was read
again and differs in nothing else, or the reason why the job is left alone. Called by policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Edit, Editable, Reason
from omnipilot_slurm.script import serving, tres
from omnipilot_slurm.script.words import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.records import Arm, Launch, StepRequest, Submission
    from omnipilot_slurm.script.budget import Expired

#: entries of tres_per_task that another field keeps when it is emptied
_KEPT_ELSEWHERE: Final = frozenset({"cpu"})
#: options of an srun on the launch line that move with the job
_STEP_FORMS: Final = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task"})
#: options of an srun that tie it to the old GPUs in a way that is not followed
_STEP_TIES: Final = frozenset({"gpus-per-socket", "ntasks-per-gpu", "tres-per-task"})
_NOT_VERIFIED: Final = Reason(
    code="not_verified", text="the changed script would not read as intended"
)
_STEP_FIXED: Final = Reason(
    code="step_fixed", text="an srun asks for GPUs in a way that cannot follow"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What is written back: byte edits of the script, job fields, environment variables."""

    edits: tuple[Edit, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One reading of a job: its one launch and the trace of its commands."""

    launch: Launch
    trace: tuple[tuple[str, ...], ...]


def rewrite(
    submission: Submission, launch: Launch, arm: Arm, *, expired: Expired
) -> Rewrite | Reason:
    """Return the changes that move a job to an arm on one node, or why it cannot be moved.

    Bytes outside the edits stay as they are, and a second pass over the result changes nothing.
    """
    objection = _objection(submission, launch)
    if objection is not None:
        return Reason(code="not_editable", text=objection)
    moved = _moved_fields(submission, arm)
    if moved is None:
        return Reason(code="gres_unreadable", text="the job's GPU request cannot be read in full")
    fields, env = moved
    after = with_fields(submission, fields, env)
    at_first = _view(submission, expired)
    before = _view(after, expired) if fields or env else at_first
    if at_first is None or before is None or _ends(at_first) != _ends(before):
        return _NOT_VERIFIED
    edits = _edits(after, before, launch, arm, expired)
    if isinstance(edits, Reason):
        return edits
    found = _view(replace(after, script=apply(after.script, edits)), expired)
    if found is None or not _is_as_meant(found, before, launch, arm):
        return _NOT_VERIFIED
    return Rewrite(edits=edits, fields=fields, env=env)


def _objection(submission: Submission, launch: Launch) -> str | None:
    if launch.editable is Editable.NO:
        return launch.why
    set_names = launch.conditions & submission.environment.keys()
    if set_names:
        return f"{', '.join(sorted(set_names))} was set at submission"
    if submission.ntasks_per_gpu is not None or submission.ntasks_per_tres is not None:
        return "--ntasks-per-gpu ties the number of tasks to the GPUs"
    return None


def _moved_fields(submission: Submission, arm: Arm) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the job fields and variables for an arm; both empty where nothing moves.

    None where the request holds something that would be lost.
    """
    request = tres.request_of(submission)
    fields: dict[str, str] = {}
    if arm.partition is not None and arm.partition != submission.partition:
        fields["partition"] = arm.partition
    same_type = arm.gres_type is None or request.type == arm.gres_type
    if request.total == arm.n_gpus and same_type and request.form is not None:
        return fields, {}
    gres = tres.with_gpus(submission.tres_per_node, arm.gres_type, arm.n_gpus)
    if gres is None or not _loses_only_gpus(submission):
        return None
    fields["gres"] = gres
    for name in ("tres_per_job", "tres_per_task", "tres_per_socket"):
        if getattr(submission, name):
            fields[name] = ""
    env = tres.step_environment(
        submission.environment, arm.gres_type, arm.n_gpus, submission.num_tasks
    )
    return fields, env


def _loses_only_gpus(submission: Submission) -> bool:
    """Return whether the fields that are emptied hold nothing but GPUs."""
    lost: set[str] = set()
    for text, kept in (
        (submission.tres_per_job, frozenset()),
        (submission.tres_per_socket, frozenset()),
        (submission.tres_per_task, _KEPT_ELSEWHERE),
    ):
        entries = tres.parse_gres(text)
        if entries is None:
            return False
        lost |= {entry.name for entry in entries} - kept
    return lost <= {"gpu"}


def with_fields(
    submission: Submission, fields: Mapping[str, str], env: Mapping[str, str]
) -> Submission:
    """Return a submission as slurmctld would show it after the fields and variables are written."""

    def kept(name: str, value: str | None) -> str | None:
        return None if name in fields else value

    return replace(
        submission,
        partition=fields.get("partition", submission.partition),
        tres_per_node=fields.get("gres", submission.tres_per_node),
        tres_per_job=kept("tres_per_job", submission.tres_per_job),
        tres_per_task=kept("tres_per_task", submission.tres_per_task),
        tres_per_socket=kept("tres_per_socket", submission.tres_per_socket),
        environment={**submission.environment, **env},
    )


def _view(submission: Submission, expired: Expired) -> _View | None:
    """Read a job; None where it does not start exactly one server."""
    reading = serving.read(
        submission, tres.request_of(submission), environment_is_complete=True, expired=expired
    )
    launches = reading.script.launches
    return _View(launch=launches[0], trace=reading.trace) if len(launches) == 1 else None


def _ends(view: _View) -> int:
    """Return how often a job may end early: what guards the old GPUs must not meet the new."""
    return sum(command[0] == "exit" for command in view.trace if command)


def _edits(
    after: Submission, before: _View, launch: Launch, arm: Arm, expired: Expired
) -> tuple[Edit, ...] | Reason:
    """Return the byte edits, ascending, or why one that is needed cannot be made.

    The TP degree moves first: what is fed by the same variable moves with it.
    """
    degree = _degree_edit(before.launch, launch, arm)
    if isinstance(degree, Reason):
        return degree
    followed = before.launch
    if degree is not None and followed.steps:
        script = apply(after.script, [degree])
        view = _view(replace(after, script=script), expired)
        if view is None:
            return _NOT_VERIFIED
        followed = view.launch
    edits = [] if degree is None else [degree]
    for step in followed.steps:
        edit = _step_edit(step, after.script, degree, arm)
        if isinstance(edit, Reason):
            return edit
        if edit is not None:
            edits.append(edit)
    edits.sort(key=lambda edit: edit.start)
    overlaps = any(one.end > other.start for one, other in pairwise(edits))
    return _NOT_VERIFIED if overlaps else tuple(edits)


def _degree_edit(followed: Launch, launch: Launch, arm: Arm) -> Edit | Reason | None:
    """Return the edit of the TP degree, None where it follows the GPUs by itself."""
    if followed.tp == arm.tensor_parallel:
        return None
    place = launch.tp_place
    if place is None:
        return _NOT_VERIFIED
    if place.start == place.end:
        return replace(place, new=encode(f" --tensor-parallel-size {arm.tensor_parallel}"))
    return replace(place, new=encode(str(arm.tensor_parallel)))


def _step_edit(
    step: StepRequest, script: bytes, degree: Edit | None, arm: Arm
) -> Edit | Reason | None:
    """Return the edit of an srun option, None where it follows by itself.

    The option was read in the script with the TP degree already moved.
    """
    if step.name in _STEP_TIES:
        return _STEP_FIXED
    if step.name not in _STEP_FORMS:
        return None
    new = None if step.value is None else _step_value(step.value, step.name, arm)
    if new is None:
        return _STEP_FIXED
    if new == step.value:
        return None
    if step.start is None or step.end is None:
        return _STEP_FIXED
    shift = 0
    if degree is not None and step.start >= degree.start:
        shift = len(degree.new) - len(degree.old)
    start, end = step.start - shift, step.end - shift
    return Edit(start=start, end=end, old=script[start:end], new=encode(new))


def _step_value(value: str, name: str, arm: Arm) -> str | None:
    """Return what an srun option must say on an arm, None where its form is not known."""
    if name != "gres":
        return tres.like_form(value, arm.gres_type, arm.n_gpus) or None
    entries = tres.parse_gres(value)
    gpus = None if entries is None else tres.gpus_of(entries)
    if gpus is None or len(gpus) > 1:
        return None
    if not gpus or gpus[0].count == 0:
        return value
    if gpus[0].count == arm.n_gpus and (gpus[0].type in (None, arm.gres_type)):
        return value
    return tres.with_gpus(value, arm.gres_type if gpus[0].type else None, arm.n_gpus)


def apply(script: bytes, edits: Sequence[Edit]) -> bytes:
    """Return a script with its edits made; `edits` ascend and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        pieces += (script[position : edit.start], edit.new)
        position = edit.end
    return b"".join([*pieces, script[position:]])


def _is_as_meant(found: _View, before: _View, launch: Launch, arm: Arm) -> bool:
    """Return whether a job reads as meant: the engine on the arm's GPUs, all else as before."""
    if found.launch.tp != arm.tensor_parallel or found.trace != before.trace:
        return False
    if found.launch.editable is Editable.NO:
        # what the script does with the new GPUs, such as choosing devices, stands in the way
        return False
    if found.launch.engine != replace(launch.engine, tensor_parallel=arm.tensor_parallel):
        return False
    return all(
        step.value is not None and _step_value(step.value, step.name, arm) == step.value
        for step in found.launch.steps
        if step.name in _STEP_FORMS
    )
