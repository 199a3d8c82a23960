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
from omnipilot_slurm.vllm.eras import in_question, possible_eras
from omnipilot_slurm.vllm.memory import longest_that_fits, plan_memory
from omnipilot_slurm.vllm.overhead import widths
from omnipilot_slurm.vllm.report import Check, LaunchReport, MemoryPlan
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.effective import Engine
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import Place

GIB = 2.0**30
#: the longest context that is looked for where the model states no maximum
_LONGEST = 1 << 24
#: how sure a plan can be of either outcome inside its interval
_SUREST = 0.98


class Planned(NamedTuple):
    """An engine as one era runs it, and the memory it then has."""

    engine: Engine
    memory: MemoryPlan


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
    planned = [] if gpu is None else plans(model, gpu, engine, coefficients)
    if planned:
        checks += memory_checks(model, engine, planned, coefficients.context_gib)
        if place.shared:
            checks.append(shared_check(planned[-1].engine.utilization))
    return _report(model, doubt_unseen(checks, engine.unknown), planned)


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


def plans(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, coefficients: StartupCoefficients
) -> list[Planned]:
    """Return the engine and its memory in each era that the version may belong to, newest last."""
    weights = _weights(model, engine, coefficients)
    cache = engine.kv_cache_memory_bytes
    wide = widths(model, engine.tensor_parallel, dtype_bytes(engine))
    possible = possible_eras(engine.vllm_version, model.architecture)
    return [
        Planned(
            engine=effective,
            memory=plan_memory(
                gpu,
                effective,
                wide,
                weights=weights,
                coefficients=coefficients,
                cache_gib=None if cache is None else cache / GIB,
            ),
        )
        for effective in effective_engines(model, gpu, engine, possible)
    ]


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
    model: ModelFacts, engine: EngineArgs, planned: Sequence[Planned], context: Interval
) -> list[Check]:
    """Return the checks of memory over all eras in question; `context` is the CUDA context's."""
    memories = [one.memory for one in planned]
    utilization = planned[-1].engine.utilization
    here = in_question(engine.vllm_version, model.architecture)
    found = [
        weights_check(memories[-1], _load_peak(model, engine, memories[-1].weights)),
        cache_check(memories, planned[-1].engine.max_model_len),
        headroom_check(memories, utilization, context),
        free_memory_check(memories[-1], utilization, context, here),
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


def _report(model: ModelFacts, checks: Sequence[Check], planned: Sequence[Planned]) -> LaunchReport:
    states = {check.ok for check in checks}
    verdict = Starts.STARTS
    if Starts.FAILS in states:
        verdict = Starts.FAILS
    elif Starts.UNSURE in states or not planned:
        verdict = Starts.UNSURE
    limit = model.max_model_len or _LONGEST
    return LaunchReport(
        verdict=verdict,
        checks=tuple(checks),
        memory=planned[-1].memory if planned else None,
        max_model_len_that_fits=min(
            (longest_that_fits(one.engine, one.memory, limit) for one in planned), default=None
        ),
        n_full_requests=_full_requests(planned) if planned else None,
        p_starts=_p_starts(checks, planned) if verdict is Starts.UNSURE else None,
    )


def _full_requests(planned: Sequence[Planned]) -> Interval:
    """Return how many requests of full length the cache holds at once."""
    per_era = [
        [max(kv, 0.0) / max(one.memory.kv_need.mid, 1 / GIB) for kv in (m.lo, m.mid, m.hi)]
        for one in planned
        for m in (one.memory.kv,)
    ]
    return Interval(
        lo=min(era[0] for era in per_era), mid=per_era[-1][1], hi=max(era[2] for era in per_era)
    )


def _p_starts(checks: Sequence[Check], planned: Sequence[Planned]) -> float:
    """Return the probability behind "unsure": a cache that may fit, halves for the rest."""
    p = 1.0
    for check in checks:
        if check.ok is Starts.UNSURE:
            p *= _p_cache(planned) if check.id == "kv_cache" else 1 / 2
    return p if planned else 1 / 2


def _p_cache(planned: Sequence[Planned]) -> float:
    """Return the mean over eras of the share of the cache's interval that holds a full request."""
    shares = []
    for one in planned:
        left, need = one.memory.kv, max(one.memory.kv_need.mid, 0.0)
        width = left.hi - left.lo
        share = (left.hi - need) / width if width > 0 else float(left.mid >= need)
        shares.append(min(max(share, 1 - _SUREST), _SUREST))
    return sum(shares) / len(shares)
