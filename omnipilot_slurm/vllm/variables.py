"""What vLLM's own environment variables change of an engine.

In: EngineArgs, the environment in force. Out: EngineArgs. Called by the script reader and `fit`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.records import EngineArgs

_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_V1 = "VLLM_USE_V1"


def with_variables(engine: EngineArgs, environment: Mapping[str, str | None]) -> EngineArgs:
    """Return the engine as the variables make it; vLLM reads 1 and true, and 0 or 1."""
    long, v1 = environment.get(_LONG), environment.get(_V1)
    return replace(
        engine,
        allow_long_context=(long or "").strip().lower() in {"1", "true"},
        v1={"0": False, "1": True}.get((v1 or "").strip()),
    )
