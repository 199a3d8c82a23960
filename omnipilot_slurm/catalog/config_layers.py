"""Which layers of a model attend to all, slide, or keep a state: from its config.json.

In: the Fields of the text model. Out: LayerKinds. What a state layer holds, in parameters and in
bytes per sequence, follows the mixer's own widths. Called by hf_config; pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.catalog.config_fields import Fields

#: bytes of one number of a state that is kept in 32 and in 16 bits
_FP32, _FP16 = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKinds:
    """Layers by the kind of their cache, as in ModelFacts; `extra` as in vllm.weights."""

    sliding_window: int | None = None
    n_sliding: int = 0
    n_state: int = 0
    state_bytes: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixer:
    """One state layer: its parameters and the bytes it keeps per sequence."""

    params: float
    state_bytes: float


def read_layers(model_type: str, text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Return the kinds of the layers of a model."""
    hybrid = _HYBRIDS.get(model_type)
    if hybrid is not None:
        return hybrid(text, layers, hidden)
    return _sliding(model_type, text, layers)


def _sliding(model_type: str, text: Fields, layers: int) -> LayerKinds:
    """Return the layers that attend to a window only."""
    window = text.count("sliding_window", "sliding_window_size", "attention_chunk_size")
    if not window or not text.flag("use_sliding_window", default=True):
        return LayerKinds()
    n_sliding = _n_sliding(model_type, text, layers)
    if n_sliding == 0:
        return LayerKinds()
    return LayerKinds(sliding_window=window, n_sliding=n_sliding)


def _n_sliding(model_type: str, text: Fields, layers: int) -> int:
    kinds = text.words("layer_types")
    if kinds:
        return sum(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
    pattern = text.counts("hybrid_layer_pattern")  # MiMo: 1 slides, 0 attends to all
    if pattern:
        return sum(pattern)
    spelled = text.values.get("sliding_window_pattern")
    if isinstance(spelled, str):  # EXAONE 4: LLLG
        whole, rest = divmod(layers, len(spelled))
        return whole * spelled.count("L") + spelled[:rest].count("L")
    every = text.count("sliding_window_pattern", "global_attn_every_n_layers")
    every = every or _FULL_EVERY.get(model_type)
    return layers if every is None else layers - layers // every


def _delta_net(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Gated DeltaNet, as in Qwen3-Next and Qwen3.5: one layer in four attends to all."""
    kinds = text.words("layer_types")
    n_state = sum(kind == "linear_attention" for kind in kinds)
    if not kinds:
        n_state = layers - layers // (text.count("full_attention_interval") or 4)
    key_width = text.need("linear_num_key_heads") * text.need("linear_key_head_dim")
    value_heads = text.need("linear_num_value_heads")
    value_width = value_heads * text.need("linear_value_head_dim")
    conv_width = 2 * key_width + value_width
    kernel = text.count("linear_conv_kernel_dim") or 4
    wide = _FP32 if text.word("mamba_ssm_dtype") == "float32" else _FP16
    mixer = _Mixer(
        params=hidden * (conv_width + value_width + 2 * value_heads)
        + conv_width * kernel
        + value_width * hidden,
        state_bytes=conv_width * (kernel - 1) * _FP16
        + value_width * text.need("linear_key_head_dim") * wide,
    )
    gate = 1.0 if text.flag("attn_output_gate", default=True) else 0.0
    return _with_mixer(mixer, n_state, {"attention_gate": gate})


def _mamba2(text: Fields, hidden: int, *, heads: int, width: int) -> _Mixer:
    """One Mamba-2 mixer (Dao and Gu 2024) of `heads` heads of `width`."""
    inner = heads * width
    groups = text.count("n_groups", "mamba_n_groups", "mamba_ngroups") or 1
    state = text.need("ssm_state_size", "mamba_d_state")
    kernel = text.count("conv_kernel", "mamba_d_conv") or 4
    conv_width = inner + 2 * groups * state
    return _Mixer(
        params=hidden * (inner + conv_width + heads) + conv_width * kernel + inner * hidden,
        state_bytes=conv_width * (kernel - 1) * _FP16 + inner * state * _FP16,
    )


def _nemotron_h(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Nemotron-H: M is Mamba-2, * attention, - an MLP, E experts; each layer is one of them."""
    pattern = text.word("hybrid_override_pattern") or _spelled(text.words("layers_block_type"))
    heads = text.need("mamba_num_heads")
    mixer = _mamba2(text, hidden, heads=heads, width=text.need("mamba_head_dim"))
    n_mixers, n_experts = pattern.count("M"), pattern.count("E")
    n_state = layers - pattern.count("*")
    return LayerKinds(
        n_state=n_state,
        state_bytes=mixer.state_bytes * n_mixers / n_state,
        extra={
            "mlp_matrices": 2,
            "n_mlp_layers": n_experts + pattern.count("-"),
            "n_moe_layers": n_experts,
            "n_mixer_layers": n_mixers,
            "mixer_params": mixer.params,
        },
    )


def _spelled(kinds: tuple[str, ...]) -> str:
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    return "".join(letters.get(kind, "?") for kind in kinds)


def _nemotron_nas(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Llama-Nemotron: some layers have no attention, or a linear map in its place."""
    blocks = [block.inner("attention") for block in text.inners("block_configs")]
    n_linear = sum(b is not None and b.flag("replace_with_linear", default=False) for b in blocks)
    n_none = sum(b is not None and b.flag("no_op", default=False) for b in blocks)
    n_state = min(n_linear + n_none, layers)
    if n_state == 0:
        return LayerKinds()
    return LayerKinds(n_state=n_state, extra={"mixer_params": n_linear * hidden**2 / n_state})


def _granite(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Granite 4 and Bamba: Mamba-2 layers with some that attend to all."""
    kinds = text.words("layer_types") or text.words("layers_block_type")
    n_state = sum(kind == "mamba" for kind in kinds)
    if not kinds:
        n_state = layers - len(text.counts("attn_layer_indices"))
    if n_state == 0:
        return LayerKinds()
    heads = text.need("mamba_n_heads")
    expand = text.count("mamba_expand") or 2
    width = text.count("mamba_d_head") or expand * hidden // heads
    return _with_mixer(_mamba2(text, hidden, heads=heads, width=width), n_state, {})


def _falcon_h1(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Falcon-H1: every layer attends and has a Mamba-2 mixer beside it."""
    heads = text.need("mamba_n_heads")
    mixer = _mamba2(text, hidden, heads=heads, width=text.need("mamba_d_head"))
    return LayerKinds(
        state_bytes=mixer.state_bytes,
        extra={
            "parallel_state_layers": layers,
            "n_mixer_layers": layers,
            "mixer_params": mixer.params,
        },
    )


def _jamba(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """Jamba: Mamba-1 with one attention layer in eight."""
    n_state = layers - layers // (text.count("attn_layer_period") or 8)
    inner = (text.count("mamba_expand") or 2) * hidden
    state = text.count("mamba_d_state") or 16
    kernel = text.count("mamba_d_conv") or 4
    rank = text.count("mamba_dt_rank") or -(-hidden // 16)
    mixer = _Mixer(
        params=hidden * 2 * inner
        + inner * kernel
        + inner * (rank + 2 * state)
        + rank * inner
        + inner * state
        + inner * hidden,
        state_bytes=inner * (kernel - 1) * _FP16 + inner * state * _FP16,
    )
    return _with_mixer(mixer, n_state, {})


def _lfm2(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """LFM2: short convolutions with some layers that attend to all."""
    kinds = text.words("layer_types")
    n_state = sum(kind == "conv" for kind in kinds)
    if not kinds:
        n_state = layers - len(text.counts("full_attn_idxs"))
    kernel = text.count("conv_L_cache") or 3
    mixer = _Mixer(
        params=4 * hidden * hidden + hidden * kernel,
        state_bytes=hidden * (kernel - 1) * _FP16,
    )
    return _with_mixer(mixer, n_state, {})


def _lightning(text: Fields, layers: int, hidden: int) -> LayerKinds:
    """MiniMax-Text-01: lightning attention with one softmax layer in eight."""
    kinds = text.counts("attn_type_list")
    n_state = sum(kind == 0 for kind in kinds) if kinds else layers - layers // 8
    heads = text.need("num_attention_heads")
    width = text.count("head_dim") or hidden // heads
    mixer = _Mixer(params=5.0 * hidden * heads * width, state_bytes=heads * width * width * _FP32)
    return _with_mixer(mixer, n_state, {})


def _with_mixer(mixer: _Mixer, n_state: int, extra: dict[str, float]) -> LayerKinds:
    return LayerKinds(
        n_state=n_state,
        state_bytes=mixer.state_bytes,
        extra={"mixer_params": mixer.params} | extra,
    )


_HYBRIDS: dict[str, Callable[[Fields, int, int], LayerKinds]] = {
    "qwen3_next": _delta_net,
    "qwen3_5": _delta_net,
    "qwen3_5_text": _delta_net,
    "qwen3_5_moe": _delta_net,
    "qwen3_5_moe_text": _delta_net,
    "nemotron_h": _nemotron_h,
    "nemotron-nas": _nemotron_nas,
    "granitemoehybrid": _granite,
    "bamba": _granite,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "minimax": _lightning,
    "minimax_text_01": _lightning,
    "minimax_m1": _lightning,
}

#: one layer in so many attends to all, where config.json leaves it to the code
_FULL_EVERY = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gemma3n": 5,
    "gemma3n_text": 5,
    "gpt_oss": 2,
    "cohere2": 4,
    "llama4": 4,
    "llama4_text": 4,
    "olmo3": 4,
    "afmoe": 4,
}
