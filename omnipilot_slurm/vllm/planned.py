"""The memory of a server at start-up in each era that its version may belong to.

In: model, GPU, engine arguments, fitted coefficients. Out: Memory. Called by `launch`, `longest`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.checks.quantization import quantization_in_force
from omnipilot_slurm.vllm.effective import Split, dtype_bytes, effective_engines, split
from omnipilot_slurm.vllm.memory import left_for_cache, memory_plan, total_gib
from omnipilot_slurm.vllm.overhead import GIB
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.memory import Left
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import MemoryPlan


class Memory(NamedTuple):
    """The memory of the fullest GPU over all eras in question, and what each era leaves."""

    plan: MemoryPlan
    eras: tuple[Left, ...]


class _Loaded(NamedTuple):
    """What no card changes: weights before fitted corrections, the split, the engine without it."""

    weights: Interval
    split: Split
    unsplit: EngineArgs


def memory_of(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, coefficients: StartupCoefficients
) -> Memory:
    """Return the memory in each era that the version may belong to, newest last."""
    loaded, total, numbers = _loaded(model, engine), total_gib(gpu), coefficients.numbers
    weights = _weights(loaded.weights, engine, coefficients)
    eras = tuple(
        left_for_cache(total, effective, loaded.split, weights, numbers[effective.era])
        for effective in effective_engines(model, gpu, loaded.unsplit)
    )
    if engine.kv_cache_memory_bytes is not None:
        given = engine.kv_cache_memory_bytes / GIB
        eras = tuple(left._replace(kv=(given, given, given)) for left in eras)
    return Memory(plan=memory_plan(total, weights, eras), eras=eras)


@lru_cache(maxsize=1024)
def _loaded(model: ModelFacts, engine: EngineArgs) -> _Loaded:
    weights = weights_gib(
        model,
        quantization_in_force(model, engine),
        dtype_bytes=dtype_bytes(engine),
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
    )
    return _Loaded(weights, split(model, engine), replace(engine, tensor_parallel=1))


def _weights(loaded: Interval, engine: EngineArgs, coefficients: StartupCoefficients) -> Interval:
    frac, offloaded = coefficients.weights_frac, engine.cpu_offload_gib
    draft = coefficients.draft_frac if engine.speculative else 0.0
    return Interval(
        lo=max(loaded.lo * frac.lo - offloaded, 0.0),
        mid=max(loaded.mid * frac.mid - offloaded, 0.0),
        hi=max(loaded.hi * frac.hi * (1 + draft) - offloaded, 0.0),
    )
