"""What each family of architectures has in common and its config.json does not say.

In: a model_type. Out: Family. The defaults are those that the family's own loader takes for a key
that a checkpoint leaves out. Called by hf_config; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.catalog.config_fields import Fields

_LLAMA_3_VOCAB = 128256
_LLAMA_2_VOCAB = 32000


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family's name (the cost model's), whether its MLP is gated, defaults for keys left out."""

    name: str
    gated: bool = True
    tied: bool = False
    kind: str = "text"
    learned_positions: bool = False
    quirks: Callable[[Fields], dict[str, float]] | None = None


def family_name(family: Family, model_id: str, vocab: int, longest: int | None) -> str:
    """Return the family; generations that share a model_type are told apart by their tokens."""
    name = model_id.casefold()
    if family.name == "llama":
        if vocab == _LLAMA_3_VOCAB:
            return "llama3"
        if vocab == _LLAMA_2_VOCAB:
            return "llama2" if (longest or 0) > 2048 else "llama1"  # noqa: PLR2004 - Llama 1
        if "yi-" in name:
            return "yi"
    if family.name == "qwen2" and "qwen1.5" in name:
        return "qwen1.5"
    return family.name


def _gemma4(text: Fields) -> dict[str, float]:
    """Gemma 4: layers that attend to all have wider heads, fewer of them, and no values."""
    extra: dict[str, float] = {}
    if text.has("global_head_dim"):
        extra["sliding_head_dim"] = text.need("head_dim")
    if text.has("num_global_key_value_heads"):
        extra["sliding_kv_heads"] = text.need("num_key_value_heads")
    if text.flag("attention_k_eq_v", default=False):
        extra["k_is_v"] = 1
    return extra


def _mimo_v2(text: Fields) -> dict[str, float]:
    """MiMo-V2: values are narrower than keys, sliding layers have more KV heads."""
    extra: dict[str, float] = {"v_head_dim": text.need("v_head_dim")}
    if text.has("swa_num_key_value_heads"):
        extra["sliding_kv_heads"] = text.need("swa_num_key_value_heads")
    return extra


def _nemotron_nas(text: Fields) -> dict[str, float]:
    """Llama-Nemotron: each layer's MLP has a width of its own, some have none."""
    hidden = text.need("hidden_size")
    blocks = [block.inner("ffn") for block in text.inners("block_configs")]
    ratios = [0.0 if ffn is None else ffn.number("ffn_mult") or 0.0 for ffn in blocks]
    widths = [-(-int(2 * ratio * hidden / 3) // 256) * 256 for ratio in ratios]
    return {"n_mlp_layers": sum(widths) / max(widths)} if any(widths) else {}


def _nemotron_h(text: Fields) -> dict[str, float]:
    """Nemotron 3 Super: experts read a latent vector narrower than the model."""
    latent = text.count("moe_latent_size")
    return {"expert_hidden": latent} if latent else {}


_GATED = {
    "llama": "llama", "mllama": "llama", "mllama_text_model": "llama", "mistral": "mistral",
    "mixtral": "mistral", "ministral3": "mistral",
    "qwen": "qwen", "qwen2": "qwen2", "qwen2_moe": "qwen2", "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen3": "qwen3", "qwen3_moe": "qwen3", "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3", "qwen3_vl_moe_text": "qwen3", "qwen3_omni_moe_text": "qwen3",
    "qwen3_next": "qwen3-next", "qwen3_5_text": "qwen3.5", "qwen3_5_moe_text": "qwen3.5",
    "qwen3_5": "qwen3.5", "qwen3_5_moe": "qwen3.5",
    "phi3": "phi", "phimoe": "phi", "internlm": "internlm", "internlm2": "internlm",
    "internlm3": "internlm", "deepseek": "deepseek", "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek", "deepseek_v32": "deepseek", "kimi_k2": "kimi", "kimi_k25": "kimi",
    "glm": "glm", "glm4": "glm", "glm4_moe": "glm", "glm4_moe_lite": "glm",
    "glm_moe_dsa": "glm", "chatglm": "glm", "glm4v_text": "glm", "glm4v_moe_text": "glm",
    "glm4v_moe": "glm",
    "gpt_oss": "gpt-oss", "llama4": "llama4", "llama4_text": "llama4", "dbrx": "dbrx",
    "olmo": "olmo", "olmo2": "olmo", "olmo3": "olmo", "olmoe": "olmo", "flex_olmo": "olmo",
    "baichuan": "baichuan", "aquila": "aquila", "deci": "decilm", "exaone": "exaone",
    "exaone4": "exaone", "exaone_moe": "exaone", "stablelm": "stablelm", "solar": "solar",
    "orion": "orion", "xverse": "xverse", "seed_oss": "seed-oss", "mimo": "mimo",
    "hunyuan_v1_dense": "hunyuan", "hunyuan_v1_moe": "hunyuan", "minimax_m2": "minimax",
    "minimax": "minimax", "minimax_text_01": "minimax", "minimax_m1": "minimax",
    "jamba": "jamba", "bamba": "bamba", "falcon_h1": "falcon-h1", "lfm2": "lfm2",
    "lfm2_moe": "lfm2", "bailing_moe": "bailing", "dots1": "dots1", "afmoe": "afmoe",
    "arctic": "arctic", "telechat": "telechat", "ernie4_5_moe": "ernie",
    "granitemoe": "granite", "nanbeige": "nanbeige",
}  # fmt: skip
_GATED_TIED = {
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3",
    "gemma4": "gemma4", "gemma4_text": "gemma4", "cohere": "cohere", "cohere2": "cohere",
    "granite": "granite", "granitemoehybrid": "granite", "minicpm": "minicpm",
    "minicpm3": "minicpm", "smollm3": "smollm", "ernie4_5": "ernie",
}  # fmt: skip
_TWO = {
    "gpt_neox": "neox", "gptj": "gptj", "codegen": "codegen", "phi": "phi",
    "nemotron": "nemotron", "nemotron_h": "nemotron-h", "apertus": "apertus", "arcee": "arcee",
    "persimmon": "persimmon",
}  # fmt: skip
_TWO_TIED = {
    "falcon": "falcon", "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "bloom": "bloom",
    "mpt": "mpt", "starcoder2": "starcoder",
}  # fmt: skip
_TWO_TIED_POSITIONS = {"gpt2": "gpt2", "gpt_bigcode": "starcoder", "opt": "opt"}
_ENCODERS = {
    "bert": "bert", "roberta": "bert", "xlm-roberta": "bert", "camembert": "bert",
}  # fmt: skip

FAMILIES: dict[str, Family] = (
    {key: Family(name=name) for key, name in _GATED.items()}
    | {key: Family(name=name, tied=True) for key, name in _GATED_TIED.items()}
    | {key: Family(name=name, gated=False) for key, name in _TWO.items()}
    | {key: Family(name=name, gated=False, tied=True) for key, name in _TWO_TIED.items()}
    | {
        key: Family(name=name, gated=False, tied=True, learned_positions=True)
        for key, name in _TWO_TIED_POSITIONS.items()
    }
    | {
        key: Family(name=name, gated=False, tied=True, kind="pooling", learned_positions=True)
        for key, name in _ENCODERS.items()
    }
    | {
        "gemma4": Family(name="gemma4", tied=True, quirks=_gemma4),
        "gemma4_text": Family(name="gemma4", tied=True, quirks=_gemma4),
        "mimo_v2_flash": Family(name="mimo", quirks=_mimo_v2),
        "nemotron-nas": Family(name="nemotron-nas", quirks=_nemotron_nas),
        "nemotron_h": Family(name="nemotron-h", gated=False, quirks=_nemotron_h),
    }
)
