"""How long a server takes from its start to its first answer: a formula a stage, with bounds.

In: a launch, its model, the weights on each GPU, coefficients (etc/coldstart.yaml, where each has
its source). Out: `ColdStart`, an estimate that is nobody's measurement. Called by the decision.

    process  a constant, and something for each further GPU
    weights  bytes / rate: lo out of the page cache, mid and hi from disk
    compile  a constant and something a layer, lo out of vLLM's cache; none in V0 and in eager mode
    graphs   the same; none in eager mode
    ready    a constant

Bounds add up as if all stages were at theirs together, which is wider than chance would make it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval
from omnipilot_slurm.vllm.eras import in_question
from omnipilot_slurm.vllm.grammar import since

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs

_NONE = Interval(lo=0.0, mid=0.0, hi=0.0)
_NO_WEIGHTS = "dummy"

#: what starts alike, oldest first: engine V0; V1; V1 that holds the garbage collector meanwhile
GENERATIONS = ("v0", "v1", "held")
_HELD = since("0.10.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Times in s that changed with versions; `_per_layer_s` is paid for each layer."""

    compile_s: Interval
    compile_per_layer_s: Interval
    cached_compile_s: Interval
    graphs_s: Interval
    graphs_per_layer_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStartCoefficients:
    """Times in s and rates in GiB/s; `generations` by the names of GENERATIONS."""

    process_s: Interval
    process_per_gpu_s: Interval
    disk_gib_s: Interval
    page_cache_gib_s: Interval
    ready_s: Interval
    generations: Mapping[str, Generation]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """The stages of one start, in s."""

    process: Interval
    weights: Interval
    compile: Interval
    graphs: Interval
    ready: Interval

    @property
    def total(self) -> Interval:
        """The time from the start to the first answer, in s."""
        return self.process + self.weights + self.compile + self.graphs + self.ready


def cold_start(
    args: EngineArgs,
    model: ModelFacts,
    weights_gib: Interval,
    engines: tuple[str, ...],
    coefficients: ColdStartCoefficients,
) -> ColdStart:
    """Return the stages of a server's start.

    `weights_gib` are those on each of its GPUs, `engines` those it may be: V0, V1 or both.
    """
    n_gpus = args.tensor_parallel * args.pipeline_parallel
    names = generations(args.vllm_version, model.architecture, engines)
    possible = [coefficients.generations[name] for name in names]
    return ColdStart(
        process=coefficients.process_s + coefficients.process_per_gpu_s.scaled(n_gpus - 1),
        weights=_weights(args, weights_gib, n_gpus, coefficients),
        compile=_either([_compile(args, model, each) for each in possible]),
        graphs=_either([_graphs(args, model, each) for each in possible]),
        ready=coefficients.ready_s,
    )


@lru_cache(maxsize=512)
def generations(
    version: str | None, architecture: str | None, engines: tuple[str, ...]
) -> tuple[str, ...]:
    """Return which of GENERATIONS a server may belong to, oldest first."""
    here = in_question(version, architecture)
    may_be = {
        "v0": "V0" in engines,
        "v1": "V1" in engines and bool(here & ~_HELD),
        "held": "V1" in engines and bool(here & _HELD),
    }
    return tuple(name for name in GENERATIONS if may_be[name])


def _weights(
    args: EngineArgs, per_gpu: Interval, n_gpus: int, coefficients: ColdStartCoefficients
) -> Interval:
    """Return the time the weights take: they come from disk once, into each GPU from memory."""
    if args.load_format == _NO_WEIGHTS:
        return _NONE
    disk, memory = coefficients.disk_gib_s, coefficients.page_cache_gib_s
    return Interval(
        lo=per_gpu.lo / memory.hi,
        mid=max(n_gpus * per_gpu.mid / disk.mid, per_gpu.mid / memory.mid),
        hi=max(n_gpus * per_gpu.hi / disk.lo, per_gpu.hi / memory.lo),
    )


def _compile(args: EngineArgs, model: ModelFacts, of: Generation) -> Interval:
    if args.enforce_eager or args.optimization_level == 0:
        return _NONE
    anew = of.compile_s + of.compile_per_layer_s.scaled(model.layers)
    return Interval(lo=min(of.cached_compile_s.lo, anew.lo), mid=anew.mid, hi=anew.hi)


def _graphs(args: EngineArgs, model: ModelFacts, of: Generation) -> Interval:
    if args.enforce_eager:
        return _NONE
    captured = of.graphs_s + of.graphs_per_layer_s.scaled(model.layers)
    # what -O0 does about graphs changed with versions
    is_doubtful = args.optimization_level == 0
    return Interval(lo=0.0, mid=captured.mid, hi=captured.hi) if is_doubtful else captured


def _either(intervals: Sequence[Interval]) -> Interval:
    """Return what covers all, with the middle of the newest."""
    return Interval(
        lo=min(each.lo for each in intervals),
        mid=intervals[-1].mid,
        hi=max(each.hi for each in intervals),
    )
