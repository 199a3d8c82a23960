"""The lines a user reads: what was changed or refused, why in numbers, how to keep one's own.

In: a Finding and what was done with it. Out: at most five lines. Called by decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import DECISION_ID, Starts, Verdict

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.finding import Finding

MAX_LINES: Final = 5
_MAX_CHARS: Final = 280
_KEEP: Final = "to keep your choice: add `#OMNIPILOT off` to the script, or --comment omnipilot=off"


def lines(finding: Finding, done: Verdict, *, model: str, url: str | None) -> tuple[str, ...]:
    """Return what the user is told of a finding, `done` being what was really done with it."""
    if done is Verdict.PASS:
        return ()
    body = _body(finding, done, model)
    more = f"more: omnipilot explain {DECISION_ID}" + (f"  {url}" if url else "")
    kept = [line[:_MAX_CHARS] for line in (*body[: MAX_LINES - 1], more)]
    return tuple(f"omnipilot: {line}" for line in kept)


def _body(finding: Finding, done: Verdict, model: str) -> list[str]:
    if done is Verdict.ABSTAIN:
        return [f"no opinion on {model}: {finding.reason.text}"]
    if finding.chosen is not None:
        return _about_move(finding, done)
    if finding.verdict is Verdict.REJECT or finding.asked is None or _fails(finding.asked):
        return _about_refusal(finding, done)
    return _about_doubt(finding)


def _fails(rated: RatedArm) -> bool:
    return rated.starts is Starts.FAILS


def _about_move(finding: Finding, done: Verdict) -> list[str]:
    asked, chosen = finding.asked, finding.chosen
    assert chosen is not None
    here = f" (asked: {described(asked)})" if asked is not None else ""
    target = f"{described(chosen)} in partition {chosen.arm.partition}"
    if done is Verdict.REWRITE:
        first = f"changed to {target}{here}"
    elif finding.obstacle is not None:
        first = f"not changed ({finding.obstacle.text}); better: {target}{here}"
    elif finding.verdict is Verdict.ADVISE:
        first = f"better: {target}{here}"
    else:
        first = f"would be changed to {target}{here}"
    body = [first, f"why: {_why(finding)}"]
    there = _there(chosen)
    if there:
        body.append(there)
    return [*body, _KEEP] if done is Verdict.REWRITE else body


def _why(finding: Finding) -> str:
    """Return the reason, for a gain its dollars with their interval and what could turn it."""
    gain, asked = finding.gain, finding.asked
    if gain is None or asked is None or asked.prediction is None:
        return finding.reason.text
    rate = _figure(asked, "output_tok_s", "tok/s")
    text = (
        f"worth ${gain.usd.mid:,.2f} more over {gain.hours:g} h"
        f" (${gain.usd.lo:,.2f} to ${gain.usd.hi:,.2f}) than {rate} at ${asked.usd_per_hour:.2f}/h"
    )
    return text if gain.flip is None else f"{text}; not with {gain.flip}"


def _there(chosen: RatedArm) -> str:
    """Return what the chosen arm delivers, or the room that it leaves where that is not known."""
    prediction, memory = chosen.prediction, chosen.report.memory
    if prediction is not None and "output_tok_s" in prediction.targets:
        figures = [_figure(chosen, "output_tok_s", "tok/s"), _figure(chosen, "ttft_ms", "ms TTFT")]
        text = f"{', '.join(filter(None, figures))} at ${chosen.usd_per_hour:.2f}/h"
        return f"there: {text}{'' if prediction.calibrated else ', an uncalibrated estimate'}"
    if memory is None:
        return ""
    kv = memory.kv
    return (
        f"there: {kv.mid:.0f} GiB per GPU ({kv.lo:.0f} to {kv.hi:.0f}) are left for the cache;"
        " throughput is not predicted"
    )


def _figure(rated: RatedArm, target: str, unit: str) -> str:
    """Return a predicted figure with its interval; an estimate that is not calibrated has none."""
    prediction = rated.prediction
    interval = prediction.targets.get(target) if prediction is not None else None
    if prediction is None or interval is None:
        return ""
    if not prediction.calibrated:
        return f"about {_rounded(interval.mid)} {unit}"
    lo, mid, hi = (_rounded(value) for value in (interval.lo, interval.mid, interval.hi))
    return f"{mid} {unit} ({lo} to {hi})"


def _about_refusal(finding: Finding, done: Verdict) -> list[str]:
    asked = described(finding.asked) if finding.asked is not None else "the request"
    verb = "refused" if done is Verdict.REJECT else "will not start"
    body = [f"{verb}: {asked}: {finding.reason.text}"]
    if finding.valid_tps:
        degrees = " or ".join(map(str, finding.valid_tps))
        body.append(f"smallest change: --tensor-parallel-size {degrees}, on as many GPUs")
    elif finding.asked is not None and finding.asked.report.max_model_len_that_fits:
        length = finding.asked.report.max_model_len_that_fits
        body.append(f"smallest change: --max-model-len {length} fits these GPUs")
    return [*body, _KEEP] if done is Verdict.REJECT else body


def _about_doubt(finding: Finding) -> list[str]:
    asked = finding.asked
    assert asked is not None
    body = [f"{described(asked)}: {finding.reason.text}"]
    length = asked.report.max_model_len_that_fits
    if finding.idle == 0 and length:
        body.append(f"--max-model-len {length} is safe on these GPUs")
    return body


def described(rated: RatedArm) -> str:
    """Return an arm in a few words: `4x H100 80 GB, TP 4`."""
    arm = rated.arm
    shape = [f"TP {arm.tensor_parallel}"]
    if arm.pipeline_parallel > 1:
        shape.append(f"PP {arm.pipeline_parallel}")
    if arm.data_parallel > 1:
        shape.append(f"DP {arm.data_parallel}")
    return f"{arm.n_gpus}x {rated.pool.gpu.name.removeprefix('NVIDIA ')}, {' '.join(shape)}"


def _rounded(value: float) -> str:
    """Return a figure with the two significant digits that an estimate has."""
    return f"{float(f'{value:.2g}'):,.0f}"
