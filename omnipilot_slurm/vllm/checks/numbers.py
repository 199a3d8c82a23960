"""Whether the card computes in the types asked for: activations and the cache's elements.

In: ModelFacts, EngineArgs, the card's capability, the versions in question. Out: Checks. Called by
`launch`. Source: platforms/cuda.py (bfloat16), the attention backends (cache types).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import by_version, outcome
from omnipilot_slurm.vllm.grammar import EVERY, before, since
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check

_AMPERE = 80
_ADA = 89
_HOPPER = 90
_BLACKWELL = 100
#: from then on `--dtype auto` falls back to float16 where the card has no bfloat16
_NO_FALLBACK = before("0.9.0")
#: V0 stores any 8-bit cache on Ampere, and V1 falls back to it; 0.11.0 has neither V0 nor another
_STORES = before("0.11.0")
_STORES_NOT = since("0.11.0") & before("0.11.1")


def number_checks(
    model: ModelFacts, engine: EngineArgs, capability: int | None, here: int
) -> Iterator[Check]:
    """Yield the checks of types; `capability` as 80 for 8.0, None: not known."""
    if capability is None:
        return
    dtype = engine.dtype if engine.dtype != "auto" else model.dtype
    if dtype == "bfloat16":
        yield _bfloat16(engine, capability, here)
    if engine.kv_cache_dtype not in {"auto", "bfloat16", "float16", "half"}:
        yield _cache(model, engine, capability, here)


def _bfloat16(engine: EngineArgs, capability: int, here: int) -> Check:
    text = (
        f"bfloat16 needs compute capability 8.0, the card has {capability // 10}.{capability % 10}"
    )
    if capability >= _AMPERE:
        return outcome("dtype", CheckKind.CAPABILITY, Starts.STARTS, text)
    asked = engine.dtype == "bfloat16"
    if not asked:
        text += "; --dtype auto falls back to float16 from vLLM 0.9.0"
    refusing = EVERY if asked else _NO_FALLBACK
    return by_version("dtype", CheckKind.CAPABILITY, refusing, here, text)


def _cache(model: ModelFacts, engine: EngineArgs, capability: int, here: int) -> Check:
    kv_cache_dtype = engine.kv_cache_dtype
    text = f"a cache of {kv_cache_dtype} at compute capability {capability // 10}.{capability % 10}"
    runs = capability >= _ADA
    if kv_cache_dtype == "fp8_e5m2":
        runs = _ADA <= capability < _HOPPER
    if kv_cache_dtype == "nvfp4":
        runs = capability >= _BLACKWELL
    refused = 0
    if kv_cache_dtype.startswith("fp8") and _AMPERE <= capability < _ADA and model.mla is None:
        runs = not here & ~_STORES and not engine.v1
        refused = _STORES_NOT & here
    if not runs:
        text += " depends on vLLM's version and attention backend"
    state = Starts.STARTS if runs else Starts.UNSURE
    return outcome("kv_cache_dtype", CheckKind.CAPABILITY, state, text, refused)
