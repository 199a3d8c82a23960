"""From one submission to one decision: the way of one sbatch, end to end, without IO.

In: a Submission and the Site. Out: a Decision. Called by the daemon for sbatch, by `advise`
beforehand and by replay afterwards, so that all three say the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnipilot_slurm.decide import arms, explain, policy, valuing
from omnipilot_slurm.decide.arms import Question, RatedArm
from omnipilot_slurm.decide.engines import Engines
from omnipilot_slurm.decide.finding import Finding
from omnipilot_slurm.decide.predicting import predicted
from omnipilot_slurm.decide.site import KnownModel, UnknownModel
from omnipilot_slurm.decide.workload import Known, workload_of
from omnipilot_slurm.records import Mode, Reason, Verdict
from omnipilot_slurm.script import directives as words
from omnipilot_slurm.script import serving, tres

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.records import Launch, Script, Submission, Workload
    from omnipilot_slurm.script.directives import Directives
    from omnipilot_slurm.script.source import Expired
    from omnipilot_slurm.site_settings import PolicySettings

#: as many variables as the shim sends at most: with more, an absent one may have been set
MAX_VARIABLES = 32
_ALL = 100.0
_ORDER = {Mode.OBSERVE: 0, Mode.ADVISE: 1, Mode.ENFORCE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a submission: `finding` as if all were allowed, `verdict` what is done."""

    verdict: Verdict
    finding: Finding
    mode: Mode
    messages: tuple[str, ...] = ()
    script: Script | None = None
    launch: Launch | None = None
    workload: Workload | None = None
    model_said: str = ""
    #: arms that may be shown beside the chosen one
    arms: tuple[RatedArm, ...] = ()


def decide(
    submission: Submission, site: Site, *, expired: Expired, all_arms: bool = False
) -> Decision:
    """Return the decision on a submission; `all_arms` rates every arm even where none is needed."""
    directives = words.omnipilot(submission.script, submission.comment)
    mode = mode_of(submission, site, directives)
    left_alone = _left_alone(submission, site, directives)
    if left_alone is not None:
        return _passed(left_alone, mode)
    request = tres.request_of(submission)
    complete = len(submission.environment) < MAX_VARIABLES
    script = serving.find(submission, request, environment_is_complete=complete, expired=expired)
    if script.is_serving is not True:
        return _not_serving(script, directives, mode)
    if len(script.launches) > 1:
        return _several(script, mode)
    launch = script.launches[0]
    known = _model_of(launch, site)
    if isinstance(known, UnknownModel):
        code = "model_pending" if known.pending else "model_unknown"
        reason = Reason(code=code, text=known.text)
        finding = Finding(verdict=Verdict.ABSTAIN, reason=reason)
        return _said(finding, mode, site, script=script, launch=launch)
    workload = _workload(submission, site, directives, launch)
    question = Question(
        submission=submission,
        request=request,
        directives=directives,
        launch=launch,
        model=known.facts,
        workload=workload,
        site=site,
        engines=Engines(launch.engine, site.vllm),
    )
    finding = _found(question, expired)
    if all_arms:
        finding = replace(finding, arms=arms.every_arm(question, finding.arms))
    finding = _rated_fully(question, finding)
    decision = _said(finding, mode, site, script=script, launch=launch, workload=workload)
    return replace(decision, model_said=known.said)


def mode_of(submission: Submission, site: Site, directives: Directives) -> Mode:
    """Return how far the site lets us go with this job; a directive can only lower it.

    What is not in the canary's share is observed only.
    """
    chosen = site.policy
    account = submission.account or submission.default_account or ""
    partitions = arms.asked_partitions(submission, site.snapshot)
    mode = chosen.by_user.get(submission.user_name or "") or chosen.by_account.get(account)
    if mode is None:
        modes = [chosen.by_partition.get(name, chosen.mode) for name in partitions]
        mode = min(modes, key=_ORDER.__getitem__, default=chosen.mode)
    if directives.mode is not None:
        mode = min(mode, directives.mode, key=_ORDER.__getitem__)
    return mode if _in_canary(submission, partitions, chosen) else Mode.OBSERVE


def _in_canary(submission: Submission, partitions: Sequence[str], chosen: PolicySettings) -> bool:
    """Return whether a job is among the share that is acted on: always the same for one name."""
    by_partition, usual = chosen.canary_percent_by_partition, chosen.canary_percent
    percent = min((by_partition.get(name, usual) for name in partitions), default=usual)
    if percent >= _ALL:
        return True
    text = f"{submission.user_name}\0{submission.name}".encode("utf-8", "surrogateescape")
    place = int.from_bytes(hashlib.sha256(text).digest()[:8]) / 2**64
    return place * _ALL < percent


def _left_alone(submission: Submission, site: Site, directives: Directives) -> Reason | None:
    """Return why a job is not even looked at, None where it is."""
    account = submission.account or submission.default_account
    reasons = (
        (directives.off, "opted_out", "the user wrote `off`"),
        (submission.user_name in site.policy.exempt_users, "exempt", "the user is exempt"),
        (account in site.policy.exempt_accounts, "exempt", "the account is exempt"),
        (submission.het_job_offset is not None, "heterogeneous", "part of a heterogeneous job"),
        (submission.held, "held", "the job is held"),
        (bool(submission.reservation), "reservation", "the job names a reservation"),
        (bool(submission.req_nodes), "nodelist", "the job names its nodes"),
        (bool(submission.exc_nodes), "exclude", "the job excludes nodes"),
    )
    return next((Reason(code=code, text=text) for holds, code, text in reasons if holds), None)


def _passed(reason: Reason, mode: Mode, script: Script | None = None) -> Decision:
    finding = Finding(verdict=Verdict.PASS, reason=reason)
    return Decision(verdict=Verdict.PASS, finding=finding, mode=mode, script=script)


def _not_serving(script: Script, directives: Directives, mode: Mode) -> Decision:
    """Let other jobs pass in silence; only who wrote a directive hears that nothing was found."""
    if script.is_serving is False:
        return _passed(Reason(code="not_serving", text=script.why), mode, script)
    reason = Reason(code="unclear", text=script.why)
    asked_for = directives.auto or bool(directives.values) or directives.mode is not None
    if not asked_for:
        return _passed(reason, mode, script)
    finding = Finding(verdict=Verdict.ABSTAIN, reason=reason)
    messages = explain.lines(finding, Verdict.ABSTAIN, model="this script", url=None)
    done = Verdict.PASS if mode is Mode.OBSERVE else Verdict.ABSTAIN
    spoken = messages if done is Verdict.ABSTAIN else ()
    return Decision(verdict=done, finding=finding, mode=mode, script=script, messages=spoken)


def _several(script: Script, mode: Mode) -> Decision:
    n = len(script.launches)
    text = (
        f"{n} servers in one script are left as they are; `omnipilot advise` checks one at a time"
    )
    finding = Finding(verdict=Verdict.ADVISE, reason=Reason(code="several_servers", text=text))
    done = Verdict.PASS if mode is Mode.OBSERVE else Verdict.ADVISE
    messages = (f"omnipilot: {text}",) if done is Verdict.ADVISE else ()
    return Decision(verdict=done, finding=finding, mode=mode, script=script, messages=messages)


def _model_of(launch: Launch, site: Site) -> KnownModel | UnknownModel:
    if not launch.engine.model:
        return UnknownModel(text=launch.why or "the model cannot be told from the script")
    return site.models(launch.engine.model)


def _workload(
    submission: Submission, site: Site, directives: Directives, launch: Launch
) -> Workload:
    account = submission.account or submission.default_account
    known = Known(
        partition=next(iter(arms.asked_partitions(submission, site.snapshot)), None),
        time_limit_min=submission.time_limit_min,
        default_time_min=_default_time_min(submission, site),
        earlier=site.loads.of(submission.user_name, account),
    )
    return workload_of(directives.values, launch.engine, site.workload, known)


def _default_time_min(submission: Submission, site: Site) -> int | None:
    """Return how long a job may run that says nothing, in the first partition that it asks for."""
    named = arms.asked_partitions(submission, site.snapshot)[:1]
    found = (part for part in site.snapshot.partitions if part.name in named)
    return next((part.default_time_min for part in found), None)


def _found(question: Question, expired: Expired) -> Finding:
    if question.launch.engine.pooling or question.model.kind == "pooling":
        text = "a pooling model: what it would deliver is not known"
        return Finding(verdict=Verdict.ABSTAIN, reason=Reason(code="pooling", text=text))
    return policy.find(question, expired)


def _rated_fully(question: Question, finding: Finding) -> Finding:
    """Add predictions and worth to the arms that are spoken of or listed and have none yet."""
    spoken = [rated for rated in (finding.asked, finding.chosen) if rated is not None]
    bare = [rated for rated in (*spoken, *finding.arms) if rated.launch is None]
    rated = valuing.valued(question, predicted(question, bare))
    made = dict(zip(map(id, bare), rated, strict=True))

    def full(one: RatedArm) -> RatedArm:
        return made.get(id(one), one)

    return replace(
        finding,
        asked=None if finding.asked is None else full(finding.asked),
        chosen=None if finding.chosen is None else full(finding.chosen),
        arms=tuple(map(full, finding.arms)),
    )


def done_in(mode: Mode, verdict: Verdict) -> Verdict:
    """Return what is done with a verdict: the table mode x verdict of docs/admin.md."""
    if mode is Mode.OBSERVE:
        return Verdict.PASS
    if mode is Mode.ADVISE and verdict in (Verdict.REWRITE, Verdict.REJECT):
        return Verdict.ADVISE
    return verdict


def _said(
    finding: Finding,
    mode: Mode,
    site: Site,
    *,
    script: Script,
    launch: Launch,
    workload: Workload | None = None,
) -> Decision:
    done = done_in(mode, finding.verdict)
    model, url = launch.engine.model or "this server", site.messages.url
    return Decision(
        verdict=done,
        finding=finding,
        mode=mode,
        messages=explain.lines(finding, done, model=model, url=url, workload=workload),
        script=script,
        launch=launch,
        workload=workload,
        arms=finding.arms,
    )
