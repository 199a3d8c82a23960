"""What vLLM does when an option is not given, by version, GPU and way of starting it.

In: a version string (None: not known) and, where it matters, model, GPU and the options that are
given. Out: a Default: the value, or the values that the versions in question differ in. Called by
the launch checks, the memory plan, the features and the messages.
Source: arg_utils.py, config/scheduler.py, config/cache.py and envs.py of the versions in
options.py; what was read where is in docs/vllm-notes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from omnipilot_slurm.vllm.grammar import before, candidates, since

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs

T = TypeVar("T", int, float, str, bool)

_LONG_CONTEXT = 32768
_V0_FLOOR = 2048
_V0_POOLING_FLOOR = 32768
_V0_MULTIMODAL_FLOOR = 5120
_LARGE_GPU_GIB = 70
_HUGE_GPU_GIB = 160
_FIRST_V1_CAPABILITY = (8, 0)
_HOPPER = (9, 0)
_BLACKWELL = (10, 0)


@dataclass(frozen=True, slots=True)
class Default(Generic[T]):
    """The values an option may have when it is not given; certain when there is just one."""

    values: tuple[T, ...]

    @property
    def certain(self) -> bool:
        """Whether all versions in question have the same value."""
        return len(self.values) == 1

    @property
    def newest(self) -> T:
        """The value of the newest version in question."""
        return self.values[-1]


class Usage(StrEnum):
    """What starts the engine: `vllm serve` or api_server, Python's LLM(), the legacy server."""

    SERVER = "server"
    LLM = "llm"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How many tokens and sequences an engine takes in one step, given or by default."""

    engine: Default[str]
    chunked_prefill: Default[bool]
    max_num_batched_tokens: Default[int]
    max_num_seqs: Default[int]


def default_model(version: str | None) -> Default[str]:
    """Return the model that a server without one loads."""
    return _by_version(version, ("0.5.5", "facebook/opt-125m"), ("0.10.0", "Qwen/Qwen3-0.6B"))


def gpu_memory_utilization(version: str | None) -> Default[float]:
    """Return the share of the GPU's memory that a server claims."""
    return _by_version(version, ("0.5.5", 0.90), ("0.20.0", 0.92))


def graphs_in_budget(version: str | None) -> Default[bool]:
    """Return whether the estimate of CUDA graphs comes off the cache's memory."""
    return _by_version(version, ("0.5.5", False), ("0.20.0", True))


def block_size(version: str | None, model: ModelFacts, gpu: GpuFacts) -> Default[int]:
    """Return the tokens in a cache block; the MLA kernels of Hopper and Blackwell want more."""
    if model.mla is None or gpu.capability is None or gpu.capability < _HOPPER:
        return Default((16,))
    if gpu.capability < _BLACKWELL:
        return _by_version(version, ("0.5.5", 16), ("0.8.0", 64))
    return Default((64, 128))


def prefix_caching(version: str | None) -> Default[bool]:
    """Return whether finished prefixes are kept, for generation; V1 does by itself."""
    return _by_version(version, ("0.5.5", False), ("0.8.0", True))


def scheduling(
    args: EngineArgs,
    model: ModelFacts,
    gpu: GpuFacts,
    *,
    max_model_len: int,
    usage: Usage = Usage.SERVER,
) -> Scheduling:
    """Return the effective scheduling values, over all versions that args.vllm_version may mean.

    `max_model_len` is the effective one. A value that is given on the command line is returned as
    it is, except where a version overrides it.
    """
    here = candidates(args.vllm_version)
    return _spread(
        _settings(args, model, gpu, max_model_len=max_model_len, usage=usage, versions=here)
    )


def scheduling_of(
    args: EngineArgs,
    model: ModelFacts,
    gpu: GpuFacts,
    *,
    max_model_len: int,
    engine: str,
    versions: int,
) -> Scheduling | None:
    """Return a server's scheduling by V0 or V1 in any of `versions`, None where none runs it."""
    settings = _settings(
        args, model, gpu, max_model_len=max_model_len, usage=Usage.SERVER, versions=versions
    )
    run = [setting for setting in settings if setting.engine == engine]
    return _spread(run) if run else None


class _Era(NamedTuple):
    """Versions that schedule alike.

    `large` says which GPUs get the large values: named h100 or h200 ("name"), from 70 GiB on
    ("memory"), the same without the A100 ("not_a100"), or that and more from 160 GiB on ("huge");
    `many_seqs` that all of them get the many sequences, `mla_chunks` that V0 chunks the long
    context of latent attention as any other's.
    """

    versions: int
    large: str = "not_a100"
    v0: bool = False
    v1: bool = True
    v0_chunk: int = 2048
    mla_chunks: bool = False
    many_seqs: bool = False
    seqs_follow_tokens: bool = False
    unchunked_is_length: bool = False
    chunking_settable: bool = False


def _versions(first: str, end: str | None = None) -> int:
    return since(first) & (before(end) if end else -1)


_ERAS = (
    _Era(versions=_versions("0.5.5", "0.6.5"), v0=True, v1=False, v0_chunk=512, mla_chunks=True),
    _Era(versions=_versions("0.6.5", "0.7.1"), v0=True, v1=False, mla_chunks=True),
    _Era(versions=_versions("0.7.1", "0.8.0"), v0=True, v1=False),
    _Era(versions=_versions("0.8.0", "0.8.4"), v0=True, large="name", many_seqs=True),
    _Era(versions=_versions("0.8.4", "0.8.5"), v0=True, large="name"),
    _Era(versions=_versions("0.8.5", "0.9.0"), v0=True, large="memory"),
    _Era(versions=_versions("0.9.0", "0.9.2"), v0=True),
    _Era(versions=_versions("0.9.2", "0.10.1"), v0=True, unchunked_is_length=True),
    _Era(
        versions=_versions("0.10.1", "0.11.0"),
        v0=True,
        unchunked_is_length=True,
        seqs_follow_tokens=True,
    ),
    _Era(versions=_versions("0.11.0", "0.11.1"), unchunked_is_length=True, seqs_follow_tokens=True),
    _Era(versions=_versions("0.11.1", "0.28.0"), chunking_settable=True, seqs_follow_tokens=True),
    _Era(
        versions=_versions("0.28.0"),
        large="huge",
        chunking_settable=True,
        seqs_follow_tokens=True,
    ),
)


class _Setting(NamedTuple):
    engine: str
    chunked: bool
    tokens: int
    seqs: int


def _settings(
    args: EngineArgs,
    model: ModelFacts,
    gpu: GpuFacts,
    *,
    max_model_len: int,
    usage: Usage,
    versions: int,
) -> list[_Setting]:
    """Return what each of `versions` settles on, oldest first, what several do alike once."""
    return [
        _settled_v1(era, args, gpu, max_model_len, usage)
        if engine == "V1"
        else _settled_v0(era, args, model, max_model_len)
        for era in _ERAS
        if era.versions & versions
        for engine in _engines(era, args, model, gpu)
    ]


def _spread(settings: Sequence[_Setting]) -> Scheduling:
    return Scheduling(
        engine=_distinct(setting.engine for setting in settings),
        chunked_prefill=_distinct(setting.chunked for setting in settings),
        max_num_batched_tokens=_distinct(setting.tokens for setting in settings),
        max_num_seqs=_distinct(setting.seqs for setting in settings),
    )


def _engines(era: _Era, args: EngineArgs, model: ModelFacts, gpu: GpuFacts) -> tuple[str, ...]:
    """Return the engines an era may choose: V0 where V1 exists but lacks something asked for."""
    if not era.v1:
        return ("V0",)
    if not era.v0:
        return ("V1",)
    if args.v1 is not None:
        return ("V1",) if args.v1 else ("V0",)
    old_gpu = gpu.capability is not None and gpu.capability < _FIRST_V1_CAPABILITY
    doubtful = (
        old_gpu
        or args.kv_cache_dtype != "auto"
        or args.speculative
        or args.pooling
        or args.lora
        or args.cpu_offload_gib > 0
        or args.pipeline_parallel > 1
        or args.load_format in ("sharded_state", "tensorizer")
        or args.dtype in ("float", "float32")
        or args.quantization in ("gguf", "bitsandbytes")
        or model.n_state_layers > 0
    )
    return ("V0", "V1") if doubtful else ("V1",)


def _settled_v0(era: _Era, args: EngineArgs, model: ModelFacts, length: int) -> _Setting:
    chunked = args.chunked_prefill
    if chunked is None:
        chunked = (
            length > _LONG_CONTEXT
            and model.kind == "text"
            and model.sliding_window is None
            and (model.mla is None or era.mla_chunks)
            and not (args.speculative or args.lora or args.pooling)
        )
    tokens = args.max_num_batched_tokens
    if tokens is None:
        tokens = era.v0_chunk if chunked else max(length, _V0_FLOOR)
        if args.pooling:
            tokens = max(tokens, _V0_POOLING_FLOOR)
        if model.kind == "multimodal":
            tokens = max(tokens, _V0_MULTIMODAL_FLOOR)
    return _Setting(engine="V0", chunked=chunked, tokens=tokens, seqs=args.max_num_seqs or 256)


def _settled_v1(era: _Era, args: EngineArgs, gpu: GpuFacts, length: int, usage: Usage) -> _Setting:
    chunked = args.chunked_prefill is not False if era.chunking_settable or args.pooling else True
    default_tokens, default_seqs = _v1_batch(era, gpu, usage)
    tokens = args.max_num_batched_tokens
    seqs = args.max_num_seqs if args.max_num_seqs is not None else default_seqs
    if tokens is None:
        tokens = default_tokens
        if not chunked:
            tokens = length if era.unchunked_is_length else max(length, tokens)
        if era.chunking_settable:
            tokens = min(seqs * length, tokens)
    if args.max_num_seqs is None and era.seqs_follow_tokens:
        seqs = min(seqs, tokens)
    return _Setting(engine="V1", chunked=chunked, tokens=tokens, seqs=seqs)


def _v1_batch(era: _Era, gpu: GpuFacts, usage: Usage) -> tuple[int, int]:
    """Return V1's default tokens and sequences of one step."""
    name = gpu.name.lower()
    large = {
        "name": "h100" in name or "h200" in name,
        "memory": gpu.mem_gib >= _LARGE_GPU_GIB,
    }.get(era.large, gpu.mem_gib >= _LARGE_GPU_GIB and "a100" not in name)
    if usage is Usage.LEGACY:
        seqs = 128 if era.chunking_settable or era.unchunked_is_length else _seqs(era, large=large)
        return 2048, seqs
    if era.large == "huge" and gpu.mem_gib >= _HUGE_GPU_GIB:
        return 16384, 1024
    small_or_large = (8192, 16384) if usage is Usage.LLM else (2048, 8192)
    return small_or_large[large], _seqs(era, large=large)


def _seqs(era: _Era, *, large: bool) -> int:
    return 1024 if large or era.many_seqs else 256


def _by_version(version: str | None, *changes: tuple[str, T]) -> Default[T]:
    """Return the values in force for a version, from changes (first version, value) in order."""
    here = candidates(version)
    ends = [before(first) for first, _ in changes[1:]] + [-1]
    return _distinct(
        value
        for (first, value), end in zip(changes, ends, strict=True)
        if since(first) & end & here
    )


def _distinct(values: Iterable[T]) -> Default[T]:
    """Return the different values in order of the version that had them last."""
    ordered: dict[T, None] = {}
    for value in values:
        ordered.pop(value, None)
        ordered[value] = None
    return Default(tuple(ordered))
