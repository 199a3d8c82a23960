"""Lengths that vLLM compares before it loads anything: context, batched tokens, sequences.

In: ModelFacts, EngineArgs, the versions in question. Out: Checks. Called by `launch`.
Source: config/model.py (the derived maximum) and config/scheduler.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import by_version, fails_if, outcome
from omnipilot_slurm.vllm.grammar import before, since
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check

#: V0 chunks by itself beyond this length only; V1 always, and up to 0.11.0 whatever it is told
_V0_CHUNKS_BEYOND = 32768
_V0 = before("0.8.0")
_BLOCK = 16
_OBEYS = _V0 | since("0.11.1")


def length_checks(model: ModelFacts, engine: EngineArgs, length: int, here: int) -> Iterator[Check]:
    """Yield the comparisons of lengths; `length` is the context in force (0: what fits)."""
    asked = engine.max_model_len
    if asked is not None and asked > 0 and model.max_model_len is not None:
        yield _derived(model, engine, asked, model.max_model_len)
    if engine.n_gpu_blocks is not None:
        yield _blocks(engine, engine.n_gpu_blocks, length)
    batched, seqs = engine.max_num_batched_tokens, engine.max_num_seqs
    if batched is None:
        return
    refusing = _unchunked_in(engine, length)
    if refusing & here:
        yield _unchunked(batched, length, refusing, here)
    if seqs is not None:
        text = f"max_num_batched_tokens {batched}, max_num_seqs {seqs}"
        yield outcome("batched_seqs", CheckKind.LENGTH, fails_if(condition=batched < seqs), text)


def _derived(model: ModelFacts, engine: EngineArgs, asked: int, derived: int) -> Check:
    text = f"max_model_len {asked}, the model's own maximum is {derived}"
    if asked <= derived:
        return outcome("max_model_len", CheckKind.LENGTH, Starts.STARTS, text)
    wider = model.extra.get("model_max_length", 0.0)
    if asked <= wider:
        text += f"; its model_max_length {wider:.0f} lets newer versions go further"
        return outcome("max_model_len", CheckKind.LENGTH, Starts.UNSURE, text)
    if engine.allow_long_context:
        text += "; VLLM_ALLOW_LONG_MAX_MODEL_LEN lets vLLM start beyond it"
        return outcome("max_model_len", CheckKind.LENGTH, Starts.UNSURE, text)
    if engine.hf_overrides is not None:
        text += "; --hf-overrides may raise it"
        return outcome("max_model_len", CheckKind.LENGTH, Starts.UNSURE, text)
    return outcome("max_model_len", CheckKind.LENGTH, Starts.FAILS, text)


def _blocks(engine: EngineArgs, n_blocks: int, length: int) -> Check:
    """Return whether the blocks asked for hold one request; whether they fit is not known."""
    size = engine.block_size or _BLOCK
    text = f"{n_blocks} blocks of {size} tokens hold {n_blocks * size}, max_model_len is {length}"
    state = Starts.STARTS if n_blocks * size >= length else Starts.UNSURE
    return outcome("gpu_blocks", CheckKind.LENGTH, state, text)


def _unchunked_in(engine: EngineArgs, length: int) -> int:
    """Return the bits of the versions that prefill in one piece."""
    if engine.chunked_prefill is False:
        return _OBEYS
    return _V0 if engine.chunked_prefill is None and length <= _V0_CHUNKS_BEYOND else 0


def _unchunked(batched: int, length: int, refusing: int, here: int) -> Check:
    text = f"max_num_batched_tokens {batched} must hold max_model_len {length}"
    text = f"{text} where prefill is not chunked"
    refusing = refusing if batched < length else 0
    return by_version("batched_tokens", CheckKind.LENGTH, refusing, here, text)
