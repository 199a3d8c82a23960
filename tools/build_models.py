"""Compile etc/models.yaml from public packages and tools/models_curated.yaml.

    pip download --no-deps -d wheels llmfit litgpt aiconfigurator-core
    for wheel in wheels/*.whl; do unzip -qo "$wheel" -d unpacked; done
    llmfit list --json > unpacked/llmfit.json      # the wheel's own program
    python tools/build_models.py unpacked etc/models.yaml

Sources, in the order of trust: the curated file; aiconfigurator-core (Apache-2.0), whose
model_configs are real config.json files; llmfit (MIT), a table of fields and of each checkpoint's
own parameter count. litgpt (Apache-2.0) is the second witness where it has the same id. A row
enters when the parameters that its fields imply, by omnipilot_slurm's own formula, are within 2 %
of the count stated for it, or when two packages state the same fields. What is wrong in a package
is left out: llmfit's KV heads of Falcon and Step, its head_dim for latent attention, rows of
gated models, whose context length it guesses.

max_model_len is what vLLM derives (see catalog/hf_config.py); llmfit's context_length follows the
same rule for the rows it read from a config.json (those with a hidden size), and its default of
4096 is taken only where the family has that length.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import Experts, LatentAttention, ModelFacts, Quantization
from omnipilot_slurm.vllm.weights import parameter_count
from omnipilot_slurm.yaml_words import trap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CURATED = Path(__file__).with_name("models_curated.yaml")
SOURCES = {
    "curated": "written by hand; implied parameters within 2 % of the published count",
    "aiconfigurator": "config.json in aiconfigurator-core 0.12.0 (Apache-2.0)",
    "llmfit": "llmfit 1.1.17 (MIT); implied parameters within 2 % of the checkpoint's own count",
    "llmfit+litgpt": "llmfit 1.1.17 (MIT) and litgpt 0.5.13 (Apache-2.0) agree",
}


@dataclass(frozen=True)
class Row:
    """One model on its way into the table."""

    facts: ModelFacts
    format: str | None
    source: str
    stated: float | None = None


def main() -> None:
    """Read the sources and write the table; print what was left out, and why, to stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("unpacked", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    curated = yaml.safe_load(CURATED.read_text())
    formats = {name: _quantization(row) for name, row in curated["quantizations"].items()}
    rows: dict[str, Row] = {}
    taken: set[str] = set()
    left_out: Counter[str] = Counter()
    pool = list(curated["configs"].values()) + [
        config for _, config in _package_configs(arguments.unpacked)
    ]
    for source in (
        from_curated(curated, formats),
        from_configs(arguments.unpacked, formats, left_out),
        from_llmfit(arguments.unpacked, pool, formats, left_out),
    ):
        for row in source:
            name = row.facts.id.casefold()
            if name not in taken:
                rows[name] = row
                taken |= {name, *(alias.casefold() for alias in row.facts.aliases)}
    arguments.target.write_text(render(list(rows.values()), curated["quantizations"]))
    shapes = {shape_of(row.facts) for row in rows.values()}
    print(f"{len(rows)} models, {len(shapes)} shapes", file=sys.stderr)
    for reason, number in left_out.most_common(25):
        print(f"left out {number:5}: {reason}", file=sys.stderr)


def _quantization(row: dict[str, Any]) -> Quantization:
    return Quantization(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    )


# --- the curated file ---------------------------------------------------------------------------


def from_curated(
    curated: dict[str, dict[str, dict[str, Any]]], formats: dict[str, Quantization]
) -> Iterator[Row]:
    """Yield the hand-written rows; one that its own count contradicts stops the build."""
    for model_id, entry in curated["models"].items():
        config = curated["configs"][str(entry["config"])]
        stated = entry.get("params")
        facts = facts_from_config(
            config,
            model_id=model_id,
            source="curated",
            stated_params=None if stated is None else float(stated),
        )
        format_name = entry.get("quantization")
        facts = replace(
            facts,
            quantization=formats[str(format_name)] if format_name else None,
            aliases=tuple(entry.get("aliases", ())),
            max_model_len=entry.get("max_model_len", facts.max_model_len),
            dtype=str(entry.get("dtype", facts.dtype)),
            **entry.get("set", {}),
        )
        yield Row(_recounted(facts), str(format_name) if format_name else None, "curated")
    for model_id, entry in curated["facts"].items():
        facts = ModelFacts(id=model_id, active_params=0.0, **entry)
        yield Row(_recounted(facts), None, "curated")


def _recounted(facts: ModelFacts) -> ModelFacts:
    """Set the totals; a stated one stays and must agree."""
    count = parameter_count(facts)
    stated = facts.params
    if facts.tower_params and stated < count.total:
        stated = count.total
    if abs(count.total - stated) > 0.02 * stated:
        raise SystemExit(f"{facts.id}: fields imply {count.total:.4g}, stated {stated:.4g}")
    return replace(facts, params=stated, active_params=count.active)


# --- aiconfigurator-core: real config.json files -------------------------------------------------


def from_configs(
    unpacked: Path, formats: dict[str, Quantization], left_out: Counter[str]
) -> Iterator[Row]:
    """Yield what the config.json files state."""
    stated = {name: count for name, count, _ in _counts(unpacked)}
    for model_id, config in _package_configs(unpacked):
        count = stated.get(model_id.casefold())
        try:
            facts = facts_from_config(config, model_id=model_id, source="aiconfigurator")
            if count and facts.kind == "multimodal" and facts.quantization is None:
                facts = facts_from_config(
                    config, model_id=model_id, source="aiconfigurator", stated_params=count
                )
        except CatalogError as error:
            left_out[f"aiconfigurator: {_kind_of(error)}"] += 1
            continue
        yield Row(facts, _format_name(facts.quantization, formats), "aiconfigurator")


def _package_configs(unpacked: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    folder = next(unpacked.rglob("model_configs"))
    for path in sorted(folder.glob("*_config.json")):
        if path.name.endswith("hf_quant_config.json"):
            continue
        config = json.loads(path.read_text())
        quantized = path.with_name(path.name.replace("_config", "_hf_quant_config"))
        if quantized.exists() and "quantization_config" not in config:
            config["quantization_config"] = json.loads(quantized.read_text())
        yield path.name.removesuffix("_config.json").replace("--", "/"), config


def _format_name(found: Quantization | None, formats: dict[str, Quantization]) -> str | None:
    """Return the name of a quantisation format, giving it one where it is new."""
    if found is None:
        return None
    for name, known in formats.items():
        if known == found:
            return name
    name = f"{found.method}-{found.scheme}-{'-'.join(found.quantizes)}".replace("_", "-")
    formats[name] = found
    return name


# --- llmfit: fields and the checkpoint's own count ----------------------------------------------


def _counts(unpacked: Path) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for row in json.loads(next(unpacked.rglob("llmfit.json")).read_text()):
        yield row["name"].casefold(), float(row["parameters_raw"]), row


#: whose checkpoints enter: those who train models, and the larger ones who quantise them
ORGANISATIONS = frozenset(
    """01-ai abacusai agentica-org ai21labs aisingapore alibaba-nlp allenai amd answerdotai apple
    arcee-ai atlaai baai baichuan-inc baidu berkeley-nest bigcode bigscience bsc-lt
    bytedance-seed casperhansen cerebras codellama cognitivecomputations cohereforai coherelabs
    common-pile cyberagent databricks deci deepcogito deepseek-ai defog dicta-il dphn eleutherai
    elyza facebook fdtn-ai fixie-ai flowai freedomintelligence garage-bainh garage-baind google
    gryphe h2oai haoranxu huggingfaceh4 huggingfacem4 huggingfacetb hugging-quants huggyllama
    ibm-granite inclusionai intel internlm intfloat iquestlab ista-daslab jetbrains jinaai
    kakaocorp kwaipilot lgai-exaone liquidai llava-hf llm-jp lmsys m-a-p meta-llama microsoft
    minimaxai mistralai mixedbread-ai moonshotai mosaicml nanbeige naver-hyperclovax
    neuralmagic nexusflow nomic-ai nousresearch nova-sky novasky-ai nvidia oleehyo open-r1
    open-thoughts openai openbmb openchat opengvlab orionstarai phind pleias primeintellect
    princeton-nlp qodo qwen rednote-hilab redhatai rinna sail salesforce sao10k sarvamai scb10x
    seallms sentence-transformers servicenow-ai skywork snowflake speakleash stabilityai
    stepfun-ai swiss-ai technoculture teknium tencent thebloke thudm tiiuae tinyllama
    togethercomputer tokyotech-llm trillionlabs unbabel upstage utter-project vagosolutions
    wizardlm wizardlmteam xiaomimimo xwin-lm zai-org zyphra unsloth quanttrio cyankiwi mlabonne
    deepreinforce-ai typhoon-ai sakanaai dicta lightonai numind nuextract osmosis-ai
    pfnet""".split()
)

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
              "cohere": 10**6}  # fmt: skip
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
    for name, stated, row in _counts(unpacked):
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


#: who publishes in bfloat16, so far as the classes above go
BFLOAT16 = frozenset(
    """qwen google ibm-granite zai-org huggingfacetb nvidia meta-llama deepseek-ai bytedance-seed
    01-ai internlm swiss-ai arcee-ai lgai-exaone tencent minimaxai xiaomimimo allenai mistralai
    openai upstage utter-project liquidai tiiuae moonshotai inclusionai baidu""".split()
)


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


#: endings of names and the format they stand for, by who uses them; first match wins
NAMED_FORMATS = (
    (r"^(qwen|tencent|zai-org|minimaxai|bytedance-seed|xiaomimimo)/.*-fp8$", "fp8-block"),
    (r"^(redhatai|neuralmagic)/.*-fp8(-dynamic)?$", "ct-fp8"),
    (r"-fp8-block$", "ct-fp8-block"),
    (r"-fp8-dynamic$", "ct-fp8"),
    (r"quantized\.w8a8$", "ct-w8a8"),
    (r"quantized\.w4a16$", "ct-w4a16"),
    (r"quantized\.w8a16$", "ct-w8a16"),
    (r"^(redhatai|neuralmagic)/.*-nvfp4$", "ct-nvfp4"),
    (r"^nvidia/.*-(nvfp4|fp4)$", "modelopt-nvfp4"),
    (r"^nvidia/.*-fp8$", "modelopt-fp8"),
    (r"^cyankiwi/.*-awq(-4bit)?$", "ct-w4a16-g32"),
    (r"-bnb-4bit$", "bnb-4bit"),
    (r"-gptq-int8$", "gptq-int8"),
    (r"-gptq(-int4)?$", "gptq-int4"),
    (r"-awq(-int4|-4bit)?$", "awq"),
)
#: words in a name that say it is quantised
QUANTISED = re.compile(
    r"fp8|fp4|mxfp|nvfp|awq|gptq|int4|int8|[-_.]w\d+a\d+|\dbit|bnb|gguf|mlx|exl2|autoround|"
    r"auto-round|hqq|quark|-ov$|onnx|qat|[-_]q\d|bf4|i\dq",
    re.IGNORECASE,
)


def format_of(model_id: str, package_format: str) -> str | None:
    """Return the quantisation format that a name stands for; None where it is 16-bit."""
    name = model_id.casefold()
    if QUANTISED.search(name) is None:
        return None if package_format in {"gguf", "safetensors"} else "unknown"
    for pattern, format_name in NAMED_FORMATS:
        if re.search(pattern, name):
            return format_name
    return "unknown"


# --- litgpt: the second witness -----------------------------------------------------------------


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


def _kind_of(error: CatalogError) -> str:
    return re.sub(r"'[^']*'|\d+(\.\d+)?", "…", str(error))[:90]


# --- the table ----------------------------------------------------------------------------------

#: what a model may differ in from its shape
_OF_MODEL = {"id", "max_model_len", "dtype", "quantization", "source", "aliases", "active_params"}


def shape_of(facts: ModelFacts) -> str:
    """Return the architecture fields of a model as they stand in the table."""
    return _flow(_shape_fields(facts))


def _shape_fields(facts: ModelFacts) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for spec in fields(ModelFacts):
        value = getattr(facts, spec.name)
        if spec.name in _OF_MODEL or value in (None, (), {}, 0, 0.0, False):
            continue
        if spec.name == "kind" and value == "text":
            continue
        shown[spec.name] = _plain(value)
    if "params" in shown and not facts.tower_params:
        shown["params"] = int(parameter_count(facts).total)
    return shown


def _plain(value: object) -> object:
    if isinstance(value, (Experts, LatentAttention, Quantization)):
        return {
            spec.name: _plain(getattr(value, spec.name))
            for spec in fields(value)
            if getattr(value, spec.name) not in (None, False)
        }
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if trap(value) else value
    return repr(value)


HEAD = """\
# Models that vLLM serves: what memory and speed follow from. Compiled by tools/build_models.py
# from public packages and tools/models_curated.yaml; do not edit it here. A site adds or corrects
# models in /etc/omnipilot/models.yaml, which lies over this file key by key:
#     schema: 1
#     models: {our-lab/Our-8B: {shape: meta-llama/Llama-3.1-8B, source: ours}}
#
# sources        where a row comes from and why it is believed
# quantizations  formats of stored weights: method is vLLM's name; group_size inputs share a scale
#                (-1: one scale a channel); block is the (output, input) tile; quantizes names the
#                kinds of layer that are stored so, all linear ones where it is absent
# shapes         architectures; fields as in omnipilot_slurm/facts.py, `extra` as at the head of
#                omnipilot_slurm/vllm/weights.py; widths in elements, lengths in tokens
# models         checkpoints: shape (or the id of a model of the same one), longest context that
#                vLLM derives, how weights are stored
"""


def render(rows: list[Row], quantizations: dict[str, dict[str, Any]]) -> str:
    """Return the whole file."""
    names = _shape_names(rows)
    lines = [HEAD, "schema: 1", "", "sources:"]
    lines += [f"  {name}: {text}" for name, text in SOURCES.items()]
    used = {row.format: row.facts.quantization for row in rows if row.format}
    lines += ["", "quantizations:"]
    for name, found in sorted(used.items()):
        fields_of = quantizations.get(name) or _format_fields(found)
        lines.append(f"  {name}: {_flow(fields_of)}")
    lines += ["", "shapes:"]
    lines += [f"  {name}: {shape}" for shape, name in sorted(names.items(), key=lambda x: x[1])]
    lines += ["", "models:"]
    for row in sorted(rows, key=lambda row: row.facts.id.casefold()):
        lines.append(f"  {_flow(row.facts.id)}: {_flow(_model_fields(row, names))}")
    return "\n".join(lines) + "\n"


def _format_fields(found: Quantization | None) -> dict[str, Any]:
    shown = _plain(found)
    assert isinstance(shown, dict)
    if len(shown["quantizes"]) == 4:
        del shown["quantizes"]
    return shown


def _model_fields(row: Row, names: dict[str, str]) -> dict[str, Any]:
    facts = row.facts
    shown: dict[str, Any] = {"shape": names[shape_of(facts)]}
    if facts.max_model_len is not None:
        shown["max_model_len"] = facts.max_model_len
    if facts.dtype != "bfloat16":
        shown["dtype"] = facts.dtype
    if row.format:
        shown["quantization"] = row.format
    if facts.aliases:
        shown["aliases"] = facts.aliases
    return shown | {"source": row.source}


def _shape_names(rows: Iterable[Row]) -> dict[str, str]:
    """Name each shape after its shortest id, unquantised and of a maker where there is one."""
    by_shape: dict[str, list[tuple[bool, bool, int, str]]] = {}
    for row in rows:
        slug = row.facts.id.split("/")[-1].casefold()
        made = row.facts.id.casefold().split("/")[0] in BFLOAT16
        rank = (not made, row.format is not None, len(slug), slug)
        by_shape.setdefault(shape_of(row.facts), []).append(rank)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for shape, slugs in sorted(by_shape.items(), key=lambda item: min(item[1])):
        slug = min(slugs)[3]
        number = 2
        name = slug
        while name in taken:
            name = f"{slug}-{number}"
            number += 1
        taken.add(name)
        names[shape] = name
    return names


if __name__ == "__main__":
    main()
