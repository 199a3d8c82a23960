"""The longest context that certainly starts, as far as memory goes.

In: model, GPU, engine arguments, coefficients, the memory at the length asked for. Out: tokens.
Called by `launch` (a safe length, at once), `fit` (the longest, by trying) and `changes`.

Engines that prefill in one piece profile a step as long as the context, and towers a video as
long as it: a shorter context leaves more for the cache. V0 chunks by itself beyond 32768 tokens, so
there a shorter one may leave less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.memory import cache_state, p_cache
from omnipilot_slurm.vllm.encoder import is_off
from omnipilot_slurm.vllm.eras import ERAS
from omnipilot_slurm.vllm.memory import longest_that_fits
from omnipilot_slurm.vllm.planned import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.planned import Memory
    from omnipilot_slurm.vllm.report import Check

#: the longest context that is looked for where the model states no maximum
_LONGEST = 1 << 24
#: V0 chunks by itself beyond the first of these; below it a shorter step is tried
_STEPS = (32768, 8192)
_BLOCK = 16
_LIKELY = 0.5
_V0 = frozenset(era.name for era in ERAS if era.engine == "V0")


def safe_length(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    *,
    memory: Memory,
    limit: int,
) -> int:
    """Return a length that certainly starts, 0 for none; the longest where steps do not grow.

    A step that grows with the context is, at any shorter one, no larger than at the one in force.
    """
    if not _grows(model, engine, memory):
        return _longest(memory, limit)
    in_force = memory.eras[-1].engine.max_model_len
    if not 0 < in_force <= limit:
        in_force = limit
        memory = memory_of(model, gpu, replace(engine, max_model_len=limit), coefficients)
    if _is_certain(memory):
        return in_force
    longest = min(_longest(memory, limit), in_force)
    if longest > (_STEPS[0] if in_force > _STEPS[0] else 0):
        return longest
    if memory.plan.budget.lo <= memory.plan.weights.hi:
        return 0
    for length in _STEPS:
        if length < in_force:
            shorter = replace(engine, max_model_len=length)
            again = memory_of(model, gpu, shorter, coefficients)
            longest = min(_longest(again, length), limit)
            if longest:
                return longest
    return 0


def longest_length(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    *,
    memory: Memory,
    limit: int,
) -> int:
    """Return the longest length that certainly starts, by halving where steps grow."""
    low = safe_length(model, gpu, engine, coefficients, memory=memory, limit=limit)
    if not _grows(model, engine, memory):
        return low
    high, asked = limit + 1, memory.eras[-1].engine.max_model_len
    if asked and not _is_certain(memory):
        high = min(high, asked)
    return _halved(model, gpu, engine, coefficients, between=(low, high), holds=_is_certain)


def likely_length(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    *,
    memory: Memory,
    limit: int,
) -> int:
    """Return the longest length that is as likely to start as not; 0 where the one in force is."""
    if _is_likely(memory):
        return 0
    high = min(memory.eras[-1].engine.max_model_len or limit, limit) + 1
    return _halved(model, gpu, engine, coefficients, between=(0, high), holds=_is_likely)


def _halved(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    *,
    between: tuple[int, int],
    holds: Callable[[Memory], bool],
) -> int:
    """Return the longest length found for which something holds; it holds at the lower bound."""
    low, high = between
    length = high - 1
    while length > low:
        asked = replace(engine, max_model_len=length)
        if holds(memory_of(model, gpu, asked, coefficients)):
            low = length
        else:
            high = length
        length = (low + high) // 2 // _BLOCK * _BLOCK
    return low


def length_limit(model: ModelFacts, engine: EngineArgs, checks: Sequence[Check]) -> int:
    """Return the longest context to look at: the model's own, or the one asked for if that goes."""
    own, asked = model.max_model_len or _LONGEST, engine.max_model_len or 0
    refused = any(c.id == "max_model_len" and c.ok is Starts.FAILS for c in checks)
    return own if refused else max(own, asked)


def _longest(memory: Memory, limit: int) -> int:
    return min(longest_that_fits(left, limit) for left in memory.eras)


def _is_certain(memory: Memory) -> bool:
    return all(cache_state(left) is Starts.STARTS for left in memory.eras)


def _is_likely(memory: Memory) -> bool:
    return p_cache(memory.eras) >= _LIKELY


def _grows(model: ModelFacts, engine: EngineArgs, memory: Memory) -> bool:
    """Return whether the profiling step of some version in question grows with the context."""
    if model.tower is not None and not is_off(engine):
        return True  # the longest video is made for it
    if engine.max_num_batched_tokens is not None:
        return False
    return engine.chunked_prefill is False or any(left.engine.era in _V0 for left in memory.eras)
