"""The arms of a decision: where a server could run, if it starts there, what it would deliver.

In: a Question (the submission, what was read in it, the site). Out: RatedArms for what was asked
and for every place the job may go. Called by policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.decide import eligibility
from omnipilot_slurm.records import Arm, Starts
from omnipilot_slurm.vllm.report import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.decide.engines import Engines
    from omnipilot_slurm.decide.pools import GpuPool
    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.decide.success import Probability
    from omnipilot_slurm.decide.utility import UtilityTerms
    from omnipilot_slurm.decide.wait_history import Wait
    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs, Launch, Prediction, Reason, Submission, Workload
    from omnipilot_slurm.script.directives import Directives
    from omnipilot_slurm.script.tres import GpuRequest
    from omnipilot_slurm.vllm.report import LaunchReport

#: taken where neither script nor catalog says how long a context may be
_SHORT_CONTEXT: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One server of one submission, with all that its answer rests on."""

    submission: Submission
    request: GpuRequest
    directives: Directives
    launch: Launch
    model: ModelFacts
    workload: Workload
    site: Site
    engines: Engines


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedArm:
    """An arm with its launch checks, and what else is known of it; None is not computed.

    Two are the same only if they were rated in one go.

    `blocked` is why the job may not go there. `p_launch` is the probability that a launch comes up,
    the checks' doubts included; `launch` says what outcomes it rests on. `value_sd_usd` is one
    standard deviation of `terms.value`.
    """

    arm: Arm
    pool: GpuPool
    engine: EngineArgs
    report: LaunchReport
    blocked: Reason | None = None
    prediction: Prediction | None = None
    launch: Probability | None = None
    p_launch: float | None = None
    wait: Wait | None = None
    terms: UtilityTerms | None = None
    value_sd_usd: float = 0.0

    @property
    def starts(self) -> Starts:
        """Whether the server starts there."""
        return self.report.verdict

    @property
    def utility_usd(self) -> float | None:
        """What a run there is worth, None where that cannot be told."""
        return None if self.terms is None else self.terms.total

    @property
    def usd_per_hour(self) -> float:
        """The price of the arm's GPUs; infinite where no price is set."""
        return _usd_per_hour(self.pool, self.arm.n_gpus)


def asked_arms(question: Question, *, anywhere: bool = False) -> tuple[RatedArm, ...]:
    """Return the arms that the job's own request may land on, one per pool; none if it has none.

    `anywhere`: not only in the partitions asked, but wherever the job may go.
    """
    request, launch = question.request, question.launch
    if not request.total or launch.tp is None:
        return ()
    named = asked_partitions(question.submission, question.site.snapshot)
    rated = (
        _rated(question, pool, request.total, launch.tp, stays=True)
        for pool in question.site.pools
        if (anywhere or pool.partition.name in named)
        and _matches(question, pool)
        and (request.per_node or 0) <= pool.n_per_node
    )
    return tuple(one for one in rated if not anywhere or one.blocked is None)


def asked_partitions(submission: Submission, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the partitions a job names, else the default one."""
    if submission.partition:
        return tuple(submission.partition.split(","))
    return tuple(partition.name for partition in snapshot.partitions if partition.is_default)


def _matches(question: Question, pool: GpuPool) -> bool:
    gres_type = asked_gres_type(question.request)
    right_type = gres_type is None or gres_type == pool.gres_type
    return right_type and eligibility.satisfies(question.submission.features, pool.shape.features)


def asked_gres_type(request: GpuRequest) -> str | None:
    """Return the GPU type written in a gres or gpus option, not one that a name spells."""
    return request.type if request.type_source in request.forms else None


def same_place(one: RatedArm, other: RatedArm) -> bool:
    """Return whether two arms are the same GPUs, shared by as many."""
    return _place(one) == _place(other)


def _place(rated: RatedArm) -> tuple[object, ...]:
    arm = rated.arm
    return arm.partition, arm.gpu, arm.n_gpus, arm.tensor_parallel


def every_arm(question: Question, known: Sequence[RatedArm]) -> tuple[RatedArm, ...]:
    """Return the arms on one node, smallest first, as they are `known` where they are."""
    places = {_place(rated): rated for rated in known}
    return tuple(places.get(_place(rated), rated) for rated in smallest_first(question))


def retried(question: Question, rated: RatedArm, tensor_parallel: int) -> RatedArm:
    """Return the same GPUs with another tensor-parallel degree."""
    return _rated(question, rated.pool, rated.arm.n_gpus, tensor_parallel, stays=True)


def smallest_first(
    question: Question, *, n_gpus: int | None = None, gres_type: str | None = None
) -> Iterator[RatedArm]:
    """Yield the arms on one node, fewest GPUs first, then cheapest; each is rated when taken.

    With `n_gpus` or `gres_type`, only those of that size or type.
    """
    engine = question.launch.engine
    replicas = engine.pipeline_parallel * engine.data_parallel
    places = [
        (size, _usd_per_hour(pool, size), pool.partition.name, pool.gpu.id, at)
        for at, pool in enumerate(question.site.pools)
        for size in _sizes(pool.n_per_node, replicas)
        if n_gpus in (None, size) and gres_type in (None, pool.gres_type)
    ]
    for size, *_, at in sorted(places):
        yield _rated(question, question.site.pools[at], size, size // replicas, stays=False)


def _usd_per_hour(pool: GpuPool, n_gpus: int) -> float:
    """Return the price of a pool's GPUs; infinite where no price is set."""
    price = pool.gpu.price_usd_per_gpu_hour
    return float("inf") if price is None else price * n_gpus


def _sizes(n_per_node: int, replicas: int) -> Iterator[int]:
    n_gpus = replicas
    while n_gpus <= n_per_node:
        yield n_gpus
        n_gpus *= 2


def _rated(
    question: Question, pool: GpuPool, n_gpus: int, tensor_parallel: int, *, stays: bool
) -> RatedArm:
    engine = question.engines.of(pool.partition.name, tensor_parallel)
    n_nodes = question.request.n_nodes if stays else 1
    per_node = -(-n_gpus // n_nodes)
    visible = _visible_gpus(question, per_node) if stays else per_node
    arm = Arm(
        partition=pool.partition.name,
        gpu=pool.gpu.id,
        gres_type=asked_gres_type(question.request) if stays else pool.gres_type,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
        expert_parallel=engine.expert_parallel,
        precision=precision_of(question.model, engine),
        kv_cache_dtype=engine.kv_cache_dtype,
    )
    place = Place(n_gpus=visible, gpus_per_node=pool.n_per_node, n_nodes=n_nodes)
    startup = question.site.startup
    report = question.engines.report(engine, question.model, pool.gpu, place, startup)
    blocked = eligibility.objection(question.submission, pool, per_node, question.site.snapshot)
    return RatedArm(arm=arm, pool=pool, engine=engine, report=report, blocked=blocked)


def _visible_gpus(question: Question, per_node: int) -> int:
    pinned = question.launch.environment.get("CUDA_VISIBLE_DEVICES")
    return len([part for part in pinned.split(",") if part]) if pinned else per_node


def precision_of(model: ModelFacts, engine: EngineArgs) -> str:
    """Return the weights' format by its name on the wire: bf16, fp16, fp8, awq, ..."""
    quantization = model.quantization
    if quantization is not None:
        scheme = quantization.scheme or ""
        return "fp8" if "fp8" in scheme else quantization.method
    if engine.quantization is not None:
        return engine.quantization
    dtype = engine.dtype if engine.dtype != "auto" else model.dtype
    return {"half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32"}.get(
        dtype, "bf16"
    )


def max_model_len(model: ModelFacts, engine: EngineArgs) -> int:
    """Return the context length in force: the one given, else the model's own."""
    given = engine.max_model_len
    return given if given is not None and given > 0 else model.max_model_len or _SHORT_CONTEXT
