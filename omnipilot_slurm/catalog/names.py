"""The name of a checkpoint, taken apart so that spellings of one model meet and models do not.

In: what stands behind `vllm serve`. Out: ModelName: the words that must be equal (family, version,
size, modality, date), the words by which siblings of one architecture differ (instruct, chat),
and the words that say how the weights are stored (fp8, awq). Called by lookup; pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from omnipilot_slurm.facts import Quantization

#: words by which checkpoints of one architecture differ; dropped before names are compared
_VARIANTS = frozenset({"instruct", "chat", "it", "pt", "base", "hf"})
#: words that say how weights are stored
_STORAGE = re.compile(
    r"(fp|nvfp|mxfp|int|bf)(4|8|16)(a16)?|awq|gptq|bnb|[48]bit|w\d+a\d+|dynamic|block|quantized|autoround"
)
_HUB_FOLDER = re.compile(r"(?:^|/)models--(?P<org>[^/]+?)--(?P<name>[^/]+)(?:/|$)")
_SIZE = re.compile(r"\d+(\.\d+)?[bm]")
_PATH_START = ("/", "./", "../", "~", "$", "file://")
#: a longer name is no model's
MAX_LENGTH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """A name in parts; two names mean one architecture when their `words` are equal.

    `base` is the name without its publisher, `variants` tell fine-tunes apart, `storage` how the
    weights are kept; `folder` is True where the name was a path, and its last folder but one may
    then be no publisher at all.
    """

    base: str
    org: str | None
    words: tuple[str, ...]
    variants: frozenset[str]
    storage: frozenset[str]
    folder: bool = False


def parse_name(text: str) -> ModelName:
    """Take a name or a path apart; a hub cache folder becomes the id it was filled from."""
    stripped = text.strip()[:MAX_LENGTH].rstrip("/")
    cached = _HUB_FOLDER.search(stripped)
    if cached is not None:
        return replace(_parse(f"{cached['org']}/{cached['name']}"), folder=True)
    if stripped.startswith(_PATH_START) or stripped.count("/") > 1:
        return replace(_parse("/".join(stripped.split("/")[-2:])), folder=True)
    return _parse(stripped)


def _parse(name: str) -> ModelName:
    org, slash, base = name.rpartition("/")
    spelled = base.casefold().replace("quantized.", "quantized-").replace("auto-round", "autoround")
    raw = [word for word in re.split(r"[-_ :]+", spelled) if word]
    storage = frozenset(word for word in raw if _STORAGE.fullmatch(word))
    plain = [word for word in raw if word not in storage]
    variants = frozenset(plain[1:]) & _VARIANTS
    words = [part for word in plain if word not in variants for part in _split(word)]
    if words[:2] == ["meta", "llama"]:
        words = words[1:]
    return ModelName(
        base=base,
        org=org.casefold() if slash else None,
        words=tuple(words),
        variants=variants,
        storage=storage,
    )


def _split(word: str) -> list[str]:
    """Split llama3.1 as llama 3.1, so that both spellings meet."""
    return re.findall(r"[a-z]+|[^a-z][^-_]*", word) if word[:1].isalpha() else [word]


def says_size(name: ModelName) -> bool:
    """Tell whether a name says how large its model is (70b, 8x7b, 125m)."""
    return any(_SIZE.search(word) for word in name.words)


_COMPRESSED = frozenset({"redhatai", "neuralmagic", "nm-testing"})
_BLOCKWISE = frozenset({"qwen", "zai-org", "tencent", "minimaxai", "bytedance-seed", "deepseek-ai"})


def storage_of(name: ModelName) -> Quantization | str | None:
    """Return how a name says its weights are stored; None: 16 bits; a text: why it is not known.

    The group size stays open where the publisher chooses it: it decides what TP may be, and
    publishers also pad widths to suit it.
    """
    words = name.storage - {"dynamic", "block", "quantized"}
    org = name.org or ""
    if words <= {"bf16", "fp16"}:
        return None
    if words == {"fp8"}:
        return _fp8(org, blockwise="block" in name.storage)
    if words in ({"awq"}, {"awq", "int4"}, {"awq", "4bit"}):
        return Quantization(method="awq", bits=4, scheme="w4a16")
    if words in ({"gptq"}, {"gptq", "int4"}, {"gptq", "4bit"}):
        return Quantization(method="gptq", bits=4, scheme="w4a16")
    if words in ({"gptq", "int8"}, {"gptq", "8bit"}):
        return Quantization(method="gptq", bits=8, scheme="w8a16")
    if words == {"bnb", "4bit"}:
        return Quantization(method="bitsandbytes", bits=4, scheme="nf4", group_size=64)
    if words in ({"nvfp4"}, {"fp4"}) and org == "nvidia":
        return Quantization(method="modelopt_fp4", bits=4, scheme="nvfp4", group_size=16)
    if words in ({"nvfp4"}, {"nvfp4a16"}) and org in _COMPRESSED:
        return Quantization(method="compressed-tensors", bits=4, scheme="nvfp4", group_size=16)
    found = _COMPRESSED_SCHEMES.get(next(iter(words))) if len(words) == 1 else None
    if found is not None:
        return found
    return f"how {'-'.join(sorted(words))} is stored depends on the publisher"


def _fp8(org: str, *, blockwise: bool) -> Quantization:
    if org == "nvidia":
        return Quantization(method="modelopt", bits=8, scheme="w8a8-fp8")
    if org in _BLOCKWISE:
        return Quantization(method="fp8", bits=8, scheme="w8a8-fp8", block=(128, 128))
    if org in _COMPRESSED and not blockwise:
        return Quantization(method="compressed-tensors", bits=8, scheme="w8a8-fp8", group_size=-1)
    block = (128, 128) if blockwise else None
    return Quantization(method="fp8", bits=8, scheme="w8a8-fp8", block=block)


_COMPRESSED_SCHEMES = {
    "w4a16": Quantization(method="compressed-tensors", bits=4, scheme="w4a16"),
    "w8a16": Quantization(method="compressed-tensors", bits=8, scheme="w8a16", group_size=-1),
    "w8a8": Quantization(method="compressed-tensors", bits=8, scheme="w8a8-int8", group_size=-1),
}
