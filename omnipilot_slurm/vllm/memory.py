"""What one GPU's memory holds when a server starts: weights, activations, graphs, cache, rest.

In: GPU facts, the engine as one era runs it, the fitted coefficients. Out: what is `Left` for the
cache, a `MemoryPlan` in GiB, the longest context that fits. Called by `launch`.

The parts are not off in the same direction at once: what is left for the cache is the budget less
the middles, with the root of the summed squares of the parts' spreads. By hand: docs/fit.md.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.kv import longest_request, request_bytes
from omnipilot_slurm.vllm.overhead import GIB, overhead
from omnipilot_slurm.vllm.report import MemoryPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.vllm.effective import Engine, Split
    from omnipilot_slurm.vllm.kv import KvShape
    from omnipilot_slurm.vllm.overhead import EraNumbers, Overhead, Triple

#: drivers differ in the total they report by up to 0.2 GiB; a size that no report backs, by 2 %
_MEASURED_SPREAD_GIB = 0.1
_ESTIMATED_SPREAD = 0.02


class Left(NamedTuple):
    """What one era leaves for the cache, and what one request of full length needs, in GiB."""

    engine: Engine
    split: Split
    beside: Overhead
    kv: Triple
    need: float


def total_gib(gpu: GpuFacts) -> Interval:
    """Return the memory that the driver reports, an interval as wide as reports differ."""
    spread = _MEASURED_SPREAD_GIB if gpu.mem_is_measured else _ESTIMATED_SPREAD * gpu.mem_gib
    return Interval(lo=gpu.mem_gib - spread, mid=gpu.mem_gib, hi=gpu.mem_gib + spread)


def left_for_cache(
    total: Interval,
    engine: Engine,
    split: Split,
    weights: Interval,
    era: EraNumbers,
) -> Left:
    """Return what the fullest GPU leaves; `weights` is what it loads, in GiB."""
    layers = engine.n_layers if engine.graphs else None
    beside = overhead(split.wide, engine.step, split.n_gpus, layers, era)
    off, off_above, off_below = beside.off_with_graphs if engine.graphs_in_budget else beside.off
    share, middle, loaded = engine.utilization, total.mid, weights.mid
    mid = middle * share - loaded - off
    down = sqrt(((middle - total.lo) * share) ** 2 + (weights.hi - loaded) ** 2 + off_above)
    up = sqrt(((total.hi - middle) * share) ** 2 + (loaded - weights.lo) ** 2 + off_below)
    need = _request_gib(engine, split, engine.max_model_len)
    return Left(engine, split, beside, (mid - down, mid, mid + up), need)


def _request_gib(engine: Engine, split: Split, length: int) -> float:
    """Return what one request of `length` tokens takes in the cache of the fullest GPU."""
    need = request_bytes(
        _cached(engine, split),
        length,
        block_size=engine.block_size,
        n_batched_tokens=engine.step.usual.tokens,
        hybrid=engine.hybrid,
    )
    return need * engine.kv_factor / GIB


def _cached(engine: Engine, split: Split) -> KvShape:
    """Return what the version caches: latents, or whole heads where it knows none."""
    if not engine.whole_head_dim:
        return split.cache
    return split.cache._replace(full=split.whole_heads * engine.whole_head_dim)


def longest_that_fits(left: Left, limit: int) -> int:
    """Return the longest context that fits what is left for the cache in the worst case."""
    engine = left.engine
    return longest_request(
        _cached(engine, left.split),
        left.kv[0] * GIB / engine.kv_factor,
        limit,
        block_size=engine.block_size,
        n_batched_tokens=engine.step.usual.tokens,
        hybrid=engine.hybrid,
    )


def memory_plan(total: Interval, weights: Interval, eras: Sequence[Left]) -> MemoryPlan:
    """Return the plan over all eras in question: their hull, with the newest one's middles."""
    newest = eras[-1]
    budget = total.scaled(newest.engine.utilization)
    activation, graphs, non_torch = _hulls(tuple([left.beside for left in eras]))
    needs = [left.need for left in eras]
    return MemoryPlan(
        weights=weights,
        activation=activation,
        cuda_graphs=graphs,
        non_torch=non_torch,
        kv=_hull([left.kv for left in eras]),
        kv_need=Interval(lo=min(needs), mid=needs[-1], hi=max(needs)),
        free=total.scaled(1 - newest.engine.utilization),
        total=total,
        budget=budget,
    )


@lru_cache(maxsize=4096)
def _hulls(eras: tuple[Overhead, ...]) -> tuple[Interval, Interval, Interval]:
    """Return the hulls of activations, graphs and the rest: alike for many arms."""
    return (
        _hull([beside.activation for beside in eras]),
        _hull([beside.graphs for beside in eras]),
        _hull([beside.non_torch for beside in eras]),
    )


def _hull(triples: Sequence[Triple]) -> Interval:
    if len(triples) == 1:
        lo, mid, hi = triples[0]
        return Interval(lo=lo, mid=mid, hi=hi)
    lows, middles, highs = zip(*triples, strict=True)
    return Interval(lo=min(lows), mid=middles[-1], hi=max(highs))
