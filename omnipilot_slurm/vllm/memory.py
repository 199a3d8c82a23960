"""What one GPU's memory holds when a server starts: weights, activations, graphs, cache, rest.

In: model and GPU facts, the engine as one era runs it, the fitted coefficients. Out: a
`MemoryPlan` in GiB and the longest context that fits. Called by `launch`.

The parts are not off in the same direction at once: what is left for the cache is the budget less
the middles, with the root of the summed squares of the parts' spreads. By hand: docs/fit.md.
"""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.kv import longest_request, request_bytes
from omnipilot_slurm.vllm.overhead import (
    GIB,
    ZERO,
    activation_gib,
    graphs_gib,
    non_torch_gib,
)
from omnipilot_slurm.vllm.report import MemoryPlan

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.vllm.effective import Engine
    from omnipilot_slurm.vllm.overhead import StartupCoefficients, Widths

#: drivers differ in the total they report by up to 0.2 GiB; a size that no report backs, by 2 %
_MEASURED_SPREAD_GIB = 0.1
_ESTIMATED_SPREAD = 0.02


def total_gib(gpu: GpuFacts) -> Interval:
    """Return the memory that the driver reports, an interval as wide as reports differ."""
    spread = _MEASURED_SPREAD_GIB if gpu.mem_is_measured else _ESTIMATED_SPREAD * gpu.mem_gib
    return Interval(lo=gpu.mem_gib - spread, mid=gpu.mem_gib, hi=gpu.mem_gib + spread)


def plan_memory(
    gpu: GpuFacts,
    engine: Engine,
    wide: Widths,
    *,
    weights: Interval,
    coefficients: StartupCoefficients,
    cache_gib: float | None = None,
) -> MemoryPlan:
    """Return the plan of the fullest GPU.

    `weights` is what it loads, in GiB; `cache_gib` a size of the cache that the user gave.
    """
    era = coefficients.eras[engine.era]
    total = total_gib(gpu)
    budget = total.scaled(engine.utilization)
    activation = activation_gib(wide, engine.step, era, coefficients)
    graphs = graphs_gib(engine.n_layers, era) if engine.graphs else ZERO
    non_torch = non_torch_gib(engine.n_gpus, era)
    charged = (weights, activation, non_torch, graphs if engine.graphs_in_budget else ZERO)
    need = request_gib(engine, engine.max_model_len)
    return MemoryPlan(
        weights=weights,
        activation=activation,
        cuda_graphs=graphs,
        non_torch=non_torch,
        kv=_left(budget, charged) if cache_gib is None else _exactly(cache_gib),
        kv_need=_exactly(need),
        free=Interval(lo=total.lo - budget.lo, mid=total.mid - budget.mid, hi=total.hi - budget.hi),
        total=total,
        budget=budget,
    )


def request_gib(engine: Engine, length: int) -> float:
    """Return what one request of `length` tokens takes in the cache of the fullest GPU."""
    need = request_bytes(
        engine.kv,
        length,
        block_size=engine.block_size,
        n_batched_tokens=engine.step.tokens,
        hybrid=engine.hybrid,
    )
    return need * engine.kv_factor / GIB


def longest_that_fits(engine: Engine, plan: MemoryPlan, limit: int) -> int:
    """Return the longest context that fits what is left for the cache in the worst case."""
    return longest_request(
        engine.kv,
        plan.kv.lo * GIB / engine.kv_factor,
        limit,
        block_size=engine.block_size,
        n_batched_tokens=engine.step.tokens,
        hybrid=engine.hybrid,
    )


def _left(budget: Interval, charged: tuple[Interval, ...]) -> Interval:
    mid = budget.mid - sum(part.mid for part in charged)
    down = hypot(budget.mid - budget.lo, *(part.hi - part.mid for part in charged))
    up = hypot(budget.hi - budget.mid, *(part.mid - part.lo for part in charged))
    return Interval(lo=mid - down, mid=mid, hi=mid + up)


def _exactly(value: float) -> Interval:
    return Interval(lo=value, mid=value, hi=value)
