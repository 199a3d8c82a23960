"""What should become of a job: the verdict that enforce mode would act on.

In: a Question. Out: a Finding: verdict, reason, the arm to move to and the rewrite that does it.
Called by decision, which then asks how far the site lets us go. The rules, in order:

1. What fails for certain is corrected: memory (and a GPU that cannot run the model) by the smallest
   arm that starts for certain anywhere the job may go; divisibility and world size within exactly
   the GPUs asked; anything else, or where no such arm exists, is refused.
2. What was left open is filled in: an absent TP becomes n_gpus / (PP x DP), an open partition one
   that has the GPUs asked.
3. What starts is compared by what it is worth (choosing); what the user chose is only advised on,
   unless `auto` was written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import arms, choosing
from omnipilot_slurm.decide.finding import MOVES, Finding, failure, moved, refused
from omnipilot_slurm.records import Reason, Starts, Verdict
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.script.source import Expired

_SPLITS: Final = frozenset({CheckKind.DIVISIBILITY, CheckKind.WORLD_SIZE})


def find(question: Question, expired: Expired) -> Finding:
    """Return what should become of the job, as if everything were allowed."""
    asked = arms.asked_arms(question)
    if asked:
        return _judged(question, _most_hopeful(asked), expired)
    if question.submission.partition is None:
        elsewhere = arms.asked_arms(question, anywhere=True)
        if elsewhere:
            return _into_partition(question, _most_hopeful(elsewhere), expired)
    return _nowhere(question)


def _most_hopeful(asked: Sequence[RatedArm]) -> RatedArm:
    order = {Starts.STARTS: 0, Starts.UNSURE: 1, Starts.FAILS: 2}
    return min(asked, key=lambda rated: order[rated.starts])


def _judged(question: Question, asked: RatedArm, expired: Expired) -> Finding:
    if asked.starts is Starts.FAILS:
        return _failing(question, asked, expired)
    return _starting(question, asked, expired)


def _into_partition(question: Question, asked: RatedArm, expired: Expired) -> Finding:
    """Judge a job that names no partition where the default one lacks the GPUs it names."""
    finding = _judged(question, asked, expired)
    if finding.change is not None or finding.verdict is Verdict.REJECT:
        return finding
    gpus = f"{asked.arm.n_gpus}x {asked.pool.gpu.name}"
    text = f"the default partition has no node with {gpus}, {asked.arm.partition} has one"
    return moved(question, None, asked, Reason(code="partition_open", text=text), expired)


def _nowhere(question: Question) -> Finding:
    """Judge a job whose request fits no node whose GPU is known."""
    if question.launch.tp is None:
        text = "the tensor-parallel degree cannot be told from the script"
        return Finding(verdict=Verdict.ABSTAIN, reason=Reason(code="tp_unknown", text=text))
    if not question.request.total:
        reason = Reason(code="no_gpus", text="the job asks for no GPUs that can be counted")
        return Finding(verdict=Verdict.PASS, reason=reason)
    text = "no node of the partition is known to have the GPUs asked"
    return Finding(verdict=Verdict.PASS, reason=Reason(code="gpus_elsewhere", text=text))


# what fails for certain


def _failing(question: Question, asked: RatedArm, expired: Expired) -> Finding:
    kinds = {check.kind for check in asked.report.checks if check.ok is Starts.FAILS}
    reason = failure(asked)
    filled = _filled_tp(question, asked)
    if filled is not None and filled.starts is Starts.STARTS:
        return moved(question, asked, filled, reason, expired)
    if kinds & _SPLITS and not kinds & MOVES:
        within = _within(question, asked)
        if within is not None and within.starts is not Starts.FAILS:
            return moved(question, asked, within, reason, expired)
        if within is None or not _memory_fails(within):
            valid = valid_degrees(question, asked)
            refusal = refused(question, asked, reason)
            return replace(refusal, valid_tps=valid)
    if kinds & (MOVES | _SPLITS):
        return _smallest_or_refused(question, asked, reason, expired)
    return refused(question, asked, reason)


def _memory_fails(rated: RatedArm) -> bool:
    return any(check.ok is Starts.FAILS and check.kind in MOVES for check in rated.report.checks)


def _filled_tp(question: Question, asked: RatedArm) -> RatedArm | None:
    """Return the asked GPUs with the TP that uses them all, where the user named none."""
    if question.launch.tp_source != "absent":
        return None
    return _within(question, asked)


def _within(question: Question, asked: RatedArm) -> RatedArm | None:
    """Return the asked GPUs with the one TP that uses exactly them, None where there is none."""
    arm = asked.arm
    replicas = arm.pipeline_parallel * arm.data_parallel
    if arm.n_gpus % replicas or arm.n_gpus // replicas == arm.tensor_parallel:
        return None
    return arms.retried(question, asked, arm.n_gpus // replicas)


def valid_degrees(question: Question, asked: RatedArm) -> tuple[int, ...]:
    """Return the nearest valid tensor-parallel degrees below and above the one asked."""
    asked_tp, most = asked.arm.tensor_parallel, max(asked.pool.n_per_node, asked.arm.n_gpus)
    valid = [tp for tp in range(1, most + 1) if tp != asked_tp and _divides(question, asked, tp)]
    below = [tp for tp in valid if tp < asked_tp][-1:]
    above = [tp for tp in valid if tp > asked_tp][:1]
    return (*below, *above)


def _divides(question: Question, asked: RatedArm, tensor_parallel: int) -> bool:
    report = arms.retried(question, asked, tensor_parallel).report
    return not any(
        check.kind is CheckKind.DIVISIBILITY and check.ok is Starts.FAILS for check in report.checks
    )


def _smallest_or_refused(
    question: Question, asked: RatedArm, reason: Reason, expired: Expired
) -> Finding:
    """Move the job to the smallest arm that starts for certain, refuse it where there is none."""
    seen = []
    for rated in arms.smallest_first(question):
        seen.append(rated)
        if rated.starts is Starts.STARTS and rated.blocked is None:
            finding = moved(question, asked, rated, reason, expired)
            return replace(finding, arms=tuple(seen))
    return replace(refused(question, asked, reason), arms=tuple(seen))


# what starts, or may


def _starting(question: Question, asked: RatedArm, expired: Expired) -> Finding:
    filled = _filled_tp(question, asked)
    if filled is not None and filled.starts is not Starts.FAILS:
        held = asked.arm.n_gpus
        text = f"without --tensor-parallel-size the server uses {_world(asked)} of {held} GPUs"
        return moved(question, asked, filled, Reason(code="tp_absent", text=text), expired)
    auto = question.directives.auto
    better = choosing.choose(question, asked, expired) if auto else None
    if better is not None and better.verdict is not Verdict.ABSTAIN:
        return better
    idle = asked.arm.n_gpus - _world(asked)
    if idle > 0:
        return _idle(question, asked, idle)
    if asked.starts is Starts.UNSURE:
        return Finding(verdict=Verdict.ADVISE, reason=_doubt(asked), asked=asked)
    if not auto:
        better = choosing.choose(question, asked, expired)
    return better or _as_asked(asked)


def _idle(question: Question, asked: RatedArm, idle: int) -> Finding:
    """Tell of GPUs that no server uses, and of the TP that would use them all, if one would."""
    text = f"{_world(asked)} of {asked.arm.n_gpus} GPUs are used, {idle} stay idle"
    reason = Reason(code="idle_gpus", text=text)
    full = _within(question, asked)
    degrees = () if full is None or full.starts is Starts.FAILS else (full.arm.tensor_parallel,)
    return Finding(verdict=Verdict.ADVISE, reason=reason, asked=asked, idle=idle, valid_tps=degrees)


def _as_asked(asked: RatedArm) -> Finding:
    reason = Reason(code="starts", text="the server starts as asked")
    return Finding(verdict=Verdict.PASS, reason=reason, asked=asked)


def _world(rated: RatedArm) -> int:
    arm = rated.arm
    return arm.tensor_parallel * arm.pipeline_parallel * arm.data_parallel


def _doubt(rated: RatedArm) -> Reason:
    """Return the check that makes the start uncertain."""
    return next(check.detail for check in rated.report.checks if check.ok is Starts.UNSURE)
