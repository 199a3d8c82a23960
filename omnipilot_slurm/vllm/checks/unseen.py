"""What a check may still say where the script does not show the options that it rests on.

In: Checks, the names of the options that are not visible (fields of EngineArgs). Out: Checks.
Called by `launch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Reason, Starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.vllm.report import Check

_SPLIT = frozenset({"tensor_parallel", "pipeline_parallel", "data_parallel"})
_MEMORY = _SPLIT | {
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "kv_cache_dtype",
    "quantization",
    "dtype",
    "cpu_offload_gib",
    "n_gpu_blocks",
    "mm_limits",
    "mm_processor_kwargs",
    "skip_mm_profiling",
    "language_model_only",
}
#: check -> the options its outcome rests on
_RESTS_ON = {
    "heads": _SPLIT,
    "kv_heads": _SPLIT,
    "widths": _SPLIT | {"expert_parallel"},
    "layers": _SPLIT,
    "world_size": _SPLIT,
    "node_gpus": _SPLIT | {"executor", "n_nodes"},
    "pipeline": _SPLIT,
    "experts": frozenset({"expert_parallel"}),
    "dtype": frozenset({"dtype"}),
    "kv_cache_dtype": frozenset({"kv_cache_dtype"}),
    "quantization_method": frozenset({"quantization"}),
    "quantization_config": frozenset({"quantization", "model"}),
    "quantization_capability": frozenset({"quantization"}),
    "quantization_dtype": frozenset({"quantization", "dtype"}),
    "quantization_group": _SPLIT | {"quantization"},
    "quantization_block": _SPLIT | {"quantization", "expert_parallel"},
    "quantization_tile": _SPLIT | {"quantization"},
    "max_model_len": frozenset({"max_model_len", "hf_overrides"}),
    "batched_tokens": frozenset({"max_model_len", "max_num_batched_tokens", "chunked_prefill"}),
    "batched_seqs": frozenset({"max_num_seqs", "max_num_batched_tokens"}),
    "weights": _SPLIT | {"quantization", "dtype", "cpu_offload_gib"},
    "kv_cache": _MEMORY,
    "utilization": frozenset({"gpu_memory_utilization"}),
    "headroom": frozenset({"gpu_memory_utilization"}),
    "free_memory": frozenset({"gpu_memory_utilization"}),
}


def doubt_unseen(checks: Sequence[Check], unknown: frozenset[str]) -> list[Check]:
    """Return the checks, unsure where they rest on an option whose value is not visible."""
    if not unknown:
        return list(checks)
    return [_doubted(check, unknown & _RESTS_ON.get(check.id, frozenset())) for check in checks]


def _doubted(check: Check, unseen: frozenset[str]) -> Check:
    if not unseen:
        return check
    names = ", ".join(sorted(unseen))
    text = f"{check.detail.text}; the script does not show {names}"
    detail = Reason(code=check.id, text=text)
    return replace(check, ok=Starts.UNSURE, detail=detail, refused_in=0)
