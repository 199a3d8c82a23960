"""What should become of a job and why, and the two ways to act on it: move the job, or refuse it.

In: a Question, the arms spoken of, a reason. Out: Findings. Called by policy and choosing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import arms
from omnipilot_slurm.records import Editable, Reason, Starts, Verdict
from omnipilot_slurm.script import rewrite
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.records import Interval
    from omnipilot_slurm.script.source import Expired

#: failures of the GPUs chosen: other GPUs mend them
MOVES: Final = frozenset({CheckKind.MEMORY, CheckKind.CAPABILITY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one arm is worth more than another over `hours`; `confidence` that it is any more.

    `flip` is a concurrency, plausible where nobody said one, at which the other is worth more.
    """

    usd: Interval
    hours: float
    confidence: float
    flip: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict that enforce mode would act on; `asked` and `chosen` are the arms spoken of.

    `valid_tps` are the tensor-parallel degrees around the asked one that would be valid, `idle`
    the GPUs that no server would use, `obstacle` why the job cannot be changed.
    """

    verdict: Verdict
    reason: Reason
    asked: RatedArm | None = None
    chosen: RatedArm | None = None
    change: rewrite.Rewrite | None = None
    obstacle: Reason | None = None
    arms: tuple[RatedArm, ...] = ()
    valid_tps: tuple[int, ...] = ()
    idle: int = 0
    gain: Gain | None = None


def moved(
    question: Question,
    asked: RatedArm | None,
    chosen: RatedArm,
    reason: Reason,
    expired: Expired,
) -> Finding:
    """Rewrite the job to an arm; where it cannot be edited, only say so."""
    named = arms.asked_partitions(question.submission, question.site.snapshot)
    stays = named == (chosen.arm.partition,)
    target = replace(chosen.arm, partition=None) if stays else chosen.arm
    change = rewrite.rewrite(question.submission, question.launch, target, expired=expired)
    if isinstance(change, Reason):
        return Finding(
            verdict=Verdict.ADVISE, reason=reason, asked=asked, chosen=chosen, obstacle=change
        )
    return Finding(
        verdict=Verdict.REWRITE, reason=reason, asked=asked, chosen=chosen, change=change
    )


def refused(question: Question, asked: RatedArm, reason: Reason) -> Finding:
    """Refuse a job that will certainly fail; only advise where the launch may not run at all."""
    is_certain = question.launch.editable is not Editable.NO
    verdict = Verdict.REJECT if is_certain else Verdict.ADVISE
    obstacle = None if is_certain else Reason(code="not_editable", text=question.launch.why)
    return Finding(verdict=verdict, reason=reason, asked=asked, obstacle=obstacle)


def failure(rated: RatedArm) -> Reason:
    """Return the failing check of an arm that is spoken of: memory before all others."""
    failing = [check for check in rated.report.checks if check.ok is Starts.FAILS]
    ranked = sorted(failing, key=lambda check: check.kind not in MOVES)
    return ranked[0].detail
