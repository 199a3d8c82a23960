"""Move a job to another arm: the tensor-parallel degree, the GPUs and the partition, together.

In: a submission, the launch read in it, where it should run. Out: a Rewrite whose result was read
again and differs in nothing else, or the reason why the job is left alone. Called by policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Edit, Editable, Reason
from omnipilot_slurm.script import serving, tres
from omnipilot_slurm.script.source import Expired, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.records import Arm, Launch, StepRequest, Submission

#: entries of tres_per_task that another field keeps when it is emptied
_KEPT_ELSEWHERE: Final = frozenset({"cpu"})
_STEP_FORMS: Final = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What is written back: byte edits of the script, job fields, environment variables."""

    edits: tuple[Edit, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


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
    edits = _edits(submission, launch, arm, after, expired)
    if edits is None:
        return Reason(code="step_fixed", text="an srun asks for GPUs in a way that cannot follow")
    result = Rewrite(edits=edits, fields=fields, env=env)
    if not _verified(after, edits, launch, arm, expired):
        return Reason(code="not_verified", text="the changed script would not read as intended")
    return result


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
    """Return the job fields and variables for an arm; both empty where nothing moves."""
    request = tres.request_of(submission)
    fields: dict[str, str] = {}
    if arm.partition is not None and arm.partition != submission.partition:
        fields["partition"] = arm.partition
    same_type = arm.gres_type is None or request.type == arm.gres_type
    if request.total == arm.n_gpus and same_type and request.form is not None:
        return fields, {}
    task_entries = tres.parse_gres(submission.tres_per_task)
    others = [submission.tres_per_job, submission.tres_per_socket]
    if task_entries is None or any(tres.parse_gres(text) is None for text in others):
        return None
    lost = {entry.name for text in others for entry in tres.parse_gres(text) or ()}
    lost |= {entry.name for entry in task_entries} - _KEPT_ELSEWHERE
    if lost - {"gpu"}:
        return None
    gres = tres.with_gpus(submission.tres_per_node, arm.gres_type, arm.n_gpus)
    if gres is None:
        return None
    fields["gres"] = gres
    for name in ("tres_per_job", "tres_per_task", "tres_per_socket"):
        if getattr(submission, name):
            fields[name] = ""
    env = tres.step_environment(
        submission.environment, arm.gres_type, arm.n_gpus, submission.num_tasks
    )
    return fields, env


def with_fields(
    submission: Submission, fields: Mapping[str, str], env: Mapping[str, str]
) -> Submission:
    """Return a submission as slurmctld would show it after the fields and variables are written."""
    gres = fields.get("gres")
    cleared = {
        name: None
        for name in ("tres_per_job", "tres_per_task", "tres_per_socket")
        if name in fields
    }
    return replace(
        submission,
        partition=fields.get("partition", submission.partition),
        tres_per_node=gres if gres is not None else submission.tres_per_node,
        environment={**submission.environment, **env},
        **cleared,
    )


def _edits(
    submission: Submission, launch: Launch, arm: Arm, after: Submission, expired: Expired
) -> tuple[Edit, ...] | None:
    """Return the byte edits, ascending; None where one that is needed cannot be made."""
    followed = _read(after, expired)
    if followed is None:
        return None
    edits: list[Edit] = []
    if followed.tp != arm.tensor_parallel:
        place = launch.tp_place
        if place is None:
            return None
        inserted = f" --tensor-parallel-size {arm.tensor_parallel}"
        text = inserted if place.start == place.end else str(arm.tensor_parallel)
        edits.append(replace(place, new=encode(text)))
    for step in followed.steps:
        edit = _step_edit(step, submission.script, arm)
        if edit is False:
            return None
        if isinstance(edit, Edit):
            edits.append(edit)
    edits.sort(key=lambda edit: edit.start)
    overlap = any(a.end > b.start for a, b in zip(edits, edits[1:], strict=False))
    return None if overlap else tuple(edits)


def _step_edit(step: StepRequest, script: bytes, arm: Arm) -> Edit | bool:
    """Return the edit of an srun option; True where it follows by itself, False where it cannot."""
    if step.name in ("gpus-per-socket", "ntasks-per-gpu", "tres-per-task"):
        return False
    if step.name not in _STEP_FORMS:
        return True
    if step.value is None:
        return False
    new = _step_value(step, arm)
    if new is None or new == step.value:
        return new is not None
    if step.start is None or step.end is None:
        return False
    old = script[step.start : step.end]
    return Edit(start=step.start, end=step.end, old=old, new=encode(new))


def _step_value(step: StepRequest, arm: Arm) -> str | None:
    value = step.value or ""
    if step.name != "gres":
        return tres.like_form(value, arm.gres_type, arm.n_gpus) or None
    entries = tres.gpus_of(tres.parse_gres(value))
    if entries is None or len(entries) > 1:
        return None
    if not entries or (entries[0].count == 0):
        return value
    gpu_type = arm.gres_type if entries[0].type else None
    return tres.with_gpus(value, gpu_type, arm.n_gpus)


def apply(script: bytes, edits: Sequence[Edit]) -> bytes:
    """Return a script with its edits made; `edits` ascend and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        pieces += (script[position : edit.start], edit.new)
        position = edit.end
    return b"".join([*pieces, script[position:]])


def _read(submission: Submission, expired: Expired) -> Launch | None:
    found = serving.find(
        submission, tres.request_of(submission), environment_is_complete=True, expired=expired
    )
    return found.launches[0] if len(found.launches) == 1 else None


def _verified(
    after: Submission, edits: Sequence[Edit], launch: Launch, arm: Arm, expired: Expired
) -> bool:
    """Read the result again: the same engine on the arm's GPUs, and nothing left to move."""
    again = _read(replace(after, script=apply(after.script, edits)), expired)
    if again is None or again.tp != arm.tensor_parallel:
        return False
    expected = replace(launch.engine, tensor_parallel=arm.tensor_parallel)
    if again.engine != expected:
        return False
    if any(
        step.name in _STEP_FORMS and _step_value(step, arm) != step.value for step in again.steps
    ):
        return False
    request = tres.request_of(replace(after, partition=None, features=None))
    return request.total == arm.n_gpus and (arm.gres_type is None or request.type == arm.gres_type)
