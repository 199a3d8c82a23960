"""How figures of an arm are worded: each with its interval, each probability with its n.

In: rated arms, a workload. Out: words. Called by explain for the lines that users read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.records import Workload

_SOURCES: Final = {
    "directive": "as you said",
    "flag": "the most by your flags",
    "user": "as in your last {n}",
    "account": "as in your account's last {n}",
    "site": "usual here",
}


def described(rated: RatedArm) -> str:
    """Return an arm in a few words: `4x H100 80 GB, TP 4`."""
    arm = rated.arm
    shape = [f"TP {arm.tensor_parallel}"]
    if arm.pipeline_parallel > 1:
        shape.append(f"PP {arm.pipeline_parallel}")
    if arm.data_parallel > 1:
        shape.append(f"DP {arm.data_parallel}")
    return f"{arm.n_gpus}x {rated.pool.gpu.name.removeprefix('NVIDIA ')}, {' '.join(shape)}"


def load(workload: Workload) -> str:
    """Return a load and how it is known: `32 requests at a time (usual here)`."""
    n = workload.n_jobs
    jobs = f"{n} jobs" if n > 1 else "job"
    said = _SOURCES[workload.source.get("concurrency", "site")].format(n=jobs)
    plural = "s" if workload.concurrency > 1 else ""
    return f"{workload.concurrency} request{plural} at a time ({said})"


def delivery(rated: RatedArm) -> str:
    """Return what an arm delivers and costs, or the room it leaves where that is not known."""
    prediction, memory = rated.prediction, rated.report.memory
    if prediction is not None and "output_tok_s" in prediction.targets:
        known = [rate_and_price(rated), launch(rated), wait(rated)]
        text = ", ".join(filter(None, known))
        if not prediction.calibrated:
            return f"{text}; estimates by physics, not calibrated"
        low = ", ".join(prediction.axes)
        return f"{text}; low confidence: {low}" if prediction.tier == "low" else text
    if memory is None:
        return ""
    kv = memory.kv
    return (
        f"{kv.mid:.0f} GiB per GPU ({kv.lo:.0f} to {kv.hi:.0f}) are left for the cache;"
        " throughput is not predicted"
    )


def rate_and_price(rated: RatedArm) -> str:
    """Return throughput, time to first token and price of an arm, as far as they are known."""
    known = [_figure(rated, "output_tok_s", "tok/s"), _figure(rated, "ttft_ms", "ms TTFT")]
    usd = rated.usd_per_hour
    price = f" at {dollars(usd)}/h" if math.isfinite(usd) else ""
    return f"{', '.join(filter(None, known))}{price}"


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


def launch(rated: RatedArm) -> str:
    """Return the chance of a start and the launches behind it: `... 90 % (n = 12)`."""
    if rated.p_launch is None or rated.launch is None:
        return ""
    assumed = ", assumed" if rated.launch.assumed else ""
    return f"chance of a start {100 * rated.p_launch:.0f} % (n = {rated.launch.n}{assumed})"


def wait(rated: RatedArm) -> str:
    """Return the wait in the queue with its interval and the jobs behind it."""
    found = rated.wait
    if found is None:
        return ""
    if found.mean_h == 0:
        return "free now"
    known = "assumed" if found.assumed else f"n = {found.n}"
    return f"wait {found.mean_h:.1f} h ({found.lo_h:.1f} to {found.hi_h:.1f}, {known})"


def dollars(usd: float) -> str:
    """Return an amount with its sign before the dollar."""
    return f"{'-' if usd < 0 else ''}${abs(usd):,.2f}"


def _rounded(value: float) -> str:
    """Return a figure with the two significant digits that an estimate has."""
    return f"{float(f'{value:.2g}'):,.0f}"
