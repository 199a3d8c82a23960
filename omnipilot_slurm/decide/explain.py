"""The lines a user reads: what was changed or refused, why in numbers, how to keep one's own.

In: a Finding, what was done with it, the workload it is for. Out: at most five lines. Called by
decision. The figures in them are worded by figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import figures
from omnipilot_slurm.decide.figures import described
from omnipilot_slurm.decide.finding import failure
from omnipilot_slurm.records import DECISION_ID, Starts, Verdict
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.finding import Finding
    from omnipilot_slurm.records import Workload

MAX_LINES: Final = 5
_MAX_CHARS: Final = 320
_OFF: Final = "add `#OMNIPILOT off` to the script, or --comment omnipilot=off"


def lines(
    finding: Finding,
    done: Verdict,
    *,
    model: str,
    url: str | None,
    workload: Workload | None = None,
) -> tuple[str, ...]:
    """Return what the user is told of a finding, `done` being what was really done with it."""
    if done is Verdict.PASS:
        return ()
    body = _body(finding, done, model, workload)
    more = f"more: omnipilot explain {DECISION_ID}" + (f"  {url}" if url else "")
    return tuple(f"omnipilot: {_short(line)}" for line in (*body[: MAX_LINES - 1], more))


def _short(line: str) -> str:
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 3]}..."


def _body(finding: Finding, done: Verdict, model: str, workload: Workload | None) -> list[str]:
    if done is Verdict.ABSTAIN:
        return [
            f"no opinion on {model}: {finding.reason.text}",
            "the job runs as submitted",
            *_what_would_tell(finding),
        ]
    if finding.chosen is not None:
        return _about_move(finding, finding.chosen, done, workload)
    if finding.verdict is Verdict.REJECT or finding.asked is None or _fails(finding.asked):
        return _about_refusal(finding, done)
    about = _about_idle if finding.idle else _about_doubt
    return about(finding, finding.asked)


def _what_would_tell(finding: Finding) -> list[str]:
    """Return how an arm comes to be known that nothing like it was measured of."""
    prediction = None if finding.asked is None else finding.asked.prediction
    if prediction is None or prediction.tier != "out":
        return []
    return ["`omnipilot bench-plan JOB.sh` prints the cheapest benchmark that would tell"]


def _fails(rated: RatedArm) -> bool:
    return rated.starts is Starts.FAILS


# a better place


def _about_move(
    finding: Finding, chosen: RatedArm, done: Verdict, workload: Workload | None
) -> list[str]:
    asked = finding.asked
    here = f" (asked: {described(asked)})" if asked is not None else ""
    target = f"{described(chosen)} in partition {chosen.arm.partition}{here}"
    body = [f"{_done(finding, done)} {target}", f"why: {_why(finding, workload)}"]
    there = figures.delivery(chosen)
    if there:
        body.append(f"there: {there}")
    if done is Verdict.REWRITE:
        body.append(_keep(finding))
    elif asked is not None and _fails(asked) and _length(asked):
        body.append(f"or, on the GPUs asked: --max-model-len {_length(asked)} fits")
    return body


def _done(finding: Finding, done: Verdict) -> str:
    if done is Verdict.REWRITE:
        return "changed to"
    if finding.obstacle is not None:
        fails = finding.asked is not None and _fails(finding.asked)
        ends = ", and will not start" if fails else ""
        return f"not changed ({finding.obstacle.text}){ends}; better:"
    return "better:" if finding.verdict is Verdict.ADVISE else "would be changed to"


def _why(finding: Finding, workload: Workload | None) -> str:
    """Return the reason; of a gain its dollars with their interval, and what would turn it."""
    gain, asked = finding.gain, finding.asked
    if gain is None or asked is None or workload is None:
        return finding.reason.text
    text = (
        f"for {figures.load(workload)} worth {figures.dollars(gain.usd.mid)} more over"
        f" {gain.hours:.3g} h ({figures.dollars(gain.usd.lo)} to {figures.dollars(gain.usd.hi)})"
        f" than yours: {figures.rate_and_price(asked)}"
    )
    return text if gain.flip is None else f"{text}; at {gain.flip} at a time yours is worth more"


def _keep(finding: Finding) -> str:
    """Return the exact line that keeps the user's choice, and what would make that one start."""
    asked = finding.asked
    if asked is not None and _fails(asked) and _length(asked):
        fits = f"--max-model-len {_length(asked)} fits the GPUs asked"
        return f"to keep your choice: {fits}; or {_OFF}"
    return f"to keep your choice: {_OFF}"


def _length(rated: RatedArm) -> int | None:
    """Return the longest context that starts there for certain, where nothing else is wrong."""
    wrong = [check.kind for check in rated.report.checks if check.ok is not Starts.STARTS]
    of_length = all(kind in (CheckKind.MEMORY, CheckKind.LENGTH) for kind in wrong)
    return rated.report.max_model_len_that_fits if of_length else None


# no better place


def _about_refusal(finding: Finding, done: Verdict) -> list[str]:
    asked = finding.asked
    where = described(asked) if asked is not None else "the request"
    verb = "refused" if done is Verdict.REJECT else "will not start"
    body = [f"{verb}: {where}: {finding.reason.text}"]
    if finding.valid_tps:
        degrees = " or ".join(map(str, finding.valid_tps))
        body.append(f"smallest change: --tensor-parallel-size {degrees}, on as many GPUs")
    elif asked is not None and _length(asked):
        body.append(f"smallest change: --max-model-len {_length(asked)} fits the GPUs asked")
    elif finding.arms:
        body.append(_elsewhere(finding.arms))
    return [*body, f"to keep your choice: {_OFF}"] if done is Verdict.REJECT else body


def _elsewhere(seen: tuple[RatedArm, ...]) -> str:
    """Return what comes nearest: an arm that may start, one that is not open, or the largest."""
    for rated in seen:
        if rated.starts is Starts.UNSURE and rated.blocked is None:
            return f"it may start on {described(rated)} in partition {rated.arm.partition}"
    for rated in seen:
        if rated.starts is not Starts.FAILS and rated.blocked is not None:
            there = f"{described(rated)} in partition {rated.arm.partition}"
            return f"it would start on {there}, but {rated.blocked.text}"
    last = seen[-1]
    return f"it starts on no node of this cluster; {described(last)}: {failure(last).text}"


def _about_idle(finding: Finding, asked: RatedArm) -> list[str]:
    used = asked.arm.n_gpus - finding.idle
    fewer = f"ask for {used} GPU{'s' if used > 1 else ''}"
    degrees = "".join(f", or --tensor-parallel-size {tp}" for tp in finding.valid_tps)
    return [f"{described(asked)}: {finding.reason.text}", f"smallest change: {fewer}{degrees}"]


def _about_doubt(finding: Finding, asked: RatedArm) -> list[str]:
    body = [f"may not start: {described(asked)}: {finding.reason.text}", figures.launch(asked)]
    if _length(asked):
        body.append(f"starts for certain on these GPUs: --max-model-len {_length(asked)}")
    return body
