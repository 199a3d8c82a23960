"""What build_models.py takes from llmfit, with litgpt as a second witness.

In: the unpacked packages and configs to borrow widths from. Out: Row after Row, each borne out by
its checkpoint's own parameter count. Called by build_models.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from build_models_names import BFLOAT16, ORGANISATIONS, format_of
from build_models_table import Row

from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.vllm.weights import parameter_count

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from omnipilot_slurm.facts import ModelFacts, Quantization

#: architectures that the generic reading is right for, and the class that vLLM runs
CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM", "mixtral": "MixtralForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM", "phi": "PhiForCausalLM",
    "internlm2": "InternLM2ForCausalLM", "olmo": "OlmoForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "stablelm": "StableLmForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM", "granite": "GraniteForCausalLM",
    "cohere": "CohereForCausalLM", "baichuan": "BaichuanForCausalLM", "opt": "OPTForCausalLM",
    "glm4": "Glm4ForCausalLM", "glm": "GlmForCausalLM", "seed_oss": "SeedOssForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "nemotron": "NemotronForCausalLM",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration", "olmoe": "OlmoeForCausalLM",
    "phimoe": "PhiMoEForCausalLM", "granitemoe": "GraniteMoeForCausalLM",
    "apertus": "ApertusForCausalLM", "arcee": "ArceeForCausalLM", "mimo": "MiMoForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM", "exaone": "ExaoneForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM", "minimax_m2": "MiniMaxM2ForCausalLM",
    "bert": "BertModel", "xlm-roberta": "XLMRobertaModel", "roberta": "RobertaModel",
    "nanbeige": "LlamaForCausalLM", "iquestcoder": "LlamaForCausalLM",
}  # fmt: skip
#: classes that tie their embeddings whatever a count says, and below which width others do
TIED_BELOW = {"qwen2": 2100, "qwen3": 2600, "gemma": 10**6, "gemma2": 10**6, "gemma3_text": 10**6,
              "cohere": 10**6, "qwen2_vl": 2100, "qwen2_5_vl": 2100}  # fmt: skip
#: the towers of Qwen2-VL and Qwen2.5-VL have 0.67e9
QWEN_TOWER_BELOW = 0.8e9
#: what a class slides by where the row does not say
SLIDING: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {"sliding_window": 512},
    "starcoder2": {"sliding_window": 4096},
}
#: names of checkpoints that answer with a vector or a score
POOLING = re.compile(r"embed|rerank|ranker|reward|-prm-|classif|sentiment|[-/](e5|gte|bge|sfr)-")


def from_llmfit(
    unpacked: Path,
    pool: list[dict[str, Any]],
    formats: dict[str, Quantization],
    left_out: Counter[str],
) -> Iterator[Row]:
    """Yield the rows of llmfit that hold together."""
    witness = _litgpt(unpacked)
    for name, stated, row in stated_counts(unpacked):
        if name.split("/")[0] not in ORGANISATIONS or not row.get("hidden_size"):
            continue
        model_id, kind = str(row["name"]), str(row["architecture"])
        format_name = format_of(model_id, str(row["format"]))
        if format_name == "unknown":
            left_out["llmfit: quantised in a way that its name does not say"] += 1
            continue
        facts = _plain_reading(model_id, kind, stated, row) or _borrowed(
            model_id, kind, stated, row, pool
        )
        if facts is None:
            left_out[f"llmfit: fields of {kind} do not imply the stated count"] += 1
            continue
        facts = replace(facts, dtype=_dtype_of(model_id, kind, format_name))
        facts = replace(facts, quantization=formats[format_name] if format_name else None)
        if POOLING.search(name):
            facts = replace(facts, kind="pooling")
        source = "llmfit+litgpt" if witness.get(name) == _witnessed(facts) else "llmfit"
        yield Row(facts, format_name, source)


def _dtype_of(model_id: str, kind: str, format_name: str | None) -> str:
    """Return the 16-bit format of a checkpoint, "unknown" where no source states it."""
    if format_name is not None and format_name.startswith(("awq", "gptq")):
        return "float16"
    publisher = model_id.casefold().split("/")[0]
    known = publisher in BFLOAT16 or (publisher == "microsoft" and kind == "phi3")
    return "bfloat16" if known and kind not in {"phi", "gpt_neox", "opt"} else "unknown"


def _plain_reading(
    model_id: str, kind: str, stated: float, row: dict[str, Any]
) -> ModelFacts | None:
    """Read a row by itself, with separate or tied embeddings as its count confirms."""
    if kind not in CLASSES:
        return None
    separate, joined = (_read(_config_of(kind, row, tied=tied), model_id) for tied in (False, True))
    if separate is None or joined is None:
        return None
    if int(row["hidden_size"]) >= TIED_BELOW.get(kind, 0):
        return _confirmed(separate, stated) or _confirmed(joined, stated)
    # a small checkpoint may store a tied matrix twice: its class decides
    if joined.kind == "multimodal":
        once = _confirmed(joined, stated)
        if once is not None and once.tower_params < QWEN_TOWER_BELOW:
            return once
        return _confirmed(joined, stated - joined.vocab * joined.hidden)
    twice = _confirmed(separate, stated) is not None
    return _confirmed(joined, parameter_count(joined).total if twice else stated)


def _borrowed(
    model_id: str, kind: str, stated: float, row: dict[str, Any], pool: list[dict[str, Any]]
) -> ModelFacts | None:
    """Read a row whose other widths are those of a config.json with the same outer ones."""
    for config in pool:
        text = config.get("text_config") or config
        if _outer(text) != _outer(row) or config.get("model_type", kind) != kind:
            continue
        inner = {"vocab_size": row["vocab_size"], "max_position_embeddings": _context_of(kind, row)}
        made = {key: value for key, value in config.items() if key != "quantization_config"}
        made = made | {"text_config": text | inner} if "text_config" in made else made | inner
        facts = _read(made, model_id)
        found = None if facts is None else _confirmed(facts, stated, predicts_more=True)
        if found is not None:
            return found
    return None


def _outer(text: dict[str, Any]) -> tuple[object, ...]:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    return tuple(text.get(name) for name in names)


def _read(config: dict[str, Any], model_id: str) -> ModelFacts | None:
    try:
        return facts_from_config(config, model_id=model_id, source="llmfit")
    except CatalogError:
        return None


def _confirmed(
    facts: ModelFacts, stated: float, *, predicts_more: bool = False
) -> ModelFacts | None:
    """Return the facts where the stated count bears them out.

    A checkpoint's own count may hold the layers of multi-token prediction, which do not load: up
    to 5 % more than the fields imply, and then the implied count is the one kept.
    """
    implied = parameter_count(replace(facts, tower_params=0.0)).total
    if facts.kind == "multimodal" and predicts_more and facts.tower_params:
        stated = parameter_count(facts).total
    elif facts.kind == "multimodal":
        tower = stated - implied
        if not 0.2e9 <= tower <= 1.2e9:
            return None
        facts = replace(facts, tower_params=tower)
    elif abs(implied - stated) > 0.02 * stated:
        if not (predicts_more and 0 < stated - implied < 0.05 * stated):
            return None
        stated = implied
    return replace(facts, params=stated, active_params=parameter_count(facts).active)


def _config_of(kind: str, row: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """Return a row in the words of a config.json."""
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "num_hidden_layers": row["num_hidden_layers"],
        "hidden_size": row["hidden_size"],
        "num_attention_heads": row["num_attention_heads"],
        "num_key_value_heads": row["num_key_value_heads"],
        "head_dim": row["head_dim"],
        "vocab_size": row["vocab_size"],
        "max_position_embeddings": _context_of(kind, row),
        "tie_word_embeddings": tied,
    }
    width = row.get("moe_intermediate_size")
    if row.get("is_moe") and row.get("num_experts"):
        config |= {
            "num_experts": row["num_experts"],
            "num_experts_per_tok": row["active_experts"],
            "moe_intermediate_size": width,
            "intermediate_size": width,
            "shared_expert_intermediate_size": row.get("shared_expert_intermediate_size"),
        }
    elif width:
        config["intermediate_size"] = width
    return config | SLIDING.get(kind, {})


#: checkpoints whose context is 4096, which is also what llmfit writes where it knows none
OWN_4096 = re.compile(
    r"qwen2(\.5)?-math|olmoe|olmo-2|olmo-.*-0[47]24|granite-3\.0-|phi-(mini|tiny)-moe|-4k|"
    r"llama-?2|yi-|baichuan|stablelm|minitron|deepseek-(math|coder-7b)|solar",
    re.IGNORECASE,
)
LLAMA_2_VOCABS = {32000, 32001, 32002, 32016}


def _context_of(kind: str, row: dict[str, Any]) -> int | None:
    """Return the context length of a row; None where llmfit's own cannot be relied on.

    It multiplies by a rope factor that vLLM does not (llama3, longrope, Gemma 3), so what is
    longer than the family's own length is put right, or left out.
    """
    context, name = int(row["context_length"]), str(row["name"])
    if context == 4096:
        own = OWN_4096.search(name) or (kind == "llama" and row["vocab_size"] in LLAMA_2_VOCABS)
        return context if own else None
    if kind == "llama" and 128256 <= int(row["vocab_size"]) <= 128300 and context > 32768:
        scaled = re.search(r"3[._][123]|distill", name, re.IGNORECASE)
        return 131072 if context == 131072 or scaled else None
    if kind.startswith("gemma3") and context > 131072:
        return 131072
    if kind in {"llama", "apertus", "qwen3", "exaone4", "olmo3"} and context > 262144:
        return None
    return context


def stated_counts(unpacked: Path) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Yield the id in lower case, the checkpoint's own count and the row of each checkpoint."""
    for row in json.loads(next(unpacked.rglob("llmfit.json")).read_text()):
        yield row["name"].casefold(), float(row["parameters_raw"]), row


def _litgpt(unpacked: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return layers, width, heads and KV heads by id, read from litgpt's own table."""
    path = next(unpacked.rglob("litgpt/config.py"))
    spec = importlib.util.spec_from_file_location("litgpt_config", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    found = {}
    for entry in module.configs:
        hub = entry["hf_config"]
        made = module.Config(**entry)
        fields_of = (made.n_layer, made.n_embd, made.n_head, made.n_query_groups)
        found[f"{hub['org']}/{hub['name']}".casefold()] = fields_of
    return found


def _witnessed(facts: ModelFacts) -> tuple[int, int, int, int]:
    return facts.layers, facts.hidden, facts.heads, facts.kv_heads
