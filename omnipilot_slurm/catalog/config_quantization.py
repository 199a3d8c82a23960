"""How a checkpoint's weights are stored, from the quantization_config of its config.json.

In: the Fields of a config.json (or an hf_quant_config.json put under that key). Out: Quantization
with vLLM's name of the method, or None. Called by hf_config; pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import Quantization

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.catalog.config_fields import Fields

_FP8_BITS = 8
_MXFP4_GROUP = 32
_ALL = ("attention", "mlp", "experts", "mixer")


def read_quantization(config: Fields, text: Fields) -> Quantization | None:
    """Return how the weights are stored; None: 16 bits.

    Raises: CatalogError for a method or a width that is not known here.
    """
    found = config.inner("quantization_config", "compression_config")
    found = found or text.inner("quantization_config", "compression_config")
    if found is None or not found.values:
        return None
    method = (found.word("quant_method") or "").casefold().replace("_", "-")
    if method == "" and found.has("quantization", "producer", "quant_algo"):
        method = "modelopt"
    reader = _READERS.get(method)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise CatalogError(
            f"{found.where}: quant_method {method!r} is not known; it must be one of {known}"
        )
    return reader(found)


def _group(found: Fields, *names: str) -> int | None:
    for name in names:
        value = found.number(name)
        if value is not None:
            return int(value)
    return None


def _awq(found: Fields) -> Quantization:
    bits = found.count("bits", "w_bit") or 4
    group = _group(found, "group_size", "q_group_size")
    return Quantization(method="awq", bits=bits, scheme=f"w{bits}a16", group_size=group)


def _gptq(found: Fields) -> Quantization:
    bits = found.need("bits")
    return Quantization(
        method="gptq",
        bits=bits,
        scheme=f"w{bits}a16",
        group_size=_group(found, "group_size"),
        quantizes_head=found.flag("lm_head", default=False),
    )


def _auto_round(found: Fields) -> Quantization:
    bits = found.need("bits")
    group = _group(found, "group_size")
    return Quantization(method="auto-round", bits=bits, scheme=f"w{bits}a16", group_size=group)


def _fp8(found: Fields) -> Quantization:
    skipped = found.words("modules_to_not_convert")
    return Quantization(
        method="fp8",
        bits=8,
        scheme="w8a8-fp8",
        block=_tile(found.counts("weight_block_size")),
        quantizes=_kinds(skipped),
    )


def _fbgemm(found: Fields) -> Quantization:
    skipped = found.words("modules_to_not_convert")
    return Quantization(method="fbgemm_fp8", bits=8, scheme="w8a8-fp8", quantizes=_kinds(skipped))


def _mxfp4(found: Fields) -> Quantization:
    skipped = found.words("modules_to_not_convert")
    return Quantization(
        method="mxfp4", bits=4, scheme="mxfp4", group_size=_MXFP4_GROUP, quantizes=_kinds(skipped)
    )


def _bitsandbytes(found: Fields) -> Quantization:
    if found.flag("load_in_4bit", default=False):
        return Quantization(method="bitsandbytes", bits=4, scheme="nf4", group_size=64)
    return Quantization(method="bitsandbytes", bits=8, scheme="int8")


def _modelopt(found: Fields) -> Quantization:
    inner = found.inner("quantization") or found
    algorithm = (inner.word("quant_algo") or "").upper()
    skipped = inner.words("exclude_modules") or inner.words("ignore")
    if algorithm == "NVFP4":
        group = inner.count("group_size") or 16
        return Quantization(
            method="modelopt_fp4", bits=4, scheme="nvfp4", group_size=group,
            quantizes=_kinds(skipped),
        )  # fmt: skip
    if algorithm.startswith("FP8"):
        return Quantization(method="modelopt", bits=8, scheme="w8a8-fp8", quantizes=_kinds(skipped))
    raise CatalogError(f"{inner.where}: quant_algo {algorithm!r} must be FP8 or NVFP4")


def _compressed(found: Fields) -> Quantization:
    """Read the first group of a compressed-tensors file; its groups differ by layer kind only."""
    groups = found.inner("config_groups")
    first = None if groups is None else groups.inner(*groups.values)
    weights = None if first is None else first.inner("weights")
    if first is None or weights is None:
        raise CatalogError(f"{found.where}: config_groups has no weights to read")
    bits = weights.need("num_bits")
    group = _group(weights, "group_size")
    if weights.word("strategy") == "channel":
        group = -1
    return Quantization(
        method="compressed-tensors",
        bits=bits,
        scheme=_scheme(bits, weights, first.inner("input_activations")),
        group_size=group,
        block=_tile(weights.counts("block_structure")),
        quantizes=_kinds(found.words("ignore")),
    )


def _scheme(bits: int, weights: Fields, activations: Fields | None) -> str:
    kind = "fp8" if weights.word("type") == "float" else "int8"
    if kind == "fp8" and bits < _FP8_BITS:
        return "mxfp4" if weights.count("group_size") == _MXFP4_GROUP else "nvfp4"
    if activations is None:
        return f"w{bits}a16"
    wide = activations.count("num_bits") or 8
    return f"w{bits}a{wide}-{'fp8' if activations.word('type') == 'float' else 'int8'}"


def _tile(sides: tuple[int, ...]) -> tuple[int, int] | None:
    try:
        rows, columns = sides
    except ValueError:
        return None
    return rows, columns


def _kinds(skipped: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of layer that remain when these module names are left out.

    A kind counts as left out when its last projection is: by a pattern, or singly in so many
    layers that it is the rule. Norms, biases, routers and indexers of a kind do not count.
    """
    names = [name.casefold() for name in skipped]
    return tuple(kind for kind in _ALL if not _left_out(names, _LAST_PROJECTION.get(kind)))


def _left_out(names: list[str], last_projection: re.Pattern[str] | None) -> bool:
    if last_projection is None:
        return False
    hits = [name for name in names if last_projection.search(name)]
    return any("*" in name for name in hits) or len(hits) > _SINGLE_LAYERS


#: so many single modules of a kind, or fewer, are exceptions rather than the rule
_SINGLE_LAYERS = 16

_LAST_PROJECTION = {
    "attention": re.compile(r"(self_attn|\.attn)(\.?\*.*|\.o_proj)?$|mixer\.o_proj$"),
    "mixer": re.compile(r"(linear_attn|mamba)(\.?\*.*|\.out_proj)?$|mixer\.out_proj$"),
    "mlp": re.compile(r"shared_experts?(\.?\*.*|\.down_proj)?$"),
}

_READERS = {
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "intel/auto-round": _auto_round,
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
}
