"""What tensor and pipeline parallelism must divide: heads, KV heads, widths, layers.

In: ModelFacts, EngineArgs. Out: Checks. Called by `launch`. The rules hold in every version:
config/model.py (heads, layers) and the model classes' assertions (KV heads, widths).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.vllm.checks.outcome import fails_if, outcome
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check

_MOST_GPUS = 64


def parallel_checks(model: ModelFacts, engine: EngineArgs) -> Iterator[Check]:
    """Yield what applies to a model under this split."""
    tensor_parallel = engine.tensor_parallel
    if tensor_parallel > 1:
        yield heads_check(model.heads, tensor_parallel)
        if model.mla is None:
            yield _kv_heads(model.kv_heads, tensor_parallel)
        yield from _widths(model, engine)
    if engine.pipeline_parallel > 1:
        yield _layers(model.layers, engine.pipeline_parallel)


def heads_check(heads: int, tensor_parallel: int) -> Check:
    """Return whether attention heads divide; of a model only their number is needed."""
    rest = heads % tensor_parallel
    text = f"{heads} attention heads / TP {tensor_parallel} leaves {rest}"
    if rest:
        text += f"; TP must be one of {', '.join(map(str, divisors(heads)))}"
    return outcome("heads", CheckKind.DIVISIBILITY, fails_if(condition=rest != 0), text)


def divisors(n: int) -> list[int]:
    """Return the divisors of n up to the largest TP that anyone runs."""
    return [d for d in range(1, min(n, _MOST_GPUS) + 1) if n % d == 0]


def _kv_heads(kv_heads: int, tensor_parallel: int) -> Check:
    many, few = max(kv_heads, tensor_parallel), min(kv_heads, tensor_parallel)
    rest = many % few
    text = f"{kv_heads} KV heads and TP {tensor_parallel}: {many} / {few} leaves {rest}"
    return outcome("kv_heads", CheckKind.DIVISIBILITY, fails_if(condition=rest != 0), text)


def _widths(model: ModelFacts, engine: EngineArgs) -> Iterator[Check]:
    for name, width in sharded_widths(model, expert_parallel=engine.expert_parallel).items():
        rest = width % engine.tensor_parallel
        text = f"{name} {width} / TP {engine.tensor_parallel} leaves {rest}"
        yield outcome("widths", CheckKind.DIVISIBILITY, fails_if(condition=rest != 0), text)


def sharded_widths(model: ModelFacts, *, expert_parallel: bool) -> dict[str, int]:
    """Return the MLP widths that TP splits, by name; whole experts are not split."""
    experts = model.experts
    if experts is None:
        return {"intermediate width": model.intermediate}
    found = {}
    if experts.n_dense_layers or experts.every_n_layers > 1:
        found["intermediate width"] = model.intermediate
    if experts.shared_intermediate:
        found["shared experts' width"] = experts.shared_intermediate
    if not expert_parallel:
        found["experts' width"] = experts.intermediate
    return found


def _layers(layers: int, pipeline_parallel: int) -> Check:
    text = f"{layers} layers in {pipeline_parallel} stages"
    state = fails_if(condition=pipeline_parallel > layers)
    return outcome("layers", CheckKind.DIVISIBILITY, state, text)
