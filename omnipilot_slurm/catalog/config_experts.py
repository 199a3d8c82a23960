"""Experts and latent attention, from a config.json.

In: the Fields of the text model. Out: Experts and LatentAttention, or None where the model has
none. Called by hf_config; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.facts import Experts, LatentAttention

if TYPE_CHECKING:
    from omnipilot_slurm.catalog.config_fields import Fields

#: families whose intermediate_size is the width of one expert
_NAMED_LIKE_DENSE = {
    "mixtral", "olmoe", "granitemoe", "granitemoehybrid", "gpt_oss", "phimoe", "minimax_m2",
    "minimax", "minimax_text_01", "minimax_m1", "llama4", "llama4_text", "jamba", "flex_olmo",
}  # fmt: skip
#: families whose shared experts have a width of their own, and its name
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
_LATENT = {
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa",
    "glm4_moe_lite", "kimi_linear", "longcat_flash", "minicpm3", "pangu_ultra_moe",
}  # fmt: skip


def read_experts(model_type: str, text: Fields, layers: int) -> Experts | None:
    """Return the routed and shared experts."""
    inner = text.inner("ffn_config") or text
    number = inner.count("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    if not number or number == 1:
        return None
    width = _width(model_type, inner)
    return Experts(
        n_experts=number,
        n_active=inner.need(
            "num_experts_per_tok",
            "moe_top_k",
            "moe_topk",
            "moe_k",
            "experts_per_token",
            "top_k",
            "top_k_experts",
        ),
        intermediate=width,
        shared_intermediate=_shared(model_type, text, width),
        n_dense_layers=_n_dense(text, layers),
        every_n_layers=_every(text),
    )


def _width(model_type: str, inner: Fields) -> int:
    if model_type in _NAMED_LIKE_DENSE:
        return inner.need("intermediate_size")
    return inner.need("moe_intermediate_size", "ffn_hidden_size", "intermediate_size")


def _shared(model_type: str, text: Fields, width: int) -> int:
    """Return the summed width of the shared experts of a layer."""
    if model_type in {"llama4", "llama4_text"}:
        return width
    if model_type in {"gemma4", "gemma4_text"}:  # a dense MLP beside the experts of each layer
        return text.need("intermediate_size")
    number = text.count(
        "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"
    )
    own = text.count(*_SHARED_WIDTH)
    if own:
        return own * (number or 1)
    return (number or 0) * width


def _n_dense(text: Fields, layers: int) -> int:
    named = text.counts("mlp_only_layers")
    pattern = text.values.get("moe_layer_freq")  # 0 for a dense layer, 1 for one with experts
    if isinstance(pattern, list):
        return min(text.counts("moe_layer_freq").count(0), layers)
    first = text.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    return min(first or len(named), layers)


def _every(text: Fields) -> int:
    stated = text.count("decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period")
    return stated or 1


def read_latent(model_type: str, text: Fields) -> LatentAttention | None:
    """Return the latent attention of DeepSeek-V2 and what follows it."""
    if model_type not in _LATENT or not text.has("kv_lora_rank"):
        return None
    return LatentAttention(
        kv_lora_rank=text.need("kv_lora_rank"),
        q_lora_rank=text.count("q_lora_rank") or None,
        qk_nope_head_dim=text.need("qk_nope_head_dim"),
        qk_rope_head_dim=text.need("qk_rope_head_dim"),
        v_head_dim=text.need("v_head_dim"),
    )
