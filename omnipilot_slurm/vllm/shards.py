"""The weights that the fullest GPU of a server loads, by architecture and split.

In: ModelFacts, the quantization in force, TP/PP/DP. Out: GiB as an interval. Called by `launch`.
Linear layers are stored in the checkpoint's format; embeddings, head and towers stay 16-bit.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from omnipilot_slurm.facts import ModelFacts, Quantization

GIB = 2.0**30


def stored_bits(quantization: Quantization) -> float:
    """Return the bits of one quantised weight with its share of scales and zero points."""
    bits = quantization.bits
    if quantization.block is not None:
        return bits + 32 / (quantization.block[0] * quantization.block[1])
    if quantization.group_size is None or quantization.group_size <= 0:
        return bits
    scale = 8.0 if quantization.method in {"mxfp4", "nvfp4", "modelopt_fp4"} else 16.0
    zero = bits if quantization.method in {"awq", "gptq", "awq_marlin", "gptq_marlin"} else 0.0
    return bits + (scale + zero) / quantization.group_size


def weights_gib(
    model: ModelFacts,
    quantization: Quantization | None,
    *,
    dtype_bytes: float,
    tensor_parallel: int,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
) -> Interval:
    """Return what the GPU of the fullest pipeline stage loads, before fitted corrections."""
    ends = float(model.vocab * model.hidden)
    head = 0.0 if model.tied_embeddings else ends
    linear = max(model.params - ends - head - model.tower_params, 0.0)
    linear_bytes = dtype_bytes if quantization is None else stored_bits(quantization) / 8
    head_quantized = quantization is not None and quantization.quantizes_head
    head_bytes = head * (linear_bytes if head_quantized else dtype_bytes)
    stage = ceil(model.layers / pipeline_parallel) / model.layers
    experts = _expert_params(model)
    per_gpu = stage * linear_bytes * (linear - experts + experts / data_parallel)
    if pipeline_parallel == 1:
        per_gpu += ends * dtype_bytes + head_bytes
    else:
        per_gpu += max(ends * dtype_bytes, head_bytes)
    tower = model.tower_params * dtype_bytes
    replicated = _replicated_bytes(model, linear_bytes, tensor_parallel) * stage
    lo = (per_gpu + tower) / tensor_parallel + replicated
    hi = per_gpu / tensor_parallel + tower + replicated
    return Interval(lo=lo / GIB, mid=lo / GIB, hi=hi / GIB)


def _expert_params(model: ModelFacts) -> float:
    if model.experts is None:
        return 0.0
    experts = model.experts
    n_layers = (model.layers - experts.n_dense_layers) / experts.every_n_layers
    return min(
        3.0 * model.hidden * experts.intermediate * experts.n_experts * n_layers, model.params
    )


def _replicated_bytes(model: ModelFacts, linear_bytes: float, tensor_parallel: int) -> float:
    """Return what TP does not divide: KV heads beyond their number, the latent projections."""
    if model.mla is not None:
        latent = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim + (model.mla.q_lora_rank or 0)
        per_layer = model.hidden * latent
        return model.layers * per_layer * linear_bytes * (1 - 1 / tensor_parallel)
    extra = max(tensor_parallel - model.kv_heads, 0) / tensor_parallel
    return 2.0 * model.layers * model.hidden * model.head_dim * linear_bytes * extra
