"""The engine as it would run: the arguments with vLLM's defaults filled in, for one era.

In: what a server is told, model and GPU facts, an era and one of its versions. Out: an `Engine`,
and the `Split` over GPUs, which no era changes. Called by `planned`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm import defaults
from omnipilot_slurm.vllm.encoder import Batch, encoding
from omnipilot_slurm.vllm.eras import in_question, possible_eras
from omnipilot_slurm.vllm.grammar import before, candidates, since
from omnipilot_slurm.vllm.kv import CACHE_BYTES, KvShape, kv_shape, whole_heads
from omnipilot_slurm.vllm.overhead import Step, Widths, widths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.eras import Era

_DTYPE_BYTES = {"float": 4.0, "float32": 4.0}
#: layers with a window are cached to their window only from this version on
_HYBRID = since("0.9.1")
#: versions that ask each pipeline stage for the cache of the whole model
_WHOLE_MODEL_A_STAGE = since("0.14.0") & before("0.17.0")
#: tokens that V0 puts through the language model for the largest items of a tower not known
_V0_IMAGE_TOKENS = 16384
_V0_VIDEO_TOKENS = 32768
#: versions that take a long-rope model's original context where none is asked
_SHORTER_DEFAULT = since("0.11.1")
_SOME_LENGTH = 4096
#: versions that cache whole heads of latent attention, padded to 256, then to 192
_NO_LATENT = before("0.7.1")
_PADDED = before("0.7.0")


class Engine(NamedTuple):
    """An engine configuration of one era; `max_model_len` is 0 where vLLM takes what fits.

    `kv_factor` multiplies what a request needs (a version that checks each stage of a pipeline
    for the whole model), `graphs_in_budget` says that the estimate of CUDA graphs comes off the
    cache rather than out of the share outside the budget, `whole_head_dim` is that of the heads
    which a version caches in place of latent attention's latent (0: the latent).
    """

    era: str
    n_layers: float
    kv_factor: int
    max_model_len: int
    step: Step
    utilization: float
    block_size: int
    hybrid: bool
    graphs: bool
    graphs_in_budget: bool
    whole_head_dim: int = 0


class Split(NamedTuple):
    """What TP and PP leave on one GPU of `n_gpus`: the widths of its tensors and of its cache.

    `whole_heads` is what a token takes for each unit of head_dim where heads are cached whole.
    """

    n_gpus: int
    wide: Widths
    cache: KvShape
    whole_heads: float = 0.0


def dtype_bytes(engine: EngineArgs) -> float:
    """Return the bytes of an activation; `auto` is 16-bit for every checkpoint."""
    return _DTYPE_BYTES.get(engine.dtype, 2.0)


def effective_length(model: ModelFacts, engine: EngineArgs, here: int) -> int:
    """Return the context length in force, 0 for `auto` and where neither side says one.

    `here` holds the versions in question: newer ones default some models to a shorter context.
    """
    if engine.max_model_len is not None:
        return max(engine.max_model_len, 0)
    shorter = model.extra.get("default_max_model_len")
    if shorter is not None and not here & ~_SHORTER_DEFAULT:
        return int(shorter)
    return model.max_model_len or 0


def split(model: ModelFacts, engine: EngineArgs) -> Split:
    """Return what TP and PP leave on one GPU."""
    return Split(
        n_gpus=engine.tensor_parallel * engine.pipeline_parallel,
        wide=widths(
            model,
            engine.tensor_parallel,
            dtype_bytes(engine),
            whole_tower=engine.mm_encoder_data_parallel,
        ),
        cache=kv_shape(
            model,
            tensor_parallel=engine.tensor_parallel,
            pipeline_parallel=engine.pipeline_parallel,
            kv_cache_dtype=engine.kv_cache_dtype,
            dtype_bytes=dtype_bytes(engine),
            context_parallel=engine.decode_context_parallel * engine.prefill_context_parallel,
        ),
        whole_heads=whole_heads(
            model,
            tensor_parallel=engine.tensor_parallel,
            pipeline_parallel=engine.pipeline_parallel,
            element=CACHE_BYTES.get(engine.kv_cache_dtype, dtype_bytes(engine)),
        ),
    )


@lru_cache(maxsize=1024)
def effective_engines(model: ModelFacts, gpu: GpuFacts, engine: EngineArgs) -> tuple[Engine, ...]:
    """Return the engine as each version in question runs it, in the eras that it would choose.

    TP changes nothing of it: with that set to 1 the arms of a decision share what is returned.
    """
    here = in_question(engine.vllm_version, model.architecture)
    return tuple(
        of_era
        for version, eras in possible_eras(engine.vllm_version, model.architecture)
        for of_era in _of_version(model, gpu, replace(engine, vllm_version=version), eras, here)
    )


def _of_version(
    model: ModelFacts, gpu: GpuFacts, engine: EngineArgs, eras: Sequence[Era], here: int
) -> Iterator[Engine]:
    version, stages = engine.vllm_version, engine.pipeline_parallel
    bits = candidates(version)
    length = effective_length(model, engine, bits)
    utilization = engine.gpu_memory_utilization
    for era in eras:
        alike = here & era.versions or bits
        scheduling = defaults.scheduling_of(
            engine,
            model,
            gpu,
            max_model_len=length or _SOME_LENGTH,
            engine=era.engine,
            versions=alike,
        )
        if scheduling is None:
            continue
        yield Engine(
            era=era.name,
            n_layers=model.layers / stages,
            kv_factor=stages if bits & _WHOLE_MODEL_A_STAGE else 1,
            max_model_len=length,
            step=_step(
                model,
                engine,
                era,
                alike,
                length=length,
                scheduling=scheduling,
            ),
            utilization=defaults.gpu_memory_utilization(version).newest
            if utilization is None
            else utilization,
            block_size=engine.block_size or defaults.block_size(version, model, gpu).newest,
            hybrid=bool(bits & _HYBRID) and engine.hybrid_kv_cache is not False,
            graphs=not engine.enforce_eager,
            graphs_in_budget=defaults.graphs_in_budget(version).newest,
            whole_head_dim=_whole_head_dim(alike) if model.mla is not None else 0,
        )


def _whole_head_dim(versions: int) -> int:
    """Return the head_dim that all of some versions cache of latent attention's whole heads."""
    if versions & ~_NO_LATENT:
        return 0
    return 192 if versions & ~_PADDED else 256


def _step(
    model: ModelFacts,
    engine: EngineArgs,
    era: Era,
    versions: int,
    *,
    length: int,
    scheduling: defaults.Scheduling,
) -> Step:
    """Return an era's profiling step; `versions` are all of the era that are in question."""
    tokens, seqs = scheduling.max_num_batched_tokens, scheduling.max_num_seqs
    batches = (
        Batch(min(tokens.values), min(seqs.values), length),
        Batch(tokens.newest, seqs.newest, length),
        Batch(max(tokens.values), max(seqs.values), length),
    )
    v1 = era.engine == "V1"
    step = Step(*batches, encoding=encoding(model, engine, versions, batches, v1=v1))
    if step.encoding is not None or v1:
        return step
    least, usual, most = batches
    return Step(
        least._replace(seqs=1),
        usual._replace(tokens=max(usual.tokens, _V0_IMAGE_TOKENS)),
        most._replace(tokens=max(most.tokens, _V0_VIDEO_TOKENS)),
        None,
    )
