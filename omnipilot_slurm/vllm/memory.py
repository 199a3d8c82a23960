"""What one GPU's memory holds when a server starts: weights, activations, graphs, cache, rest.

In: model and GPU facts, the resolved engine configuration, the fitted coefficients. Out: a
`MemoryPlan` with intervals in GiB and the longest context that fits. Called by `launch`.
Each figure by hand: docs/fit.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.kv import KvShape, longest_request, request_bytes
from omnipilot_slurm.vllm.overhead import GIB, forward_gib, larger, sampler_gib
from omnipilot_slurm.vllm.report import MemoryPlan

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.vllm.overhead import StartupCoefficients

#: a nominal memory size against what the driver reports as total
_NOMINAL = Interval(lo=0.925, mid=0.97, hi=1.0)
_ZERO = Interval(lo=0.0, mid=0.0, hi=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine configuration with vLLM's defaults filled in, and what its version does.

    `graphs_in_budget` says that the estimate of CUDA graphs comes off the cache (newer versions)
    rather than out of the share outside the budget; None: not known.
    """

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    dtype_bytes: float
    kv: KvShape
    max_model_len: int
    n_batched_tokens: int
    n_seqs: int
    utilization: Interval
    block_size: int
    hybrid: bool
    eager: bool
    graphs_in_budget: bool | None


def total_gib(gpu: GpuFacts) -> Interval:
    """Return the memory that the driver reports, an interval where only the nominal is known."""
    if gpu.mem_is_measured:
        return Interval(lo=gpu.mem_gib, mid=gpu.mem_gib, hi=gpu.mem_gib)
    return _NOMINAL.scaled(gpu.mem_gib)


def plan_memory(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: Engine,
    weights: Interval,
    coefficients: StartupCoefficients,
) -> MemoryPlan:
    """Return the plan of the fullest GPU; `weights` is what it loads, in GiB."""
    total = total_gib(gpu)
    budget = _product(total, engine.utilization)
    activation = _activation(model, engine, coefficients)
    graphs = _ZERO if engine.eager else _graphs(model, engine, coefficients)
    non_torch = _non_torch(engine, coefficients)
    charged = weights + activation + non_torch + _graphs_charged(graphs, engine)
    kv = _minus(budget, charged)
    need = _request(engine, engine.max_model_len) / GIB
    return MemoryPlan(
        weights=weights,
        activation=activation,
        cuda_graphs=graphs,
        non_torch=non_torch,
        kv=kv,
        kv_need=Interval(lo=need, mid=need, hi=need),
        free=_minus(total, budget),
        total=total,
        budget=budget,
    )


def longest_that_fits(engine: Engine, plan: MemoryPlan, limit: int) -> int:
    """Return the longest context that fits what is left for the cache in the worst case."""
    return longest_request(
        engine.kv,
        plan.kv.lo * GIB,
        limit,
        block_size=engine.block_size,
        n_batched_tokens=engine.n_batched_tokens,
        hybrid=engine.hybrid,
    )


def _request(engine: Engine, length: int) -> float:
    return request_bytes(
        engine.kv,
        length,
        block_size=engine.block_size,
        n_batched_tokens=engine.n_batched_tokens,
        hybrid=engine.hybrid,
    )


def _activation(model: ModelFacts, engine: Engine, coefficients: StartupCoefficients) -> Interval:
    n_seqs = min(engine.n_seqs, engine.n_batched_tokens)
    forward = forward_gib(
        model, engine.n_batched_tokens, engine.tensor_parallel, engine.dtype_bytes, coefficients
    )
    peak = larger(forward, sampler_gib(model, n_seqs, coefficients)) + coefficients.activation_gib
    return peak + coefficients.tower_activation_gib if model.tower_params else peak


def _graphs(model: ModelFacts, engine: Engine, coefficients: StartupCoefficients) -> Interval:
    layers = model.layers / engine.pipeline_parallel
    return coefficients.graphs_gib + coefficients.graphs_per_layer_gib.scaled(layers)


def _graphs_charged(graphs: Interval, engine: Engine) -> Interval:
    if engine.graphs_in_budget is None:
        return Interval(lo=0.0, mid=graphs.mid / 2, hi=graphs.hi)
    return graphs if engine.graphs_in_budget else _ZERO


def _non_torch(engine: Engine, coefficients: StartupCoefficients) -> Interval:
    alone = engine.tensor_parallel * engine.pipeline_parallel == 1
    return coefficients.non_torch_gib if alone else coefficients.non_torch_parallel_gib


def _product(left: Interval, right: Interval) -> Interval:
    return Interval(lo=left.lo * right.lo, mid=left.mid * right.mid, hi=left.hi * right.hi)


def _minus(left: Interval, right: Interval) -> Interval:
    return Interval(lo=left.lo - right.hi, mid=left.mid - right.mid, hi=left.hi - right.lo)
