"""The config.json of a checkpoint to ModelFacts.

In: the parsed JSON and what is known besides (a name, the size of the weights). Out: ModelFacts,
or a CatalogError that says which field is missing, wrong or of an architecture that is not known
here: a wrong guess is worse than none. Called by the worker that reads model folders and by the
tool that compiles the catalog; pure.

The maximum length follows vLLM's rule (config/model.py): the smallest of the length keys, times
the rope scaling factor unless it is su, longrope or llama3; yarn starts from its
original_max_position_embeddings; Gemma 3 is already scaled. A larger model_max_length is kept
beside it, since newer versions let a user ask for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.config_experts import read_experts, read_latent
from omnipilot_slurm.catalog.config_families import FAMILIES, Family, family_name
from omnipilot_slurm.catalog.config_fields import MAX_LAYERS, Fields
from omnipilot_slurm.catalog.config_layers import LayerKinds, read_layers
from omnipilot_slurm.catalog.config_quantization import read_quantization
from omnipilot_slurm.catalog.config_towers import tower_params
from omnipilot_slurm.catalog.config_vision import read_tower
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import ModelFacts
from omnipilot_slurm.vllm.weights import n_moe_layers, parameter_count

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_LENGTHS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
#: classes named like encoders that generate text
_TEXT_DESPITE_NAME = frozenset(
    {"AquilaModel", "ChatGLMModel", "GPT2LMHeadModel", "JAISLMHeadModel", "QWenLMHeadModel"}
)
#: how far a checkpoint's own count may be from the implied one, and how far above it where the
#: checkpoint holds layers for multi-token prediction
_TOLERANCE_FRAC = 0.02
_MORE_FRAC = 0.05
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32"}


def facts_from_config(
    config: Mapping[str, object],
    *,
    model_id: str,
    source: str,
    stated_params: float | None = None,
) -> ModelFacts:
    """Return the facts that a config.json states; `stated_params` is the checkpoint's own count.

    Raises: CatalogError when a field that the formulas need is missing or wrong, the architecture
    is not known, or the fields imply another size than the stated one (by more than 2 %).
    """
    root = Fields(config)
    text = _text_part(root)
    model_type = text.word("model_type") or root.word("model_type") or ""
    family = _family(root, text, model_type, stated_params)
    facts = _language_model(root, text, model_type, family, model_id=model_id, source=source)
    return _sized(facts, root, stated_params)


def _text_part(root: Fields) -> Fields:
    """Return the part that describes the language model, which may be nested twice (Omni)."""
    inner = root.inner(*_TEXT_PARTS)
    nested = None if inner is None else inner.inner(*_TEXT_PARTS)
    return nested or inner or root


def _family(root: Fields, text: Fields, model_type: str, stated: float | None) -> Family:
    family = FAMILIES.get(model_type)
    if family is not None:
        return family
    if stated is not None and text.has("intermediate_size") and text.has("num_hidden_layers"):
        return Family(name=model_type or "unknown")  # the size tells whether the general rule holds
    named = root.words("architectures")[:1] or (model_type or "no model_type",)
    raise CatalogError(
        f"config.json is of the architecture {named[0]!r}, which is not known here",
        hint="add the model to models.yaml in /etc/omnipilot",
    )


def _language_model(
    root: Fields, text: Fields, model_type: str, family: Family, *, model_id: str, source: str
) -> ModelFacts:
    layers = _layers(text)
    hidden = text.need("hidden_size", "n_embd", "d_model")
    heads = text.need("num_attention_heads", "n_head", "n_heads")
    kinds = read_layers(model_type, text, layers, hidden)
    longest, length_notes = _longest(text, model_type)
    experts = read_experts(model_type, text, layers)
    facts = ModelFacts(
        id=model_id,
        family=family_name(family, model_id, text.count("vocab_size") or 0, longest),
        architecture=next(iter(root.words("architectures")), None),
        kind=_kind(root, family),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(model_type, text, heads),
        head_dim=_head_dim(text, hidden, heads),
        intermediate=_intermediate(model_type, text, hidden),
        vocab=text.need("vocab_size", "padded_vocab_size"),
        params=0.0,
        active_params=0.0,
        max_model_len=longest,
        tied_embeddings=_tied(root, text, family),
        dtype=_dtype(root, text),
        quantization=read_quantization(root, text),
        experts=experts,
        mla=read_latent(model_type, text),
        n_sliding_layers=kinds.n_sliding,
        sliding_window=kinds.sliding_window,
        n_state_layers=kinds.n_state,
        state_bytes_per_layer=kinds.state_bytes,
        source=source,
        extra=_extra(family, text, kinds, length_notes, hidden),
    )
    return _without_idle_window(_without_idle_width(facts))


def _without_idle_width(facts: ModelFacts) -> ModelFacts:
    """Where no layer is dense, take the width of an expert for the one that stands unused."""
    if facts.experts is None or n_moe_layers(facts) < facts.layers:
        return facts
    return replace(facts, intermediate=facts.experts.intermediate)


def _layers(text: Fields) -> int:
    spelled = text.word("hybrid_override_pattern")  # Nemotron-H: one letter a layer
    listed = len(spelled or text.words("layers_block_type"))
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    return min(text.count(*names) or listed or text.need(*names), MAX_LAYERS)


def _without_idle_window(facts: ModelFacts) -> ModelFacts:
    """Drop a window that no request can outgrow."""
    window, longest = facts.sliding_window, facts.max_model_len
    if window is None or longest is None or window < longest:
        return facts
    return replace(facts, sliding_window=None, n_sliding_layers=0)


def _sized(facts: ModelFacts, root: Fields, stated: float | None) -> ModelFacts:
    """Fill in towers and totals; what a multimodal checkpoint has beyond its text is its towers."""
    more = _predicts_more(root)
    if facts.kind == "multimodal":
        towers = tower_params(facts, root, None if more else stated)
        facts = replace(facts, tower_params=towers, tower=read_tower(root))
    count = parameter_count(facts)
    if stated is not None and facts.kind != "multimodal" and not _near(count.total, stated, root):
        raise CatalogError(
            f"config.json implies {count.total / 1e9:.2f} billion parameters, "
            f"the checkpoint has {stated / 1e9:.2f}",
            hint="its architecture differs from what is known here",
        )
    whole = count.total if stated is None or more or facts.kind == "multimodal" else stated
    return replace(facts, params=whole, active_params=count.active)


def _predicts_more(root: Fields) -> bool:
    """Tell whether the checkpoint holds layers for multi-token prediction, which do not load."""
    text = _text_part(root)
    return text.has("mtp_num_hidden_layers", "num_nextn_predict_layers")


def _near(implied: float, stated: float, root: Fields) -> bool:
    """Tell whether a checkpoint's count bears out the implied one; more if it predicts more."""
    most = _MORE_FRAC if _predicts_more(root) else _TOLERANCE_FRAC
    return -_TOLERANCE_FRAC * stated <= stated - implied <= most * stated


def _kind(root: Fields, family: Family) -> str:
    if family.kind != "text":
        return family.kind
    towers = ("vision_config", "audio_config", "vision_tower_config", "thinker_config")
    names = root.words("architectures")
    if root.has(*towers, "visual", "mm_vision_tower") or any(
        name.endswith("ForConditionalGeneration") for name in names
    ):
        return "multimodal"
    pooling = any(name.endswith(("Model", "Classification")) for name in names)
    return "pooling" if pooling and not _TEXT_DESPITE_NAME.intersection(names) else "text"


def _kv_heads(model_type: str, text: Fields, heads: int) -> int:
    """Return the KV heads; by family where config.json says it otherwise than by a number."""
    if model_type in {"gpt_bigcode", "falcon", "RefinedWebModel", "RefinedWeb"}:
        if text.flag("new_decoder_architecture", default=False):
            return text.count("num_kv_heads", "n_head_kv") or heads
        return 1 if text.flag("multi_query", default=True) else heads
    if model_type == "chatglm" and not text.flag("multi_query_attention", default=False):
        return heads
    inner = text.inner("attn_config")
    nested = None if inner is None else inner.count("kv_n_heads")
    grouped = [block.inner("attention") for block in text.inners("block_configs")]
    sizes = [block.count("n_heads_in_group") for block in grouped if block is not None]
    if any(sizes):  # Llama-Nemotron: how many heads share one KV head, layer by layer
        return heads // min(size for size in sizes if size)
    a_layer = text.counts("num_key_value_heads_per_layer")
    if a_layer:  # DeciLM: vLLM gives every layer the most that one has
        return max(a_layer)
    names = ("num_global_key_value_heads", "num_key_value_heads", "n_head_kv", "num_kv_heads",
             "multi_query_group_num", "num_attention_groups")  # fmt: skip
    return nested or text.count(*names) or heads


def _head_dim(text: Fields, hidden: int, heads: int) -> int:
    """Return the width of a head in the layers that attend to all; of a query head where latent."""
    if text.has("kv_lora_rank"):
        return text.need("qk_nope_head_dim") + (text.count("qk_rope_head_dim") or 0)
    stated = text.count("global_head_dim", "head_dim", "kv_channels", "attention_head_dim")
    if stated:
        return stated
    if hidden % heads:
        raise CatalogError(f"{text.where} has no head_dim and {heads} heads do not divide {hidden}")
    return hidden // heads


def _intermediate(model_type: str, text: Fields, hidden: int) -> int:
    """Return the width of a dense layer; 0 where no layer is dense and none is stated."""
    if model_type in {"llama4", "llama4_text"}:
        return text.need("intermediate_size_mlp")
    names = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner", "block_ff_dim",
             "shared_intermediate_size")  # fmt: skip
    width = text.count(*names)
    if model_type == "qwen" and width:  # Qwen 1 states both halves of the gated width
        return width // 2
    if model_type == "granitemoehybrid":
        return text.count("shared_intermediate_size") or width or 0
    ratios = [block.inner("ffn") for block in text.inners("block_configs")]
    if ratios:
        widths = [ffn.number("ffn_mult") or 0.0 for ffn in ratios if ffn is not None]
        widest = max(widths, default=0.0)
        return -(-int(2 * widest * hidden / 3) // 256) * 256
    inner = text.inner("ffn_config")
    if inner is not None:
        return inner.count("ffn_hidden_size") or 0
    ratio = text.count("expansion_ratio") or 4
    return width if width is not None else ratio * hidden


def _tied(root: Fields, text: Fields, family: Family) -> bool:
    default = root.flag("tie_word_embeddings", default=family.tied)
    return text.flag("tie_word_embeddings", default=default)


def _dtype(root: Fields, text: Fields) -> str:
    stated = root.word("dtype", "torch_dtype") or text.word("dtype", "torch_dtype") or "bfloat16"
    return _DTYPES.get(stated.removeprefix("torch."), "bfloat16")


def _longest(text: Fields, model_type: str) -> tuple[int | None, dict[str, float]]:
    """Return the longest context that vLLM derives, and what else is said of it."""
    stated = [text.count(name) for name in _LENGTHS]
    lengths = [length for length in stated if length]
    if not lengths:
        return None, {}
    longest = min(lengths)
    notes: dict[str, float] = {}
    wider = text.count("model_max_length") or 0
    if wider > longest:
        notes["model_max_length"] = wider
    scaling = text.inner("rope_scaling", "rope_parameters")
    if scaling is None or "gemma3" in model_type:
        return longest, notes
    kind = scaling.word("rope_type", "type") or "default"
    if kind in {"longrope", "su"}:
        original = text.count("original_max_position_embeddings")
        if original and original < longest:
            notes["default_max_model_len"] = original
    if kind in {"su", "longrope", "llama3", "default", "mrope"}:
        return longest, notes
    if kind == "yarn":
        longest = scaling.count("original_max_position_embeddings") or longest
    return int(longest * (scaling.number("factor") or 1.0)), notes


def _extra(
    family: Family, text: Fields, kinds: LayerKinds, notes: dict[str, float], hidden: int
) -> dict[str, float]:
    extra: dict[str, float] = {}
    if not family.gated:
        extra["mlp_matrices"] = 2
    if family.learned_positions:
        positions = text.count("max_position_embeddings", "n_positions") or 0
        extra["other_params"] = float(positions * hidden)
    for name, key in (("index_n_heads", "index_heads"), ("index_head_dim", "index_head_dim")):
        value = text.count(name)
        if value:
            extra[key] = value
    if family.quirks is not None:
        extra |= family.quirks(text)
    return extra | kinds.extra | notes
