"""Will a vLLM server start? Every check that stops one, with its arithmetic.

In: what is known of the model and the GPU, the engine's arguments, the GPUs that the job holds, the
fitted start-up coefficients. Out: a `LaunchReport`. Called by the decision (one call per arm), by
`fit` and by the benchmark of launches. A check that does not apply is absent; "fails" is said only
where every engine version and every value inside the intervals fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval, Reason, Starts
from omnipilot_slurm.vllm.kv import kv_shape
from omnipilot_slurm.vllm.memory import Engine, longest_that_fits, plan_memory
from omnipilot_slurm.vllm.report import Check, CheckKind, LaunchReport, MemoryPlan
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import Place

_LARGE_GPU_GIB = 70
_DTYPE_BYTES = {"float": 4.0, "float32": 4.0}


def assess(
    model: ModelFacts,
    gpu: GpuFacts | None,
    engine: EngineArgs,
    place: Place,
    coefficients: StartupCoefficients,
) -> LaunchReport:
    """Return whether the server starts; without a GPU only what holds on every card is judged."""
    checks = [*_parallel_checks(model, engine, place)]
    if gpu is None:
        return _report(checks, None, None)
    resolved = _resolve(model, gpu, engine)
    weights = weights_gib(
        model,
        model.quantization,
        dtype_bytes=resolved.dtype_bytes,
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
    )
    plan = plan_memory(
        model, gpu, resolved, _times(weights, coefficients.weights_frac), coefficients
    )
    checks += [_weights_check(plan), _cache_check(plan, resolved.max_model_len)]
    limit = model.max_model_len or resolved.max_model_len
    return _report(checks, plan, longest_that_fits(resolved, plan, limit))


def _parallel_checks(model: ModelFacts, engine: EngineArgs, place: Place) -> list[Check]:
    tensor_parallel = engine.tensor_parallel
    checks = []
    if tensor_parallel > 1:
        rest = model.heads % tensor_parallel
        text = f"{model.heads} heads / TP {tensor_parallel} leaves {rest}"
        checks.append(_check("heads", CheckKind.DIVISIBILITY, _fails_if(rest != 0), text))
    world = tensor_parallel * engine.pipeline_parallel * engine.data_parallel
    if place.n_gpus is not None:
        held = place.n_gpus * place.n_nodes
        text = f"TP x PP x DP = {world} of {held} GPUs"
        checks.append(_check("world_size", CheckKind.WORLD_SIZE, _fails_if(world > held), text))
    return checks


def _weights_check(plan: MemoryPlan) -> Check:
    fails = plan.weights.lo > plan.total.hi
    text = f"weights {plan.weights.mid:.1f} GiB of {plan.total.mid:.1f} GiB on the GPU"
    state = Starts.FAILS if fails else _starts_if(plan.weights.hi <= plan.total.lo)
    return _check("weights", CheckKind.MEMORY, state, text)


def _cache_check(plan: MemoryPlan, length: int) -> Check:
    need = plan.kv_need
    if plan.kv.hi < need.lo or plan.kv.hi <= 0:
        state = Starts.FAILS
    else:
        state = _starts_if(plan.kv.lo >= need.hi and plan.kv.lo > 0)
    text = (
        f"one request of {length} tokens needs {need.mid:.2f} GiB, "
        f"{plan.kv.mid:.2f} GiB ({plan.kv.lo:.2f} to {plan.kv.hi:.2f}) are left for the cache"
    )
    return _check("kv_cache", CheckKind.MEMORY, state, text)


def _report(checks: list[Check], plan: MemoryPlan | None, longest: int | None) -> LaunchReport:
    states = {check.ok for check in checks}
    if Starts.FAILS in states:
        verdict = Starts.FAILS
    else:
        verdict = _starts_if(Starts.UNSURE not in states and plan is not None)
    return LaunchReport(
        verdict=verdict,
        checks=tuple(checks),
        memory=plan,
        max_model_len_that_fits=longest,
        n_full_requests=None if plan is None else _full_requests(plan),
        p_starts=_p_starts(plan) if verdict is Starts.UNSURE else None,
    )


def _full_requests(plan: MemoryPlan) -> Interval:
    need = max(plan.kv_need.mid, 1e-9)
    kv = plan.kv
    return Interval(lo=max(kv.lo, 0) / need, mid=max(kv.mid, 0) / need, hi=max(kv.hi, 0) / need)


def _p_starts(plan: MemoryPlan | None) -> float:
    """Return the share of the cache's interval that holds one full request."""
    if plan is None:
        return 0.5
    width = plan.kv.hi - plan.kv.lo
    need = max(plan.kv_need.mid, 0.0)
    return min(max((plan.kv.hi - need) / width, 0.02), 0.98) if width > 0 else 0.5


def _resolve(model: ModelFacts, gpu: GpuFacts, engine: EngineArgs) -> Engine:
    large = gpu.mem_gib >= _LARGE_GPU_GIB and "a100" not in gpu.name.lower()
    n_seqs = engine.max_num_seqs or (1024 if large else 256)
    n_batched = engine.max_num_batched_tokens or max(8192 if large else 2048, n_seqs)
    utilization = engine.gpu_memory_utilization
    dtype_bytes = _DTYPE_BYTES.get(engine.dtype, 2.0)
    length = engine.max_model_len or model.max_model_len or 4096
    return Engine(
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        data_parallel=engine.data_parallel,
        dtype_bytes=dtype_bytes,
        kv=kv_shape(
            model,
            tensor_parallel=engine.tensor_parallel,
            pipeline_parallel=engine.pipeline_parallel,
            kv_cache_dtype=engine.kv_cache_dtype,
            dtype_bytes=dtype_bytes,
        ),
        max_model_len=length,
        n_batched_tokens=n_batched,
        n_seqs=n_seqs,
        utilization=Interval(lo=0.9, mid=0.91, hi=0.92)
        if utilization is None
        else Interval(lo=utilization, mid=utilization, hi=utilization),
        block_size=engine.block_size or 16,
        hybrid=True,
        eager=engine.enforce_eager,
        graphs_in_budget=None,
    )


def _times(left: Interval, right: Interval) -> Interval:
    return Interval(lo=left.lo * right.lo, mid=left.mid * right.mid, hi=left.hi * right.hi)


def _check(check_id: str, kind: CheckKind, state: Starts, text: str) -> Check:
    return Check(id=check_id, kind=kind, ok=state, detail=Reason(code=check_id, text=text))


def _fails_if(condition: bool) -> Starts:
    return Starts.FAILS if condition else Starts.STARTS


def _starts_if(condition: bool) -> Starts:
    return Starts.STARTS if condition else Starts.UNSURE
