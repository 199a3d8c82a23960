"""Will a vLLM server start? Every check that stops one, with its arithmetic.

In: what is known of the model and the GPU, the engine's arguments, the GPUs that the job holds, the
fitted start-up coefficients. Out: a `LaunchReport`. Called by the decision (one call per arm), by
`fit` and by the benchmark of launches. A check that does not apply is absent; "fails" is said only
where every engine version in question and every value inside the intervals fails.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval, Starts
from omnipilot_slurm.vllm.checks.card import card_check
from omnipilot_slurm.vllm.checks.combined import combined, p_cleared
from omnipilot_slurm.vllm.checks.features import feature_checks
from omnipilot_slurm.vllm.checks.lengths import length_checks
from omnipilot_slurm.vllm.checks.memory import (
    cache_check,
    free_memory_check,
    headroom_check,
    p_cache,
    share_check,
    shared_check,
    vendor_check,
    weights_check,
)
from omnipilot_slurm.vllm.checks.numbers import number_checks
from omnipilot_slurm.vllm.checks.parallel import parallel_checks
from omnipilot_slurm.vllm.checks.placement import placement_checks
from omnipilot_slurm.vllm.checks.quantization import (
    is_online,
    quantization_checks,
)
from omnipilot_slurm.vllm.checks.unseen import doubt_unseen
from omnipilot_slurm.vllm.effective import dtype_bytes, effective_length
from omnipilot_slurm.vllm.eras import in_question
from omnipilot_slurm.vllm.longest import length_limit, safe_length
from omnipilot_slurm.vllm.overhead import GIB
from omnipilot_slurm.vllm.planned import memory_of
from omnipilot_slurm.vllm.report import Check, LaunchReport
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.memory import Left
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.planned import Memory
    from omnipilot_slurm.vllm.report import Place

#: what a request takes at least, in GiB
_A_BYTE = 1 / GIB


def assess(
    model: ModelFacts,
    gpu: GpuFacts | None,
    engine: EngineArgs,
    place: Place,
    coefficients: StartupCoefficients,
    *,
    capability: int | None = None,
) -> LaunchReport:
    """Return whether the server starts; without a GPU only what holds on every card is judged.

    `capability` (80 for 8.0) stands in for that of a card that is not known otherwise.
    """
    if gpu is not None and gpu.capability is not None:
        capability = 10 * gpu.capability[0] + gpu.capability[1]
    here = in_question(engine.vllm_version, model.architecture)
    checks = [
        *_model_checks(model, engine, capability),
        *placement_checks(engine, place, here),
    ]
    if gpu is None:
        return _report(doubt_unseen(checks, engine.unknown), here, None, None)
    memory = memory_of(model, gpu, engine, coefficients)
    checks += memory_checks(model, gpu, engine, memory, coefficients.context_gib)
    if place.shared:
        checks.append(shared_check(memory.eras[-1].engine.utilization))
    limit = length_limit(model, engine, checks)
    longest = safe_length(model, gpu, engine, coefficients, memory=memory, limit=limit)
    return _report(doubt_unseen(checks, engine.unknown), here, memory, longest)


@lru_cache(maxsize=1024)
def _model_checks(
    model: ModelFacts, engine: EngineArgs, capability: int | None
) -> tuple[Check, ...]:
    """Return the checks that no GPU count and no memory decides: alike for many arms."""
    here = in_question(engine.vllm_version, model.architecture)
    barred = [card_check(capability, here), share_check(engine.gpu_memory_utilization)]
    return (
        *[check for check in barred if check is not None],
        *parallel_checks(model, engine),
        *feature_checks(model, engine, here, version_known=engine.vllm_version is not None),
        *quantization_checks(model, engine, capability, here),
        *number_checks(model, engine, capability, here),
        *length_checks(model, engine, effective_length(model, engine, here), here),
    )


def memory_checks(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, memory: Memory, context: Interval
) -> list[Check]:
    """Return the checks of memory over all eras in question; `context` is the CUDA context's."""
    plan, newest = memory.plan, memory.eras[-1].engine
    here = in_question(engine.vllm_version, model.architecture)
    found = [
        vendor_check(gpu),
        weights_check(plan, _load_peak(model, engine, plan.weights)),
        cache_check(plan, memory.eras, newest.max_model_len),
        headroom_check(plan, newest.utilization, context),
        free_memory_check(plan, newest.utilization, context, here),
    ]
    return [check for check in found if check is not None]


def _load_peak(model: ModelFacts, engine: EngineArgs, weights: Interval) -> float:
    """Return the most GiB while weights load: in 16 bits, where they are quantised afterwards."""
    if not is_online(model, engine):
        return weights.hi
    return weights_gib(
        model,
        None,
        dtype_bytes=dtype_bytes(engine),
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
    ).mid


def _report(
    found: Sequence[Check], here: int, memory: Memory | None, longest: int | None
) -> LaunchReport:
    checks = combined(found, here)
    states = {check.ok for check in checks}
    verdict = Starts.STARTS
    if Starts.FAILS in states:
        verdict = Starts.FAILS
    elif Starts.UNSURE in states or memory is None:
        verdict = Starts.UNSURE
    eras = () if memory is None else memory.eras
    return LaunchReport(
        verdict=verdict,
        checks=tuple(checks),
        memory=None if memory is None else memory.plan,
        max_model_len_that_fits=longest,
        n_full_requests=_full_requests(eras) if eras else None,
        p_starts=_p_starts(checks, eras, here) if verdict is Starts.UNSURE else None,
    )


def _full_requests(eras: Sequence[Left]) -> Interval:
    """Return how many requests of full length the cache holds at once."""
    newest = eras[-1]
    lo = min([left.kv[0] / (left.need or _A_BYTE) for left in eras])
    hi = max([left.kv[2] / (left.need or _A_BYTE) for left in eras])
    mid = newest.kv[1] / (newest.need or _A_BYTE)
    return Interval(lo=max(lo, 0.0), mid=max(mid, 0.0), hi=max(hi, 0.0))


def _p_starts(checks: Sequence[Check], eras: Sequence[Left], here: int) -> float:
    """Return the probability behind "unsure": of a cache that may fit, times that of the rest."""
    p = 1.0
    for check in checks:
        if check.ok is Starts.UNSURE:
            is_cache = check.id == "kv_cache" and eras
            p *= p_cache(eras) if is_cache else p_cleared(check, here)
    return p if eras else 1 / 2
