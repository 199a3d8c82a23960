"""Where a job that starts would be worth more, and whether that is for us to change.

In: a Question and the arm asked, which starts or may. Out: a Finding, or None where nothing is
worth saying. Called by policy. A place wins by a margin of what the asked GPUs cost and with a
confidence that the site sets; ties within the noise stay with the user's choice. What was left open
is filled in, what was chosen is advised on, `auto` leaves everything open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import arms, valuing
from omnipilot_slurm.decide.finding import Finding, Gain, moved
from omnipilot_slurm.decide.predicting import predicted
from omnipilot_slurm.records import Interval, Reason, Starts, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.script.source import Expired

#: a concurrency that nobody named may be this many times smaller or larger
_PLAUSIBLE: Final = 4


def choose(question: Question, asked: RatedArm, expired: Expired) -> Finding | None:
    """Return where the job would be worth more, or that this cannot be told."""
    auto = question.directives.auto
    if question.site.predictor is None and not auto:
        return None
    everything = (asked, *arms.smallest_first(question))
    asked, *others = valuing.valued(question, predicted(question, everything))
    listed = tuple(others)
    if asked.terms is None and not auto:
        return replace(_abstained(asked), arms=listed)
    able = [r for r in others if r.starts is Starts.STARTS and r.blocked is None]
    ours = able if auto else [rated for rated in able if _left_open(question, asked, rated)]
    best = _winner(question, asked, ours)
    if best is not None:
        reason = Reason(code="worth_more", text="worth more there")
        finding = moved(question, asked, best, reason, expired)
    else:
        best = _winner(question, asked, able)
        if best is None:
            return None
        reason = Reason(code="worth_more", text="worth more there, but your choice is kept")
        finding = Finding(verdict=Verdict.ADVISE, reason=reason, asked=asked, chosen=best)
    return replace(finding, arms=listed, gain=gain(question, best, asked))


def _abstained(asked: RatedArm) -> Finding:
    """Say that what the asked arm would deliver is outside of what was ever measured."""
    prediction = asked.prediction
    notes = prediction.notes if prediction is not None else ()
    text = notes[0] if notes else "the GPUs have no price, or nothing like them was measured"
    reason = Reason(code="out_of_support", text=text)
    return Finding(verdict=Verdict.ABSTAIN, reason=reason, asked=asked)


def _winner(question: Question, asked: RatedArm, able: Iterable[RatedArm]) -> RatedArm | None:
    """Return the arm that is worth most if it beats the asked one by margin and confidence."""
    known = [rated for rated in able if rated.terms is not None]
    if not known:
        return None
    best = max(known, key=_worth)
    if asked.terms is None:
        return best
    policy = question.site.policy
    margin = policy.rewrite_margin_frac * asked.terms.gpu_cost
    if _same_place(best, asked):
        return None
    sure = valuing.confidence(best, asked, by_usd=margin) >= policy.rewrite_confidence
    return best if sure else None


def _worth(rated: RatedArm) -> tuple[float, float, int]:
    """Order arms by worth; of equals, the cheaper one and then the smaller one is more."""
    assert rated.terms is not None
    return (rated.terms.total, -rated.usd_per_hour, -rated.arm.n_gpus)


def _same_place(one: RatedArm, other: RatedArm) -> bool:
    names = ("partition", "gpu", "n_gpus", "tensor_parallel")
    return all(getattr(one.arm, name) == getattr(other.arm, name) for name in names)


def _left_open(question: Question, asked: RatedArm, rated: RatedArm) -> bool:
    """Return whether an arm differs from the asked one only in what the user left open."""
    submission, request, launch = question.submission, question.request, question.launch
    arm = rated.arm
    partition_open = submission.partition is None
    type_open = request.type is None
    tp_follows = launch.tp_source in ("absent", "slurm_env")
    return (
        arm.n_gpus == asked.arm.n_gpus
        and (partition_open or arm.partition == asked.arm.partition)
        and (type_open or arm.gpu == asked.arm.gpu)
        and (tp_follows or arm.tensor_parallel == asked.arm.tensor_parallel)
    )


def gain(question: Question, best: RatedArm, asked: RatedArm) -> Gain | None:
    """Return what one arm is worth more than another, with its 80 % interval."""
    if best.terms is None or asked.terms is None:
        return None
    usd = best.terms.total - asked.terms.total
    spread = valuing.Z_90 * valuing.spread_usd(best, asked)
    return Gain(
        usd=Interval(lo=usd - spread, mid=usd, hi=usd + spread),
        hours=valuing.hours_of(question.workload),
        confidence=valuing.confidence(best, asked),
        flip=_flip(question, best, asked),
    )


def _flip(question: Question, best: RatedArm, asked: RatedArm) -> str | None:
    """Return the plausible concurrency at which the asked arm would be worth more, if any."""
    load = question.workload
    if load.source.get("concurrency") != "site":
        return None
    bare = tuple(replace(rated, prediction=None) for rated in (best, asked))
    for concurrency in (max(1, load.concurrency // _PLAUSIBLE), load.concurrency * _PLAUSIBLE):
        other = replace(question, workload=replace(load, concurrency=concurrency))
        there, here = valuing.valued(other, predicted(other, bare))
        if there.terms is None or here.terms is None:
            continue
        if there.terms.total < here.terms.total:
            return f"{concurrency} instead of {load.concurrency} requests at a time"
    return None
