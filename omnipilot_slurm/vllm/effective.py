"""The engine as it would run: the arguments with vLLM's defaults filled in, for one era.

In: what a server is told, model and GPU facts, an era and one of its versions. Out: an `Engine`.
Called by `launch`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm import defaults
from omnipilot_slurm.vllm.grammar import before, candidates, since
from omnipilot_slurm.vllm.kv import KvShape, kv_shape
from omnipilot_slurm.vllm.overhead import Step

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.eras import Era

_DTYPE_BYTES = {"float": 4.0, "float32": 4.0}
#: layers with a window are cached to their window only from this version on
_HYBRID = since("0.9.1")
#: versions that ask each pipeline stage for the cache of the whole model
_WHOLE_MODEL_A_STAGE = since("0.14.0") & before("0.17.0")
#: tokens that V0 puts through the language model for its largest image, and image and video
_V0_IMAGE_TOKENS = 16384
_V0_VIDEO_TOKENS = 32768
#: versions that take a long-rope model's original context where none is asked
_SHORTER_DEFAULT = since("0.11.1")
_SOME_LENGTH = 4096
_BLOCK_SIZE = 16
#: Qwen3-VL's encoder cache in the versions that count a video's time stamps into it, and the
#: copies of its output at deeper layers
_STAMPED = since("0.11.0") & before("0.13.0")
_STAMPED_TOKENS = 153600
_DEEP_COPIES = 4


class Engine(NamedTuple):
    """An engine configuration of one era; `max_model_len` is 0 where vLLM takes what fits.

    `kv_factor` multiplies what a request needs (a version that checks each stage of a pipeline
    for the whole model), `graphs_in_budget` says that the estimate of CUDA graphs comes off the
    cache rather than out of the share outside the budget.
    """

    era: str
    n_gpus: int
    dtype_bytes: float
    n_layers: float
    kv: KvShape
    kv_factor: int
    max_model_len: int
    step: Step
    utilization: float
    block_size: int
    hybrid: bool
    graphs: bool
    graphs_in_budget: bool


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


def effective_engines(
    model: ModelFacts,
    gpu: GpuFacts,
    engine: EngineArgs,
    possible: tuple[tuple[str, tuple[Era, ...]], ...],
) -> list[Engine]:
    """Return the engine as each possible version runs it, in the eras that it would choose."""
    alike = _alike(model, engine)
    told = _at_versions(engine, tuple(version for version, _ in possible))
    found = []
    for (version, eras), args in zip(possible, told, strict=True):
        by_version = _by_version(version)
        length = effective_length(model, engine, by_version.bits)
        scheduling = defaults.scheduling(args, model, gpu, max_model_len=length or _SOME_LENGTH)
        of_version = alike._replace(
            max_model_len=length,
            kv_factor=alike.kv_factor if by_version.bits & _WHOLE_MODEL_A_STAGE else 1,
            utilization=alike.utilization or by_version.utilization,
            block_size=alike.block_size or _block_size(version, model, gpu),
            hybrid=alike.hybrid and by_version.hybrid,
            graphs_in_budget=by_version.graphs_in_budget,
        )
        found += [
            of_version._replace(era=era.name, step=_step(model, era, by_version.bits, scheduling))
            for era in eras
            if era.engine in scheduling.engine.values
        ]
    return found


class _ByVersion(NamedTuple):
    bits: int
    utilization: float
    graphs_in_budget: bool
    hybrid: bool


@lru_cache(maxsize=64)
def _by_version(version: str) -> _ByVersion:
    bits = candidates(version)
    return _ByVersion(
        bits=bits,
        utilization=defaults.gpu_memory_utilization(version).newest,
        graphs_in_budget=defaults.graphs_in_budget(version).newest,
        hybrid=bool(bits & _HYBRID),
    )


@lru_cache(maxsize=1024)
def _at_versions(engine: EngineArgs, versions: tuple[str, ...]) -> tuple[EngineArgs, ...]:
    return tuple(replace(engine, vllm_version=version) for version in versions)


@lru_cache(maxsize=1024)
def _alike(model: ModelFacts, args: EngineArgs) -> Engine:
    """Return what no version and no GPU changes; what they decide is 0 where it was not given."""
    stages = args.pipeline_parallel
    return Engine(
        era="",
        n_gpus=args.tensor_parallel * stages,
        dtype_bytes=dtype_bytes(args),
        n_layers=model.layers / stages,
        kv=kv_shape(
            model,
            tensor_parallel=args.tensor_parallel,
            pipeline_parallel=stages,
            kv_cache_dtype=args.kv_cache_dtype,
            dtype_bytes=dtype_bytes(args),
            context_parallel=args.decode_context_parallel * args.prefill_context_parallel,
        ),
        kv_factor=stages,
        max_model_len=0,
        step=Step(0, 0, 0, 0, 0, 0),
        utilization=args.gpu_memory_utilization or 0.0,
        block_size=args.block_size or 0,
        hybrid=args.hybrid_kv_cache is not False,
        graphs=not args.enforce_eager,
        graphs_in_budget=False,
    )


def _block_size(version: str | None, model: ModelFacts, gpu: GpuFacts) -> int:
    if model.mla is None:
        return _BLOCK_SIZE
    return defaults.block_size(version, model, gpu).newest


def _step(model: ModelFacts, era: Era, bits: int, scheduling: defaults.Scheduling) -> Step:
    tokens, seqs = scheduling.max_num_batched_tokens, scheduling.max_num_seqs
    step = Step(
        tokens=tokens.newest,
        tokens_lo=min(tokens.values),
        tokens_hi=max(tokens.values),
        seqs=seqs.newest,
        seqs_lo=min(seqs.values),
        seqs_hi=max(seqs.values),
    )
    if not model.tower_params:
        return step
    if era.engine == "V0":
        image, video = max(step.tokens, _V0_IMAGE_TOKENS), max(step.tokens_hi, _V0_VIDEO_TOKENS)
        return step._replace(tokens=image, tokens_hi=video)
    if bits & _STAMPED and (model.architecture or "").startswith("Qwen3VL"):
        return step._replace(encoded=_STAMPED_TOKENS, encoded_width=_DEEP_COPIES * model.hidden)
    return step._replace(encoded=step.tokens, encoded_width=model.hidden)
