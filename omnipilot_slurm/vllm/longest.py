"""The longest context that certainly starts, as far as memory goes.

In: model, GPU, engine arguments, coefficients, the memory at the length asked for. Out: tokens.
Called by `launch` (a safe length, at once), `fit` (the longest, by trying) and `changes`.

Engines that prefill in one piece profile a step as long as the context: a shorter context leaves
more for the cache. V0 chunks by itself beyond 32768 tokens, so there a shorter one may leave less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.memory import cache_state, p_cache
from omnipilot_slurm.vllm.eras import ERAS
from omnipilot_slurm.vllm.memory import longest_that_fits
from omnipilot_slurm.vllm.planned import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.planned import Memory

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
    memory: Memory,
) -> int:
    """Return a length that certainly starts, 0 for none; the longest where steps do not grow.

    A step that grows with the context is, at any shorter one, no larger than at the one in force.
    """
    limit, asked = _limits(model, memory)
    grows = _grows(engine, memory)
    if grows and asked and _is_certain(memory):
        return asked
    longest = _longest(memory, limit)
    if not grows:
        return longest
    asked = asked or limit
    if min(longest, asked) > (_STEPS[0] if asked > _STEPS[0] else 0):
        return min(longest, asked)
    if memory.plan.budget.lo <= memory.plan.weights.hi:
        return 0
    for length in _STEPS:
        if length < asked:
            shorter = replace(engine, max_model_len=length)
            longest = _longest(memory_of(model, gpu, shorter, coefficients), length)
            if longest:
                return longest
    return 0


def longest_length(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    memory: Memory,
) -> int:
    """Return the longest length that certainly starts, by halving where steps grow."""
    low = safe_length(model, gpu, engine, coefficients, memory)
    if not _grows(engine, memory):
        return low
    limit, asked = _limits(model, memory)
    high = asked if asked and not _is_certain(memory) else limit + 1
    return _halved(model, gpu, engine, coefficients, between=(low, high), holds=_is_certain)


def likely_length(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    coefficients: StartupCoefficients,
    memory: Memory,
) -> int:
    """Return the longest length that is as likely to start as not; 0 where the one in force is."""
    limit, asked = _limits(model, memory)
    if _is_likely(memory):
        return 0
    high = asked or limit + 1
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


def _limits(model: ModelFacts, memory: Memory) -> tuple[int, int]:
    """Return the longest context to look at, and the one in force (0: what fits)."""
    asked = memory.eras[-1].engine.max_model_len
    return max(model.max_model_len or _LONGEST, asked), asked


def _longest(memory: Memory, limit: int) -> int:
    return min(longest_that_fits(left, limit) for left in memory.eras)


def _is_certain(memory: Memory) -> bool:
    return all(cache_state(left) is Starts.STARTS for left in memory.eras)


def _is_likely(memory: Memory) -> bool:
    return p_cache(memory.eras) >= _LIKELY


def _grows(engine: EngineArgs, memory: Memory) -> bool:
    """Return whether the profiling step of some version in question grows with the context."""
    if engine.max_num_batched_tokens is not None:
        return False
    return engine.chunked_prefill is False or any(left.engine.era in _V0 for left in memory.eras)
