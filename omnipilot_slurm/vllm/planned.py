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


#: from here on a card has NVLink (or the like) to the others of its node
_LINKED_GB_S = 100.0


class Memory(NamedTuple):
    """The memory of the fullest GPU over all eras in question, and what each era leaves."""

    plan: MemoryPlan
    eras: tuple[Left, ...]


class _Loaded(NamedTuple):
    """What no card changes: weights before fitted corrections, the split, the engine without it.

    `plain`: the weights are those of a 16-bit model without experts, which load as counted.
    """

    weights: Interval
    plain: bool
    split: Split
    unsplit: EngineArgs


def memory_of(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, coefficients: StartupCoefficients
) -> Memory:
    """Return the memory in each era that the version may belong to, newest last."""
    loaded, total = _loaded(model, engine), total_gib(gpu)
    linked = gpu.link_gb_s >= _LINKED_GB_S
    numbers = coefficients.numbers if linked else coefficients.numbers_over_pcie
    weights = _weights(loaded, engine, coefficients)
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
    quantization = quantization_in_force(model, engine)
    weights = weights_gib(
        model,
        quantization,
        dtype_bytes=dtype_bytes(engine),
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
        whole_tower=engine.mm_encoder_data_parallel,
    )
    plain = quantization is None and model.experts is None
    unsplit = _same(replace(engine, tensor_parallel=1))
    return _Loaded(weights, plain, split(model, engine), unsplit)


@lru_cache(maxsize=1024)
def _same(engine: EngineArgs) -> EngineArgs:
    """Return the first of all equal ones, so that looking it up need not compare its fields."""
    return engine


def _weights(found: _Loaded, engine: EngineArgs, coefficients: StartupCoefficients) -> Interval:
    loaded, offloaded = found.weights, engine.cpu_offload_gib
    frac = coefficients.plain_weights_frac if found.plain else coefficients.weights_frac
    draft = coefficients.draft_frac if engine.speculative else 0.0
    return Interval(
        lo=max(loaded.lo * frac.lo - offloaded, 0.0),
        mid=max(loaded.mid * frac.mid - offloaded, 0.0),
        hi=max(loaded.hi * frac.hi * (1 + draft) - offloaded, 0.0),
    )
