"""What an arm is worth to this job: its predictions, its launch, its wait and its price as dollars.

In: a Question and rated arms that have predictions. Out: the same arms with probability, wait and
utility; None where an arm fails, has no price or lies outside what was measured. Called by policy
and decision.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import eligibility
from omnipilot_slurm.decide.predicting import kv_pressure
from omnipilot_slurm.decide.success import launch_probability
from omnipilot_slurm.decide.utility import Run, utility_terms, value_sd_usd
from omnipilot_slurm.decide.waiting import queue_wait
from omnipilot_slurm.records import Starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.decide.wait_history import Wait
    from omnipilot_slurm.records import Interval, Prediction, Workload

#: hours of a job that says none and has no limit
_HOURS: Final = 8.0


def valued(question: Question, rated: Sequence[RatedArm]) -> tuple[RatedArm, ...]:
    """Return the arms with what their launch and wait are taken to be, and what they are worth."""
    return tuple(_valued(question, one) for one in rated)


def _valued(question: Question, rated: RatedArm) -> RatedArm:
    if rated.starts is Starts.FAILS:
        return rated
    launch = launch_probability(question.site.launches, rated.arm, rated.engine.vllm_version)
    wait = _wait(question, rated)
    p_launch = launch.p * _certainty(rated)
    run = _run(question, rated, p_launch, wait)
    settings = question.site.utility
    return replace(
        rated,
        launch=launch,
        p_launch=p_launch,
        wait=wait,
        terms=None if run is None else utility_terms(run, settings),
        value_sd_usd=0.0 if run is None else value_sd_usd(run, settings),
    )


def _certainty(rated: RatedArm) -> float:
    """Return the probability that the checks leave: 1 where the server starts for certain."""
    return 1.0 if rated.report.p_starts is None else rated.report.p_starts


def _wait(question: Question, rated: RatedArm) -> Wait:
    per_node = -(-rated.arm.n_gpus // rated.arm.n_nodes)
    need = eligibility.need_of(question.submission, rated.pool.partition, per_node)
    return queue_wait(
        question.site.waits,
        rated.arm,
        rated.pool,
        cpus=need.cpus,
        memory_mib=need.memory_mib,
        is_live=question.site.snapshot.taken_at is not None,
    )


def _run(question: Question, rated: RatedArm, p_launch: float, wait: Wait) -> Run | None:
    """Return the run that an arm would be, None where price or throughput is not known."""
    prediction, price = rated.prediction, rated.pool.gpu.price_usd_per_gpu_hour
    rate = prediction.targets.get("output_tok_s") if prediction is not None else None
    if prediction is None or rate is None or price is None or not math.isfinite(rate.mid):
        return None
    load = question.workload
    requests_per_s = load.requests_per_s
    power = prediction.targets.get("power_w")
    return Run(
        n_gpus=rated.arm.n_gpus,
        price_usd_per_gpu_hour=price,
        wall_h=hours_of(load),
        cold_start_s=_mid(prediction.targets.get("cold_start_s")) or 0.0,
        output_tok_s=rate,
        p_ok=p_launch,
        wait_h=wait.mean_h,
        kv_pressure=None if _is_learned(prediction) else _mid(kv_pressure(question, rated)),
        offered_tok_s=None if requests_per_s is None else requests_per_s * load.osl,
        ttft_ms=prediction.targets.get("ttft_ms"),
        tpot_ms=prediction.targets.get("tpot_ms"),
        slo_ttft_ms=load.slo_ttft_ms,
        slo_tpot_ms=load.slo_tpot_ms,
        power_w=_mid(power),
    )


def _is_learned(prediction: Prediction) -> bool:
    """Return whether throughput was learned at this pressure: not beyond the measured loads."""
    return prediction.calibrated and "concurrency" not in prediction.axes


def _mid(interval: Interval | None) -> float | None:
    return None if interval is None else interval.mid


def hours_of(workload: Workload) -> float:
    """Return how long the server is used, h."""
    return workload.hours if workload.hours is not None else _HOURS


def confidence(better: RatedArm, asked: RatedArm, *, by_usd: float = 0.0) -> float:
    """Return the probability that one arm is worth more than another by so much, $.

    The value is taken as normal with the spread of the predicted throughput; costs are certain. The
    predictions of two arms are taken as independent, which errs towards doubt: what is wrong about
    the model or the load is wrong for both.
    """
    if better.terms is None or asked.terms is None:
        return 0.0
    spread = spread_usd(better, asked)
    more = better.terms.total - asked.terms.total - by_usd
    if spread == 0:
        return float(more > 0)
    return 0.5 * math.erfc(-more / spread / math.sqrt(2))


def spread_usd(one: RatedArm, other: RatedArm) -> float:
    """Return one standard deviation of the difference of two arms' worth, $."""
    return math.hypot(one.value_sd_usd, other.value_sd_usd)
