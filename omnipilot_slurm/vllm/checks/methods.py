"""Which quantization methods vLLM has, by version, and the compute capability each needs.

In: a method's name, a scheme, the versions in question. Out: bits and numbers. Called by
`checks.quantization` and by whoever names a method's limits. Data from the registry and the
get_min_capability of the versions in options.py.
"""

from __future__ import annotations

from typing import NamedTuple

from omnipilot_slurm.vllm.grammar import EVERY, before, since


class Method(NamedTuple):
    """The versions that have a method, and its least capability from a version on (A100 = 80)."""

    versions: int
    least: tuple[tuple[int, int], ...]


def _method(first: str, end: str | None, *least: tuple[str, int]) -> Method:
    versions = since(first) & (before(end) if end else EVERY)
    return Method(versions, tuple((since(version), capability) for version, capability in least))


_OLDEST = "0.5.5"
_MARLIN = ((_OLDEST, 80), ("0.14.1", 75))
METHODS = {
    "aqlm": _method(_OLDEST, "0.10.1", (_OLDEST, 60)),
    "auto-round": _method("0.9.0", "0.15.0", (_OLDEST, 60)),
    "auto_awq": _method("0.24.0", None, (_OLDEST, 75)),
    "auto_gptq": _method("0.22.0", None, (_OLDEST, 60)),
    "awq": _method(_OLDEST, None, (_OLDEST, 75)),
    "awq_marlin": _method(_OLDEST, None, *_MARLIN),
    "bitblas": _method("0.8.5", "0.16.0", (_OLDEST, 70)),
    "bitsandbytes": _method(_OLDEST, "0.28.0", (_OLDEST, 70)),
    "compressed-tensors": _method(_OLDEST, None, (_OLDEST, 70)),
    "deepspeedfp": _method(_OLDEST, "0.15.0", (_OLDEST, 60)),
    "experts_int8": _method(_OLDEST, None, (_OLDEST, 80)),
    "fbgemm_fp8": _method(_OLDEST, None, (_OLDEST, 80)),
    "fp8": _method(_OLDEST, None, *_MARLIN),
    "fp8_per_block": _method("0.20.0", None, (_OLDEST, 75)),
    "fp8_per_channel": _method("0.24.0", None, (_OLDEST, 75)),
    "fp8_per_tensor": _method("0.20.0", None, (_OLDEST, 75)),
    "fp_quant": _method("0.11.1", None, (_OLDEST, 100)),
    "gguf": _method(_OLDEST, "0.24.0", (_OLDEST, 60)),
    "gptq": _method(_OLDEST, None, (_OLDEST, 60)),
    "gptq_bitblas": _method("0.8.5", "0.16.0", (_OLDEST, 70), ("0.9.0", 80)),
    "gptq_marlin": _method(_OLDEST, None, *_MARLIN),
    "gptq_marlin_24": _method(_OLDEST, "0.16.0", (_OLDEST, 80)),
    "hqq": _method("0.6.5", "0.15.0", (_OLDEST, 80)),
    "humming": _method("0.20.0", None, (_OLDEST, 75)),
    "inc": _method("0.10.0", None, (_OLDEST, 60)),
    "int8_per_channel_weight_only": _method("0.20.0", None, (_OLDEST, 75)),
    "marlin": _method(_OLDEST, "0.10.2", (_OLDEST, 80)),
    "modelopt": _method("0.6.2", None, (_OLDEST, 89), ("0.27.1", 80)),
    "modelopt_fp4": _method("0.9.0", None, (_OLDEST, 80), ("0.14.1", 75)),
    "modelopt_mixed": _method("0.17.0", None, (_OLDEST, 89), ("0.24.0", 75)),
    "modelopt_mxfp8": _method("0.16.0", None, (_OLDEST, 100), ("0.20.0", 80)),
    "moe_wna16": _method("0.7.2", None, (_OLDEST, 70)),
    "mxfp4": _method("0.10.1", None, (_OLDEST, 80)),
    "mxfp8": _method("0.19.0", None, (_OLDEST, 100), ("0.20.0", 75)),
    "nvfp4": _method("0.8.0", "0.9.0", (_OLDEST, 100)),
    "ptpc_fp8": _method("0.7.3", "0.19.0", (_OLDEST, 80)),
    "qqq": _method(_OLDEST, "0.10.2", (_OLDEST, 80)),
    "quark": _method("0.7.0", None, (_OLDEST, 70)),
    "rtn": _method("0.9.2", "0.15.0", (_OLDEST, 80)),
    "squeezellm": _method(_OLDEST, "0.6.2", (_OLDEST, 70)),
    "torchao": _method("0.8.4", None, (_OLDEST, 75)),
}
#: of compressed-tensors by scheme; W8A8-FP8 falls back to weights only where the card lacks it
_SCHEMES = {
    "w4a16": ((_OLDEST, 80), ("0.12.0", 75)),
    "w8a16": ((_OLDEST, 80), ("0.12.0", 75)),
    "w8a8-int8": ((_OLDEST, 75),),
    "w8a8-fp8": ((_OLDEST, 80), ("0.16.0", 75)),
    "w4a8-fp8": ((_OLDEST, 90),),
    "nvfp4": ((_OLDEST, 80), ("0.16.0", 75)),
    "mxfp4": ((_OLDEST, 80),),
}
_BY_SCHEME = {
    scheme: tuple((since(version), capability) for version, capability in least)
    for scheme, least in _SCHEMES.items()
}


def has_method(method: str) -> int:
    """Return the bits of the versions that have a method; of all, for a name that none has."""
    found = METHODS.get(method)
    return EVERY if found is None else found.versions


def refusing_capability(method: str, scheme: str | None, capability: int) -> int:
    """Return the bits of the versions in which a card of this capability is below the method's."""
    bits = 0
    for least in _least(method, scheme):
        for i, (versions, needed) in enumerate(least):
            ended = least[i + 1][0] if i + 1 < len(least) else 0
            if capability < needed:
                bits |= versions & ~ended
    return bits


def least_capability(method: str, scheme: str | None) -> tuple[int, int]:
    """Return the least capability that any and that every version asks for."""
    needed = [n for least in _least(method, scheme) for _, n in least] or [0]
    per_rule = [
        (min(n for _, n in rule), max(n for _, n in rule)) for rule in _least(method, scheme)
    ]
    return max((low for low, _ in per_rule), default=0), max(needed)


def _least(method: str, scheme: str | None) -> list[tuple[tuple[int, int], ...]]:
    found = METHODS.get(method)
    rules = [] if found is None else [found.least]
    if method == "compressed-tensors" and scheme in _BY_SCHEME:
        rules.append(_BY_SCHEME[scheme])
    return rules
