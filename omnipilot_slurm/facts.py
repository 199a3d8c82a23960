"""What is known of a model and of a GPU: the records that the catalogs fill and core reads.

Lengths are in tokens, widths in elements, memory in GiB (2**30 bytes), bandwidth in 10**9 bytes/s,
compute in 10**12 operations/s (dense, without sparsity). A fact that is not known is None.
The records can be hashed, so that what follows from them alone is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU type; `mem_gib` is what torch.cuda.mem_get_info reports as total."""

    id: str
    name: str
    vendor: str
    mem_gib: float
    bandwidth_gb_s: float
    peak_tflops: Mapping[str, float] = field(hash=False)
    link_gb_s: float
    tdp_w: float
    capability: tuple[int, int] | None
    price_usd_per_gpu_hour: float | None
    mem_is_measured: bool = False
    aliases: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a checkpoint's linear layers are stored; embeddings and head stay 16-bit unless listed.

    `method` is vLLM's name (awq, gptq, fp8, compressed-tensors, mxfp4, modelopt, ...), `scheme`
    narrows it where the minimum capability depends on it (w8a8-fp8, w4a16, ...). `group_size` is
    the number of inputs that share a scale (-1: one scale a channel), `block` the
    (output, input) tile of block-wise FP8. `quantizes` names the kinds of layer that are stored so
    (fields of vllm.weights.ParameterCount): gpt-oss quantises its experts only.
    """

    method: str
    bits: float
    scheme: str | None = None
    group_size: int | None = None
    block: tuple[int, int] | None = None
    quantizes_head: bool = False
    quantizes: tuple[str, ...] = ("attention", "mlp", "experts", "mixer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: the first `n_dense_layers` layers have none."""

    n_experts: int
    n_active: int
    intermediate: int
    shared_intermediate: int = 0
    n_dense_layers: int = 0
    every_n_layers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2/V3, Kimi K2): one latent vector per token."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A vision tower: its widths, and the largest image and video that it encodes.

    `patch_values` are the input values of one patch (pixels x channels x frames). An image is
    `image_patches` that become `image_tokens`; a video is up to `n_frames` frames of
    `video_patches` and `video_tokens` each, as many as the context holds (0: takes none, or not
    known). `n_outputs` rows of the language model's width leave it per token. `gated`: its MLPs
    have a gate; `rotary`: it rotates queries and keys; `normed`: it norms them, in 32 bits;
    `one_by_one`: it runs image by image, frame by frame; `masked`: it may hold a mask of patches x
    patches. `sized`: the sizes are those of this checkpoint, else of its family, whose processor
    may be set to smaller ones. `heads` of 0 are not known.
    """

    hidden: int
    intermediate: int
    layers: int
    patch_values: int
    image_patches: int = 0
    image_tokens: int = 0
    video_patches: int = 0
    video_tokens: int = 0
    n_frames: int = 1
    n_outputs: int = 1
    heads: int = 0
    gated: bool = False
    rotary: bool = False
    normed: bool = False
    one_by_one: bool = False
    masked: bool = False
    sized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The architecture of one checkpoint, as its config.json states it.

    `params` and `active_params` count all parameters (embeddings and towers included).
    `max_model_len` is the longest context that vLLM derives without an override.
    Layers split by the kind of their cache: `n_sliding_layers` of `layers` attend to
    `sliding_window` tokens only, `n_state_layers` keep a state of constant size
    (`state_bytes_per_layer` per sequence) instead of keys and values, the rest attend to all.
    `kind` is text, multimodal or pooling; `tower_params` counts vision and audio towers, `tower`
    describes the vision tower where it is known.
    `dtype` is "unknown" where the source does not state the 16-bit format of the weights.
    `extra` holds what few architectures need: the keys at the head of vllm/weights.py, and
    `parallel_state_layers` (attention layers that keep such a state as well),
    `weight_bytes` (the size of the files that were read), `model_max_length` (a longer context
    that newer vLLM accepts on demand) and `default_max_model_len` (what newer vLLM takes where
    none is asked and it is shorter).
    """

    id: str
    family: str
    architecture: str | None = None
    kind: str = "text"
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    params: float
    active_params: float
    max_model_len: int | None
    tied_embeddings: bool = False
    dtype: str = "bfloat16"
    quantization: Quantization | None = None
    experts: Experts | None = None
    mla: LatentAttention | None = None
    sliding_window: int | None = None
    n_sliding_layers: int = 0
    n_state_layers: int = 0
    state_bytes_per_layer: float = 0.0
    tower_params: float = 0.0
    tower: Tower | None = None
    source: str = ""
    aliases: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict, hash=False)
