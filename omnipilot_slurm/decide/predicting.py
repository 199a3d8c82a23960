"""What arms would deliver: by the cost model, or by physics where none is loaded.

In: a Question and rated arms. Out: the same arms with a Prediction each. Called by policy and
decision, for all arms of a decision in one go.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.decide.arms import max_model_len
from omnipilot_slurm.predict import roofline
from omnipilot_slurm.predict.coldstart import cold_start
from omnipilot_slurm.predict.live import ArmSetup
from omnipilot_slurm.predict.rows import live_row, table
from omnipilot_slurm.records import Interval, Prediction, Starts
from omnipilot_slurm.vllm import defaults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.predict.live import ArmPredictor


def predicted(question: Question, rated: Sequence[RatedArm]) -> tuple[RatedArm, ...]:
    """Return the arms with what each would deliver; one that fails delivers nothing.

    Arms that differ in their partition alone are predicted once.
    """
    able = [one for one in rated if one.starts is not Starts.FAILS and one.prediction is None]
    if not able:
        return tuple(rated)
    alike = {_likeness(one): one for one in reversed(able)}
    chosen = list(alike.values())
    predictor = question.site.predictor
    if predictor is None:
        found = _estimates(question, chosen)
    else:
        found = _learned(question, chosen, predictor)
    made = {
        key: _with_computed(question, one, prediction)
        for (key, one), prediction in zip(alike.items(), found, strict=True)
    }
    able_ids = set(map(id, able))
    return tuple(
        replace(one, prediction=made[_likeness(one)]) if id(one) in able_ids else one
        for one in rated
    )


def _likeness(rated: RatedArm) -> tuple[str | None, str, int, int, int, int]:
    """Return what arms of one decision are predicted by; the rest of them is its engine's."""
    arm, version = rated.arm, rated.engine.vllm_version
    return version, arm.gpu, arm.n_gpus, arm.n_nodes, arm.tensor_parallel, id(rated.report)


def setup_of(question: Question, rated: RatedArm) -> ArmSetup:
    """Return an arm with the limits that vLLM has in force there."""
    gpu, engine = rated.pool.gpu, rated.engine
    length = max_model_len(question.model, engine)
    scheduling = question.engines.scheduling(engine, question.model, gpu, length)
    given = engine.gpu_memory_utilization
    version = engine.vllm_version
    return ArmSetup(
        arm=rated.arm,
        gpu=gpu,
        max_num_seqs=scheduling.max_num_seqs.newest,
        max_num_batched_tokens=scheduling.max_num_batched_tokens.newest,
        mem_util=defaults.gpu_memory_utilization(version).newest if given is None else given,
    )


def _learned(
    question: Question, rated: Sequence[RatedArm], predictor: ArmPredictor
) -> list[Prediction]:
    """Return the cost model's predictions; partitions may run different engine versions."""
    found: dict[int, Prediction] = {}
    for version in {one.engine.vllm_version for one in rated}:
        alike = [i for i, one in enumerate(rated) if one.engine.vllm_version == version]
        setups = [setup_of(question, rated[i]) for i in alike]
        predictions = predictor.predict(
            question.model, setups, question.workload, engine_version=version
        )
        found |= dict(zip(alike, predictions, strict=True))
    return [found[i] for i in range(len(rated))]


def _estimates(question: Question, rated: Sequence[RatedArm]) -> list[Prediction]:
    """Return the roofline's estimates, which are not calibrated."""
    setups = [setup_of(question, one) for one in rated]
    rows = table(
        [
            live_row(
                question.model,
                each.gpu,
                each.arm,
                question.workload,
                max_num_seqs=each.max_num_seqs,
                max_num_batched_tokens=each.max_num_batched_tokens,
                mem_util=each.mem_util,
            )
            for each in setups
        ]
    )
    capacity = np.array([capacity_tokens(question, one) or 1.0 for one in rated])
    values = roofline.roofline(rows, roofline.work(rows, capacity), roofline.SHIPPED)
    columns = {name: getattr(values, name).tolist() for name in roofline.Roofline.__slots__}
    return [Prediction(targets=_exactly(columns, i), calibrated=False) for i in range(len(rated))]


def _exactly(columns: Mapping[str, Sequence[float]], i: int) -> dict[str, Interval]:
    return {name: Interval(lo=v[i], mid=v[i], hi=v[i]) for name, v in columns.items()}


def _with_computed(question: Question, rated: RatedArm, prediction: Prediction) -> Prediction:
    """Add what is not learned: the share of the cache in use, and the time until the first answer.

    None of it where no memory was planned.
    """
    computed = {}
    pressure = kv_pressure(question, rated)
    if pressure is not None:
        computed["kv_usage_frac"] = Interval(
            lo=min(pressure.lo, 1.0), mid=min(pressure.mid, 1.0), hi=min(pressure.hi, 1.0)
        )
    if rated.report.memory is not None:
        computed["cold_start_s"] = _cold_start_s(question, rated, rated.report.memory.weights)
    return replace(prediction, targets={**prediction.targets, **computed})


def _cold_start_s(question: Question, rated: RatedArm, weights_gib: Interval) -> Interval:
    args, model = rated.engine, question.model
    length = max_model_len(model, args)
    engines = question.engines.scheduling(args, model, rated.pool.gpu, length).engine.values
    return cold_start(args, model, weights_gib, engines, question.site.cold_start).total


def kv_pressure(question: Question, rated: RatedArm) -> Interval | None:
    """Return the cache that the requests in flight want over the cache there is.

    None where no cache was planned; the bounds are those of the cache, endless where it may not
    hold any request.
    """
    requests = rated.report.n_full_requests
    if requests is None:
        return None
    load = question.workload
    length = max_model_len(question.model, rated.engine)
    wanted = load.concurrency * (load.isl + load.osl) / (length * rated.arm.data_parallel)
    lo, mid, hi = (
        wanted / held if held > 0 else math.inf for held in (requests.hi, requests.mid, requests.lo)
    )
    return Interval(lo=lo, mid=mid, hi=hi)


def capacity_tokens(question: Question, rated: RatedArm) -> float | None:
    """Return the tokens that the cache of one replica holds, None where no cache was planned."""
    requests = rated.report.n_full_requests
    if requests is None:
        return None
    return max(requests.mid, 1.0) * max_model_len(question.model, rated.engine)
