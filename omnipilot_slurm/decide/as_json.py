"""A decision as plain values under the names on the wire; what is not computed is null.

In: a Decision. Out: a mapping ready for JSON. Called by `advise --json`, and for the row that the
store keeps.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import TARGET_UNITS, Shared
from omnipilot_slurm.script.source import decode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.records import Interval, Launch, Prediction, Reason, Workload
    from omnipilot_slurm.vllm.report import LaunchReport

_DIGITS: Final = 6
#: targets that are computed, with bounds of their own, not learned
_COMPUTED: Final = frozenset({"kv_usage_frac", "cold_start_s"})
#: targets that follow from the other ones, the load and the arm
_DERIVED: Final = frozenset({"total_tok_s", "req_s", "e2e_ms", "energy_per_tok_j"})
_CACHE: Final = ("kv",)
_PARTS: Final = (
    *("weights", "activation", "cuda_graphs", "non_torch"),
    *("kv", "kv_need", "total", "budget"),
)


def as_json(decision: Decision, *, brief: bool = False) -> dict[str, object]:
    """Return all of a decision; `verdict` is what is done, `would_be` what enforce would do.

    `brief` leaves out how each arm was checked and all memory but the cache's, except for those
    asked and chosen.
    """
    finding = decision.finding
    change = finding.change
    return {
        "verdict": str(decision.verdict),
        "would_be": str(finding.verdict),
        "mode": str(decision.mode),
        "reason": _reason(finding.reason),
        "obstacle": None if finding.obstacle is None else _reason(finding.obstacle),
        "launch": None if decision.launch is None else _launch(decision.launch),
        "model": decision.model_said or None,
        "workload": None if decision.workload is None else _workload(decision.workload),
        "asked": None if finding.asked is None else arm_json(finding.asked),
        "chosen": None if finding.chosen is None else arm_json(finding.chosen),
        "gain": _gain(decision),
        "arms": [_brief(rated) if brief else arm_json(rated) for rated in decision.arms],
        "edits": [
            {"start": e.start, "end": e.end, "old": decode(e.old), "new": decode(e.new)}
            for e in (change.edits if change is not None else ())
        ],
        "fields": dict(change.fields) if change is not None else {},
        "env": dict(change.env) if change is not None else {},
        "messages": list(decision.messages),
        "support": _support(decision),
    }


def _reason(reason: Reason) -> dict[str, str]:
    return {"code": reason.code, "text": reason.text}


def _launch(launch: Launch) -> dict[str, object]:
    engine = launch.engine
    return {
        "form": launch.form,
        "model": engine.model,
        "tensor_parallel": launch.tp,
        "tp_source": launch.tp_source,
        "pipeline_parallel": engine.pipeline_parallel,
        "data_parallel": engine.data_parallel,
        "expert_parallel": engine.expert_parallel,
        "dtype": engine.dtype,
        "quantization": engine.quantization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "max_model_len": engine.max_model_len,
        "vllm_version": engine.vllm_version,
        "editable": str(launch.editable),
        "why": launch.why,
    }


def _workload(workload: Workload) -> dict[str, object]:
    names = (
        "isl", "osl", "concurrency", "requests_per_s", "slo_ttft_ms", "slo_tpot_ms", "hours",
    )  # fmt: skip
    plausible = workload.plausible_concurrency
    return {name: getattr(workload, name) for name in names} | {
        "source": dict(workload.source),
        "n_jobs": workload.n_jobs,
        "plausible_concurrency": None if plausible is None else list(plausible),
    }


def arm_json(rated: RatedArm, *, brief: bool = False) -> dict[str, object]:
    """Return one arm with its checks, memory, predictions and utility.

    `brief` leaves out the checks, and what follows from the predictions that are there.
    """
    arm, report = rated.arm, rated.report
    return {
        **({} if brief else {"checks": _checks(report)}),
        "memory": _memory(report, _CACHE if brief else _PARTS),
        "partition": arm.partition,
        "gpu": arm.gpu,
        "n_gpus": arm.n_gpus,
        "n_nodes": arm.n_nodes,
        "tensor_parallel": arm.tensor_parallel,
        "pipeline_parallel": arm.pipeline_parallel,
        "data_parallel": arm.data_parallel,
        "expert_parallel": arm.expert_parallel,
        "precision": arm.precision,
        "kv_cache_dtype": arm.kv_cache_dtype,
        "starts": str(rated.starts),
        "blocked": None if rated.blocked is None else _reason(rated.blocked),
        "predictions": _predictions(rated.prediction, _DERIVED if brief else frozenset()),
        "calibrated": None if rated.prediction is None else rated.prediction.calibrated,
        "usd_per_hour": _finite(rated.usd_per_hour),
        "utility_usd": _finite(rated.utility_usd),
        "utility_terms_usd": _terms(rated),
        "p_launch": _finite(rated.p_launch),
        "launch": _launch_prior(rated),
        "wait_h": _wait(rated),
    }


@lru_cache(maxsize=512)
def _brief(rated: RatedArm) -> Shared:
    """Return an arm that may be among those of many decisions."""
    return Shared(arm_json(rated, brief=True))


def _terms(rated: RatedArm) -> dict[str, float | None] | None:
    terms = rated.terms
    if terms is None:
        return None
    return {name: _finite(getattr(terms, name)) for name in terms.__dataclass_fields__}


def _launch_prior(rated: RatedArm) -> dict[str, object] | None:
    launch = rated.launch
    if launch is None:
        return None
    return {
        "p": _finite(launch.p),
        "n": launch.n,
        "assumed": launch.assumed,
        "source": launch.source,
    }


def _wait(rated: RatedArm) -> dict[str, object] | None:
    wait = rated.wait
    if wait is None:
        return None
    return {
        "lo": _finite(wait.lo_h),
        "mean": _finite(wait.mean_h),
        "hi": _finite(wait.hi_h),
        "n": wait.n,
        "assumed": wait.assumed,
        "source": wait.source,
    }


def _gain(decision: Decision) -> dict[str, object] | None:
    gain = decision.finding.gain
    if gain is None:
        return None
    return {
        "usd": _interval(gain.usd),
        "hours": _finite(gain.hours),
        "confidence": _finite(gain.confidence),
        "flip": gain.flip,
    }


def _checks(report: LaunchReport) -> list[dict[str, object]]:
    return [
        {"id": check.id, "ok": str(check.ok), "detail": check.detail.text}
        for check in report.checks
    ]


def _memory(report: LaunchReport, names: Sequence[str]) -> dict[str, object] | None:
    plan = report.memory
    if plan is None:
        return None
    return {f"{name}_gib": _interval(getattr(plan, name)) for name in names}


def _predictions(
    prediction: Prediction | None, without: AbstractSet[str]
) -> dict[str, object] | None:
    """Return the targets; of those of an estimate that is not calibrated no bounds are known."""
    if prediction is None:
        return None
    found: dict[str, object] = {}
    for name, interval in prediction.targets.items():
        if name in without:
            continue
        bounds = _interval(interval)
        if not prediction.calibrated and name not in _COMPUTED:
            bounds |= {"lo": None, "hi": None}
        found[name] = bounds | {"unit": TARGET_UNITS[name]}
        if name == "cold_start_s":
            found[name] = bounds | {"unit": TARGET_UNITS[name], "estimated": True}
    return found


def _interval(interval: Interval) -> dict[str, float | None]:
    lo, mid, hi = _finite(interval.lo), _finite(interval.mid), _finite(interval.hi)
    return {"lo": lo, "mid": mid, "hi": hi}


def _finite(value: float | None) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if value is not None and math.isfinite(value) else None


def _support(decision: Decision) -> dict[str, object]:
    shown = decision.finding.chosen or decision.finding.asked
    prediction = shown.prediction if shown is not None else None
    if prediction is None or not prediction.calibrated:
        return {"tier": None, "axes": []}
    return {"tier": prediction.tier, "axes": list(prediction.axes)}
