"""Whether quantised weights load: the method, the card's capability, groups, blocks, tiles.

In: ModelFacts, EngineArgs, the card's capability, the versions in question. Out: Checks, and the
quantization in force. Called by `launch`.
Source: model_executor/layers/quantization of the versions in options.py. TP cuts the inputs of the
row-parallel layers (down and output projections); a cut through a group of weights that share a
scale, or through a block of block-wise FP8, is refused.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from omnipilot_slurm.facts import Quantization
from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.methods import (
    METHODS,
    has_method,
    least_capability,
    refusing_capability,
)
from omnipilot_slurm.vllm.checks.outcome import by_version, fails_if, fails_in, outcome
from omnipilot_slurm.vllm.checks.parallel import sharded_widths
from omnipilot_slurm.vllm.grammar import EVERY, before, since
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check

_GROUP = 128
#: what a --quantization makes of 16-bit weights (or, for awq and gptq, of weights not known here)
_BY_FLAG = {
    "fp8": Quantization(method="fp8", bits=8, scheme="w8a8-fp8"),
    "fp8_per_tensor": Quantization(method="fp8_per_tensor", bits=8, scheme="w8a8-fp8"),
    "fp8_per_channel": Quantization(method="fp8_per_channel", bits=8, scheme="w8a8-fp8"),
    "fp8_per_block": Quantization(
        method="fp8_per_block", bits=8, scheme="w8a8-fp8", block=(_GROUP, _GROUP)
    ),
    "ptpc_fp8": Quantization(method="ptpc_fp8", bits=8, scheme="w8a8-fp8"),
    "experts_int8": Quantization(method="experts_int8", bits=8, quantizes=("experts",)),
    "int8_per_channel_weight_only": Quantization(method="int8_per_channel_weight_only", bits=8),
    "bitsandbytes": Quantization(method="bitsandbytes", bits=4, scheme="nf4", group_size=64),
    "awq": Quantization(method="awq", bits=4, scheme="w4a16", group_size=_GROUP),
    "awq_marlin": Quantization(method="awq", bits=4, scheme="w4a16", group_size=_GROUP),
    "auto_awq": Quantization(method="awq", bits=4, scheme="w4a16", group_size=_GROUP),
    "gptq": Quantization(method="gptq", bits=4, scheme="w4a16", group_size=_GROUP),
    "gptq_marlin": Quantization(method="gptq", bits=4, scheme="w4a16", group_size=_GROUP),
    "auto_gptq": Quantization(method="gptq", bits=4, scheme="w4a16", group_size=_GROUP),
    "mxfp4": Quantization(method="mxfp4", bits=4, scheme="mxfp4", group_size=32),
}
_GROUPED = frozenset({"awq", "gptq", "auto-round", "compressed-tensors"})
_MARLIN_CAPABILITY = 80
_TILE = 128
#: AWQ layers that Marlin cannot tile stop these versions; later ones take the plain kernel
_NO_FALLBACK = before("0.7.3")
#: blocks of experts that TP cuts stop these versions; later ones refine or pad them
_CUT_EXPERT_BLOCKS = before("0.29.0")
_CUT_ONLINE_BLOCKS = since("0.20.0") & before("0.25.1")
_LEAST_REFINED = 32
#: --dtype bfloat16 with kernels that take float16 only
_HALF_ONLY = {"awq": before("0.24.0"), "gptq": before("0.22.0")}
_BFLOAT16 = frozenset({"bfloat16"})
_AWQ = frozenset({"awq", "awq_marlin", "auto_awq", "moe_wna16"})
_GPTQ = frozenset(
    {"gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "auto_gptq", "gptq_bitblas", "moe_wna16"}
)
#: how files are stored -> what --quantization may say of them, besides the same word
_ALSO = {"awq": _AWQ, "gptq": _GPTQ, "auto-round": _AWQ | _GPTQ | {"inc"}, "fbgemm_fp8": {"fp8"}}
_ANY = "humming"
_SAID_OF = frozenset({*_BY_FLAG, *_AWQ, *_GPTQ, "compressed-tensors"})
#: methods that read how the files are stored; 16-bit ones do not say
_OF_FILES = _AWQ | _GPTQ | {"compressed-tensors", "auto-round"}
_HALF = frozenset({"half", "float16"})


def quantization_in_force(model: ModelFacts, engine: EngineArgs) -> Quantization | None:
    """Return how weights are stored: as the checkpoint says, else as the flag does."""
    if model.quantization is not None:
        return model.quantization
    return None if engine.quantization is None else _BY_FLAG.get(engine.quantization)


def is_online(model: ModelFacts, engine: EngineArgs) -> bool:
    """Return whether 16-bit weights are quantised while they load."""
    return model.quantization is None and engine.quantization is not None


def quantization_checks(
    model: ModelFacts, engine: EngineArgs, capability: int | None, here: int
) -> Iterator[Check]:
    """Yield what applies to quantised weights; `capability` as 80 for 8.0, None: not known."""
    method = engine.quantization
    if method is None and model.quantization is not None:
        method = model.quantization.method
    if method is None:
        return
    if engine.model == model.id and engine.quantization is not None:
        yield _stored_so(model, engine.quantization)
    quantization = quantization_in_force(model, engine)
    scheme = None if quantization is None else quantization.scheme
    if capability is not None:
        yield _capable(method, scheme, capability, here)
    if quantization is not None:
        yield from _cuts(model, engine, quantization, capability, here)
    yield from _activations(method, engine, here)
    yield _known(method, here)


def _stored_so(model: ModelFacts, asked: str) -> Check:
    """Return whether the files are stored as --quantization says; of a name that is known only."""
    stored = model.quantization
    text = f"the files are stored in 16 bits, --quantization {asked} reads quantised ones"
    wrong = asked in _OF_FILES
    if stored is not None:
        text = f"the files are stored as {stored.method}, --quantization says {asked}"
        alike = {stored.method, _ANY, *_ALSO.get(stored.method, ())}
        wrong = asked in _SAID_OF and asked not in alike
    return outcome("quantization_config", CheckKind.FLAG, fails_if(condition=wrong), text)


def _cuts(
    model: ModelFacts,
    engine: EngineArgs,
    quantization: Quantization,
    capability: int | None,
    here: int,
) -> Iterator[Check]:
    """Yield what TP must not cut through."""
    if quantization.block is not None:
        yield from _blocks(model, engine, quantization, here)
    elif quantization.method in _GROUPED and (quantization.group_size or 0) > 0:
        yield from _groups(model, engine, quantization)
    if quantization.method == "awq" and _takes_marlin(engine, capability):
        yield from _tiles(model, engine, here)


def method_checks(
    method: str | None, scheme: str | None, capability: int | None, here: int
) -> Iterator[Check]:
    """Yield what a method asks of the version and of the card, whatever the model."""
    if method is not None:
        yield _known(method, here)
        if capability is not None:
            yield _capable(method, scheme, capability, here)


def _known(method: str, here: int) -> Check:
    refusing = EVERY & ~has_method(method)
    state = fails_in(refusing, here)
    text = f"quantization {method}"
    if method not in METHODS:
        state, text = Starts.UNSURE, f"{text} is not a method of any version known here"
    elif state is not Starts.STARTS:
        text += " is missing" if state is Starts.FAILS else " is missing in some"
        text += " of the versions in question"
    return outcome("quantization_method", CheckKind.FLAG, state, text, refusing & here)


def _capable(method: str, scheme: str | None, capability: int, here: int) -> Check:
    least, most = least_capability(method, scheme)
    refusing = refusing_capability(method, scheme, capability)
    needs = (
        _dotted(least) if least == most else f"{_dotted(least)} ({_dotted(most)} in some versions)"
    )
    named = f"{method} {scheme}" if method == "compressed-tensors" and scheme else method
    text = f"{named} needs compute capability {needs}, the card has {_dotted(capability)}"
    return by_version("quantization_capability", CheckKind.CAPABILITY, refusing, here, text)


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _activations(method: str, engine: EngineArgs, here: int) -> Iterator[Check]:
    if method in _HALF_ONLY and engine.dtype in _BFLOAT16 and engine.quantization == method:
        text = f"{method} kernels take float16, --dtype is {engine.dtype}"
        yield by_version("quantization_dtype", CheckKind.FLAG, _HALF_ONLY[method], here, text)
    if method == "mxfp4" and engine.dtype in _HALF:
        text = f"mxfp4 takes bfloat16, --dtype is {engine.dtype}"
        yield outcome("quantization_dtype", CheckKind.FLAG, Starts.FAILS, text)


def _row_inputs(model: ModelFacts, *, experts: bool) -> Iterator[tuple[str, int]]:
    """Yield the inputs that TP cuts, before the cut, by name."""
    yield from sharded_widths(model, expert_parallel=not experts).items()
    if model.mla is None and model.n_state_layers < model.layers:
        yield "attention output", model.heads * model.head_dim


def _groups(model: ModelFacts, engine: EngineArgs, quantization: Quantization) -> Iterator[Check]:
    group, tensor_parallel = quantization.group_size or _GROUP, engine.tensor_parallel
    if tensor_parallel == 1:
        return
    for name, width in _row_inputs(model, experts=False):
        shard = width // tensor_parallel
        text = (
            f"{name} {width} / TP {tensor_parallel} = {shard} is "
            f"{'' if shard % group == 0 else 'not '}a multiple of the group of {group} weights"
        )
        state = fails_if(condition=shard % group != 0)
        yield outcome("quantization_group", CheckKind.DIVISIBILITY, state, text)


def _blocks(
    model: ModelFacts, engine: EngineArgs, quantization: Quantization, here: int
) -> Iterator[Check]:
    block_out, block_in = quantization.block or (_GROUP, _GROUP)
    tensor_parallel = engine.tensor_parallel
    online = quantization.method == "fp8_per_block"
    for name, width in _row_inputs(model, experts=not engine.expert_parallel):
        shard = width // tensor_parallel
        rest = shard % block_out or (shard % block_in if tensor_parallel > 1 else 0)
        refusing = EVERY
        if online:
            refusing = _CUT_ONLINE_BLOCKS
        elif name == "experts' width" and gcd(shard, block_out, block_in) >= _LEAST_REFINED:
            refusing = _CUT_EXPERT_BLOCKS
        text = (
            f"{name} {width} / TP {tensor_parallel} = {shard} is "
            f"{'not ' if rest else ''}a multiple of the {block_out} x {block_in} block"
        )
        refusing = refusing if rest else 0
        yield by_version("quantization_block", CheckKind.DIVISIBILITY, refusing, here, text)


def _takes_marlin(engine: EngineArgs, capability: int | None) -> bool:
    if engine.quantization == "awq_marlin":
        return True
    return engine.quantization is None and (capability or 0) >= _MARLIN_CAPABILITY


def _tiles(model: ModelFacts, engine: EngineArgs, here: int) -> Iterator[Check]:
    for name, width in _row_inputs(model, experts=False):
        shard = width // engine.tensor_parallel
        if shard % _TILE:
            cut = f"{name} {width} / TP {engine.tensor_parallel} = {shard}"
            text = f"{cut} is not a multiple of the {_TILE} that Marlin takes"
            kind = CheckKind.DIVISIBILITY
            yield by_version("quantization_tile", kind, _NO_FALLBACK, here, text)
