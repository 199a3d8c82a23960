"""The memory of a server at start-up in each era that its version may belong to.

In: model, GPU, engine arguments, fitted coefficients. Out: Memory. Called by `launch`, `longest`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.checks.quantization import quantization_in_force
from omnipilot_slurm.vllm.effective import dtype_bytes, effective_engines, split
from omnipilot_slurm.vllm.memory import left_for_cache, memory_plan, total_gib
from omnipilot_slurm.vllm.overhead import GIB, era_numbers
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


def memory_of(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, coefficients: StartupCoefficients
) -> Memory:
    """Return the memory in each era that the version may belong to, newest last."""
    total, weights = total_gib(gpu), _weights(model, engine, coefficients)
    parts = split(model, engine)
    numbers = era_numbers(coefficients)
    eras = tuple(
        left_for_cache(total, effective, parts, weights, numbers[effective.era])
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
