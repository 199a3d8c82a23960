"""Will a vLLM server start? Every check that stops one, with its arithmetic.

In: what is known of the model and the GPU, the engine's arguments, the GPUs that the job holds, the
fitted start-up coefficients. Out: a `LaunchReport`. Called by the decision (one call per arm), by
`fit` and by the benchmark of launches. A check that does not apply is absent; "fails" is said only
where every engine version in question and every value inside the intervals fails.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Interval, Starts
from omnipilot_slurm.vllm.checks.features import feature_checks
from omnipilot_slurm.vllm.checks.lengths import length_checks
from omnipilot_slurm.vllm.checks.memory import (
    cache_check,
    free_memory_check,
    headroom_check,
    shared_check,
    weights_check,
)
from omnipilot_slurm.vllm.checks.numbers import number_checks
from omnipilot_slurm.vllm.checks.parallel import parallel_checks
from omnipilot_slurm.vllm.checks.placement import placement_checks
from omnipilot_slurm.vllm.checks.quantization import (
    is_online,
    quantization_checks,
    quantization_in_force,
)
from omnipilot_slurm.vllm.checks.unseen import doubt_unseen
from omnipilot_slurm.vllm.effective import dtype_bytes, effective_engines, effective_length
from omnipilot_slurm.vllm.eras import in_question
from omnipilot_slurm.vllm.memory import left_for_cache, longest_that_fits, memory_plan, total_gib
from omnipilot_slurm.vllm.overhead import era_numbers, widths
from omnipilot_slurm.vllm.report import Check, LaunchReport, MemoryPlan
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.memory import Left
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import Place

GIB = 2.0**30
#: the longest context that is looked for where the model states no maximum
_LONGEST = 1 << 24
#: how sure a plan can be of either outcome inside its interval
_SUREST = 0.98


class Memory(NamedTuple):
    """The memory of the fullest GPU over all eras in question, and what each era leaves."""

    plan: MemoryPlan
    eras: tuple[Left, ...]


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
    memory = None if gpu is None else memory_of(model, gpu, engine, coefficients)
    if memory is not None:
        checks += memory_checks(model, engine, memory, coefficients.context_gib)
        if place.shared:
            checks.append(shared_check(memory.eras[-1].engine.utilization))
    return _report(model, doubt_unseen(checks, engine.unknown), memory)


@lru_cache(maxsize=1024)
def _model_checks(
    model: ModelFacts, engine: EngineArgs, capability: int | None
) -> tuple[Check, ...]:
    """Return the checks that no GPU count and no memory decides: alike for many arms."""
    here = in_question(engine.vllm_version, model.architecture)
    return (
        *parallel_checks(model, engine),
        *feature_checks(model, engine, here, version_known=engine.vllm_version is not None),
        *quantization_checks(model, engine, capability, here),
        *number_checks(model, engine, capability, here),
        *length_checks(model, engine, effective_length(model, engine, here), here),
    )


def memory_of(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, coefficients: StartupCoefficients
) -> Memory:
    """Return the memory in each era that the version may belong to, newest last."""
    total, weights = total_gib(gpu), _weights(model, engine, coefficients)
    wide = widths(model, engine.tensor_parallel, dtype_bytes(engine))
    numbers = era_numbers(coefficients)
    eras = tuple(
        left_for_cache(total, effective, wide, weights, numbers[effective.era])
        for effective in effective_engines(model, gpu, engine)
    )
    if engine.kv_cache_memory_bytes is not None:
        given = engine.kv_cache_memory_bytes / GIB
        eras = tuple(left._replace(kv=(given, given, given)) for left in eras)
    return Memory(plan=memory_plan(total, weights, eras), eras=eras)


@lru_cache(maxsize=1024)
def _loaded(model: ModelFacts, engine: EngineArgs) -> Interval:
    return weights_gib(
        model,
        quantization_in_force(model, engine),
        dtype_bytes=dtype_bytes(engine),
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
    )


def _weights(model: ModelFacts, engine: EngineArgs, coefficients: StartupCoefficients) -> Interval:
    loaded = _loaded(model, engine)
    frac, offloaded = coefficients.weights_frac, engine.cpu_offload_gib
    draft = coefficients.draft_frac if engine.speculative else 0.0
    return Interval(
        lo=max(loaded.lo * frac.lo - offloaded, 0.0),
        mid=max(loaded.mid * frac.mid - offloaded, 0.0),
        hi=max(loaded.hi * frac.hi * (1 + draft) - offloaded, 0.0),
    )


def memory_checks(
    model: ModelFacts, engine: EngineArgs, memory: Memory, context: Interval
) -> list[Check]:
    """Return the checks of memory over all eras in question; `context` is the CUDA context's."""
    plan, newest = memory.plan, memory.eras[-1].engine
    here = in_question(engine.vllm_version, model.architecture)
    found = [
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


def _report(model: ModelFacts, checks: Sequence[Check], memory: Memory | None) -> LaunchReport:
    states = {check.ok for check in checks}
    verdict = Starts.STARTS
    if Starts.FAILS in states:
        verdict = Starts.FAILS
    elif Starts.UNSURE in states or memory is None:
        verdict = Starts.UNSURE
    eras = () if memory is None else memory.eras
    limit = model.max_model_len or _LONGEST
    return LaunchReport(
        verdict=verdict,
        checks=tuple(checks),
        memory=None if memory is None else memory.plan,
        max_model_len_that_fits=min(
            (longest_that_fits(left, limit) for left in eras), default=None
        ),
        n_full_requests=_full_requests(eras) if eras else None,
        p_starts=_p_starts(checks, eras) if verdict is Starts.UNSURE else None,
    )


def _full_requests(eras: Sequence[Left]) -> Interval:
    """Return how many requests of full length the cache holds at once."""
    per_era = [tuple(max(kv, 0.0) / max(left.need, 1 / GIB) for kv in left.kv) for left in eras]
    return Interval(
        lo=min(era[0] for era in per_era), mid=per_era[-1][1], hi=max(era[2] for era in per_era)
    )


def _p_starts(checks: Sequence[Check], eras: Sequence[Left]) -> float:
    """Return the probability behind "unsure": a cache that may fit, halves for the rest."""
    p = 1.0
    for check in checks:
        if check.ok is Starts.UNSURE:
            p *= _p_cache(eras) if check.id == "kv_cache" and eras else 1 / 2
    return p if eras else 1 / 2


def _p_cache(eras: Sequence[Left]) -> float:
    """Return the mean over eras of the share of the cache's interval that holds a full request."""
    shares = []
    for left in eras:
        low, mid, high = left.kv
        need = max(left.need, 0.0)
        share = (high - need) / (high - low) if high > low else float(mid >= need)
        shares.append(min(max(share, 1 - _SUREST), _SUREST))
    return sum(shares) / len(shares)
