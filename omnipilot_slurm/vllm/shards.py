"""The weights that the fullest GPU of a server loads, by architecture, format and split.

In: ModelFacts, the quantization in force, TP/PP/DP. Out: GiB as an interval. Called by `launch`.
A tower is split or copied (lo, hi); what vLLM adds on loading, like the absorbed projections of
latent attention and the table of rotations, is in the middle or in the upper bound.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.weights import n_moe_layers, parameter_count

if TYPE_CHECKING:
    from omnipilot_slurm.facts import ModelFacts, Quantization, Tower
    from omnipilot_slurm.vllm.weights import ParameterCount

GIB = 2.0**30
_16_BIT = 2.0
#: kernels of 4-bit experts pad one width, some both, to a multiple of it
_MXFP4_TILE = 256
_SCALE_BITS_8 = frozenset({"mxfp4", "modelopt_fp4", "nvfp4"})
#: architectures whose positions have several axes keep a longer table of rotations
_POSITIONS_IN_3D = dict.fromkeys(
    (
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    ),
    4,
)
#: of what a known tower divides, at most: the projections between it and the language model
_COPIED_OF_TOWER = 0.25
_WITH_ZERO_POINTS = frozenset({"awq", "gptq"})


def stored_bits(quantization: Quantization) -> float:
    """Return the bits of one quantised weight with its share of scales and zero points."""
    bits = quantization.bits
    if quantization.block is not None:
        return bits + 32 / (quantization.block[0] * quantization.block[1])
    if quantization.group_size is None or quantization.group_size <= 0:
        return bits
    narrow = quantization.method in _SCALE_BITS_8 or quantization.scheme in _SCALE_BITS_8
    zero = bits if quantization.method in _WITH_ZERO_POINTS else 0.0
    return bits + ((8.0 if narrow else 16.0) + zero) / quantization.group_size


def weights_gib(
    model: ModelFacts,
    quantization: Quantization | None,
    *,
    dtype_bytes: float,
    tensor_parallel: int,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    whole_tower: bool = False,
) -> Interval:
    """Return what the GPU of the fullest pipeline stage loads, before fitted corrections.

    `whole_tower`: each GPU is asked to hold all of a multimodal model's tower.
    """
    count = parameter_count(model)
    stored = _stored_bytes(quantization, dtype_bytes)
    experts = count.experts * stored["experts"] / (tensor_parallel * data_parallel)
    rest = _split_bytes(model, count, stored, tensor_parallel)
    ends = count.embedding * dtype_bytes, _head_bytes(count, quantization, dtype_bytes)
    per_gpu = (sum(ends) if pipeline_parallel == 1 else max(ends)) / tensor_parallel
    small = (count.norms + count.other) * dtype_bytes
    towers = _tower_bytes(model, count.tower * dtype_bytes, tensor_parallel, whole=whole_tower)
    rotations = _rotation_bytes(model, dtype_bytes)
    absorbed = _absorbed_bytes(model) / tensor_parallel
    even, uneven = _stage_shares(model.layers, pipeline_parallel)
    moe = n_moe_layers(model)
    moe_share = min(1.0, ceil(model.layers / pipeline_parallel) / moe) if moe else 0.0
    padding = _padding(model, quantization, tensor_parallel)
    base = per_gpu + small / pipeline_parallel
    text = base + rest * even + experts * moe_share
    added = absorbed * even + experts * moe_share * (padding - 1) + rotations
    experts_hi = experts * padding**2 * (moe_share + uneven - even)
    text_hi = base + (rest + absorbed) * uneven + experts_hi + rotations
    lo, mid, hi = text + towers[0], text + added + towers[1], text_hi + towers[2]
    return Interval(lo=lo / GIB, mid=mid / GIB, hi=max(hi, mid) / GIB)


def _tower_bytes(
    model: ModelFacts, tower_bytes: float, tensor_parallel: int, *, whole: bool
) -> tuple[float, float, float]:
    """Return what a tower takes on one GPU: divided as far as it can be, as asked for, at most."""
    divided = tower_bytes / tensor_parallel
    tower = model.tower
    if tower is not None and tower.heads % tensor_parallel:
        divided += (tower_bytes - divided) * _share_of_attention(tower)
    held = tower_bytes if whole else divided
    if tower is None:
        return divided, held, tower_bytes
    return divided, held, held + (tower_bytes - held) * _COPIED_OF_TOWER


def _share_of_attention(tower: Tower) -> float:
    """Return the share of a tower's layers that is attention."""
    attention = 4 * tower.hidden
    return attention / (attention + (3 if tower.gated else 2) * tower.intermediate)


def _rotation_bytes(model: ModelFacts, dtype_bytes: float) -> float:
    """Return the table of sines and cosines for every position, whole on each GPU."""
    width = model.head_dim if model.mla is None else model.mla.qk_rope_head_dim
    n_tables = _POSITIONS_IN_3D.get(model.architecture or "", 1)
    return (model.max_model_len or 0) * n_tables * width * dtype_bytes


def _stage_shares(layers: int, n_stages: int) -> tuple[float, float]:
    """Return the share of layers in the fullest stage: remainder spread, remainder in the last."""
    return ceil(layers / n_stages) / layers, (layers // n_stages + layers % n_stages) / layers


def _stored_bytes(quantization: Quantization | None, dtype_bytes: float) -> dict[str, float]:
    """Return the bytes of a weight by the kind of linear layer it is in."""
    kinds = dict.fromkeys(("attention", "mlp", "experts", "mixer"), dtype_bytes)
    if quantization is not None:
        kinds |= dict.fromkeys(quantization.quantizes, stored_bits(quantization) / 8)
    return kinds


def _split_bytes(
    model: ModelFacts, count: ParameterCount, stored: dict[str, float], tensor_parallel: int
) -> float:
    """Return one GPU's bytes of all linear layers but routed experts, all stages."""
    split = count.attention * stored["attention"] + count.mlp * stored["mlp"]
    split += count.mixer * stored["mixer"]
    copied = _copied_params(model) * (1 - 1 / tensor_parallel) * stored["attention"]
    return split / tensor_parallel + copied


def _padding(model: ModelFacts, quantization: Quantization | None, tensor_parallel: int) -> float:
    """Return what padding one width of the experts multiplies them by."""
    if model.experts is None or quantization is None or quantization.method != "mxfp4":
        return 1.0
    width = model.experts.intermediate / tensor_parallel
    return ceil(width / _MXFP4_TILE) * _MXFP4_TILE / width


def _head_bytes(
    count: ParameterCount, quantization: Quantization | None, dtype_bytes: float
) -> float:
    if quantization is not None and quantization.quantizes_head:
        return count.head * stored_bits(quantization) / 8
    return count.head * dtype_bytes


def _copied_params(model: ModelFacts) -> float:
    """Return the attention parameters that every GPU of a TP group holds in full.

    Latent attention copies its down projections. KV heads are copied once TP exceeds them, but
    that takes TP as large as that; the share is under 1 % of any model that is served so.
    """
    if model.mla is None:
        return 0.0
    latent = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim + (model.mla.q_lora_rank or 0)
    return float(model.layers * model.hidden * latent)


def _absorbed_bytes(model: ModelFacts) -> float:
    """Return what latent attention keeps beside its weights: W_UK and W_UV in 16 bits."""
    if model.mla is None:
        return 0.0
    wide = model.mla.qk_nope_head_dim + model.mla.v_head_dim
    return model.layers * model.heads * model.mla.kv_lora_rank * wide * _16_BIT
