"""Where a job that starts would be worth more, and whether that is for us to change.

In: a Question and the arm asked, which starts or may. Out: a Finding, or None where nothing is
worth saying. Called by policy. What was left open is filled in, what was chosen is advised on,
`auto` leaves everything open.

A place is worth speaking of if it gains more than the margin, a part of what the asked GPUs cost,
and is better at all with the confidence that the site sets. It is moved to if it gains the margin
with that confidence, and under every load that is plausible where nobody said which. Anything less
is noise, and stays with the user's choice. Places that differ by less than the margin are equals,
of which the cheapest is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.decide import arms, valuing
from omnipilot_slurm.decide.finding import Finding, Gain, moved
from omnipilot_slurm.decide.predicting import predicted
from omnipilot_slurm.decide.remembering import Rated, key_of
from omnipilot_slurm.decide.utility import Z_90
from omnipilot_slurm.records import Interval, Reason, Starts, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.script.source import Expired
    from omnipilot_slurm.site_settings import PolicySettings


def choose(question: Question, asked: RatedArm, expired: Expired) -> Finding | None:
    """Return where the job would be worth more, or that this cannot be told."""
    if question.site.predictor is None:
        return None
    rated = _rated(question, asked)
    found = _filled_in(question, rated.asked, _able(rated.others), expired) or rated.advice
    return None if found is None else replace(found, arms=rated.others)


def _able(others: Sequence[RatedArm]) -> list[RatedArm]:
    """Return the arms that the job may be moved to."""
    return [one for one in others if one.starts is Starts.STARTS and one.blocked is None]


def _rated(question: Question, asked: RatedArm) -> Rated:
    """Return all arms with their worth, as they were for a question like this if there was one."""
    remembered = question.site.remembered
    key = key_of(question, asked)
    known = None if remembered is None else remembered.get(key)
    if known is not None and known.model == question.model:
        return known
    everything = (asked, *arms.smallest_first(question))
    asked, *others = valuing.valued(question, predicted(question, everything))
    rated = Rated(
        model=question.model,
        asked=asked,
        others=tuple(others),
        advice=_advised(question, asked, _able(others)),
    )
    if remembered is not None:
        remembered.put(key, rated)
    return rated


def _filled_in(
    question: Question, asked: RatedArm, able: Sequence[RatedArm], expired: Expired
) -> Finding | None:
    """Move the job, within what is open, to what is worth more for sure and for any load."""
    if asked.terms is None:
        return None
    is_open = question.directives.auto
    ours = [rated for rated in able if is_open or _left_open(question, asked, rated)]
    best = winner(asked, ours, question.site.policy, surely=True)
    if best is None:
        return None
    more = gain(question, best, asked)
    if more.flip is not None:
        return None
    reason = Reason(code="worth_more", text="worth more there")
    return replace(moved(question, asked, best, reason, expired), gain=more)


def _advised(question: Question, asked: RatedArm, able: Sequence[RatedArm]) -> Finding | None:
    """Tell of what is worth more, the user's choice being kept, or that this cannot be told."""
    if asked.terms is None:
        return _abstained(asked)
    best = winner(asked, able, question.site.policy, surely=False)
    if best is None:
        return None
    return Finding(
        verdict=Verdict.ADVISE,
        reason=Reason(code="worth_more", text="worth more there, but your choice is kept"),
        asked=asked,
        chosen=best,
        gain=gain(question, best, asked),
    )


def _abstained(asked: RatedArm) -> Finding:
    """Say that what the asked arm would be worth is not known, and for want of what."""
    text = f"nothing is known of what it delivers on {asked.pool.gpu.name}"
    prediction = asked.prediction
    if prediction is not None and "output_tok_s" in prediction.targets:
        text = f"{asked.pool.gpu.name} has no price, so places cannot be compared"
    elif prediction is not None and prediction.notes:
        text = prediction.notes[0]
    reason = Reason(code="out_of_support", text=text)
    return Finding(verdict=Verdict.ABSTAIN, reason=reason, asked=asked)


def winner(
    asked: RatedArm, able: Sequence[RatedArm], policy: PolicySettings, *, surely: bool
) -> RatedArm | None:
    """Return the arm that beats the asked one by the margin, None where none does.

    `surely`: by the margin with the site's confidence; else by the margin as expected, with that
    confidence that it is better at all. The margin is the same for all arms, so that no arm's rank
    rises with its own price.
    """
    assert asked.terms is not None
    margin = policy.rewrite_margin_frac * asked.terms.gpu_cost
    worth_of = {id(r): r.terms.total for r in able if r.terms is not None}
    beats = [
        rated
        for rated in able
        if id(rated) in worth_of
        and not arms.same_place(rated, asked)
        and worth_of[id(rated)] > asked.terms.total + margin
        and valuing.confidence(rated, asked, by_usd=margin if surely else 0.0)
        >= policy.rewrite_confidence
    ]
    most = max((worth_of[id(rated)] for rated in beats), default=0.0)
    equals = [rated for rated in beats if worth_of[id(rated)] >= most - margin]
    return min(equals, key=_cheapest_first, default=None)


def _cheapest_first(rated: RatedArm) -> tuple[float, int, float, str, str, int]:
    """Order equals: the cheaper arm, the smaller, the one worth more; names make it one order."""
    arm, worth = rated.arm, rated.utility_usd or 0.0
    where = (arm.partition or "", arm.gpu, arm.tensor_parallel)
    return (rated.usd_per_hour, arm.n_gpus, -worth, *where)


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


def gain(question: Question, best: RatedArm, asked: RatedArm) -> Gain:
    """Return what one arm is worth more than another, with its 80 % interval."""
    assert best.terms is not None
    assert asked.terms is not None
    usd = best.terms.total - asked.terms.total
    spread = Z_90 * valuing.spread_usd(best, asked)
    return Gain(
        usd=Interval(lo=usd - spread, mid=usd, hi=usd + spread),
        hours=valuing.hours_of(question.workload),
        confidence=valuing.confidence(best, asked),
        flip=_flip(question, best, asked),
    )


def _flip(question: Question, best: RatedArm, asked: RatedArm) -> int | None:
    """Return a plausible concurrency at which the asked arm would be worth more, if there is one.

    Both ends of what is plausible are tried; one that lies outside of what was measured tells
    nothing.
    """
    load = question.workload
    if load.plausible_concurrency is None:
        return None
    bare = tuple(replace(rated, prediction=None) for rated in (best, asked))
    for concurrency in load.plausible_concurrency:
        other = replace(question, workload=replace(load, concurrency=concurrency))
        there, here = valuing.valued(other, predicted(other, bare))
        if there.terms is None or here.terms is None:
            continue
        if there.terms.total < here.terms.total:
            return concurrency
    return None
