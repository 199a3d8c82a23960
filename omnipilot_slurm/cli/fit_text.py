"""A launch report for the terminal: the verdict, memory as a table and a bar, checks, changes.

In: what was asked, its report and changes. Out: text, or the object of `--json`. Called by `fit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnipilot_slurm.records import Starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.records import Interval
    from omnipilot_slurm.vllm.fit import Question
    from omnipilot_slurm.vllm.report import LaunchReport, MemoryPlan
    from omnipilot_slurm.vllm.search import Change

_BAR_WIDTH = 60
#: part of the plan -> how it is named and drawn
_PARTS = (
    ("weights", "weights", "W"),
    ("activation", "activations", "A"),
    ("non_torch", "non-torch", "N"),
    ("cuda_graphs", "CUDA graphs", "G"),
    ("kv", "KV cache", "K"),
    ("free", "outside the budget", "."),
)
_MARKS = {Starts.STARTS: "ok", Starts.FAILS: "FAILS", Starts.UNSURE: "unsure"}


def as_text(
    question: Question, report: LaunchReport, changes: Sequence[Change], said: Sequence[str]
) -> str:
    """Return what `fit` prints of one server: why and what to try first stand at its head."""
    head = [*_why(report), *said, *(f"try first: {_offer(change)}" for change in changes[:1])]
    lines = [f"{_asked(question)}: {_verdict(report)}", *(f"  {line}" for line in head)]
    if report.memory is not None:
        lines += ["", *_memory(report.memory), *_requests(question, report)]
    lines += ["", *(f"{_MARKS[c.ok]:7} {c.id}: {c.detail.text}" for c in report.checks)]
    if changes:
        lines += ["", "smallest changes that start:", *(f"  {_offer(c)}" for c in changes)]
    elif report.verdict is Starts.UNSURE and question.gpu is None and not question.either:
        lines += ["", "name the card with --gpu to have its memory judged"]
    elif report.verdict is not Starts.STARTS:
        lines += ["", "no single change was found that starts for certain"]
    return "\n".join(lines) + "\n"


def _asked(question: Question) -> str:
    model = question.model.id if question.model else "a model that is not known"
    gpu = "any card" if question.gpu is None else question.gpu.name
    if question.either:
        gpu = " or ".join(card.name for card in question.either)
    engine = question.engine
    split = f"TP {engine.tensor_parallel}"
    if engine.pipeline_parallel > 1:
        split += f" PP {engine.pipeline_parallel}"
    if engine.data_parallel > 1:
        split += f" DP {engine.data_parallel}"
    version = f"vLLM {engine.vllm_version}" if engine.vllm_version else "any vLLM"
    return f"{model} on {gpu}, {split}, {version}"


def _why(report: LaunchReport) -> list[str]:
    """Return the arithmetic of the first check that stops the server, or may."""
    if report.verdict is Starts.STARTS:
        return []
    return [check.detail.text for check in report.checks if check.ok is report.verdict][:1]


def _verdict(report: LaunchReport) -> str:
    if report.p_starts is None:
        return str(report.verdict)
    return f"{report.verdict} (p = {report.p_starts:.2f})"


def _memory(plan: MemoryPlan) -> list[str]:
    rows = [f"{'GiB per GPU':20}{'lo':>8}{'mid':>8}{'hi':>8}"]
    for name, title, letter in _PARTS:
        rows.append(_row(f"{letter} {title}", getattr(plan, name)))
    rows.append(_row("  budget", plan.budget))
    rows.append(_row("  total", plan.total))
    return [*rows, "", f"[{_bar(plan)}]"]


def _row(title: str, value: Interval) -> str:
    return f"{title:20}{value.lo:8.2f}{value.mid:8.2f}{value.hi:8.2f}"


def _bar(plan: MemoryPlan) -> str:
    """Draw one GPU: a letter for each part of its memory; what is too much runs out of the bar."""
    per_column = plan.total.mid / _BAR_WIDTH
    drawn = ""
    for name, _, letter in _PARTS:
        size = getattr(plan, name).mid
        if name == "cuda_graphs" or size <= 0:
            continue
        drawn += letter * round(min(size / per_column, 2 * _BAR_WIDTH))
    if len(drawn) > _BAR_WIDTH and plan.kv.mid <= 0:
        return drawn[:_BAR_WIDTH] + "|" + drawn[_BAR_WIDTH : 2 * _BAR_WIDTH]
    return drawn[:_BAR_WIDTH].ljust(_BAR_WIDTH, ".")


def _requests(question: Question, report: LaunchReport) -> list[str]:
    full, fits = report.n_full_requests, report.max_model_len_that_fits
    lines = []
    if full is not None and question.engine.max_model_len != -1:
        lines.append(
            f"requests of full length at once: {full.mid:.1f} ({full.lo:.1f} to {full.hi:.1f})"
        )
    if fits is not None:
        lines.append(f"longest context that certainly fits: {fits}")
    return lines


def _offer(change: Change) -> str:
    doubt = "" if change.p_starts is None else f"  (unsure, p = {change.p_starts:.2f})"
    return f"{change.text}{doubt}"


def as_json(
    question: Question, report: LaunchReport, changes: Sequence[Change], said: Sequence[str]
) -> dict[str, Any]:
    """Return the object that `fit --json` prints."""
    return {
        "verdict": str(report.verdict),
        "p_starts": report.p_starts,
        "model": question.model.id if question.model else None,
        "gpu": question.gpu.id if question.gpu else None,
        "vllm_version": question.engine.vllm_version,
        "said": list(said),
        "checks": [
            {
                "id": check.id,
                "kind": str(check.kind),
                "ok": str(check.ok),
                "detail": check.detail.text,
            }
            for check in report.checks
        ],
        "memory": None if report.memory is None else _plan_as_json(report.memory),
        "max_model_len_that_fits": report.max_model_len_that_fits,
        "n_full_requests": None
        if report.n_full_requests is None
        else _interval_as_json(report.n_full_requests),
        "smallest_changes": [
            {
                "sets": change.sets,
                "value": change.value,
                "text": change.text,
                "starts": str(change.starts),
                "p_starts": change.p_starts,
            }
            for change in changes
        ],
    }


def _plan_as_json(plan: MemoryPlan) -> dict[str, Any]:
    return {f"{name}_gib": _interval_as_json(getattr(plan, name)) for name in plan.__slots__}


def _interval_as_json(value: Interval) -> dict[str, float]:
    return {name: round(getattr(value, name), 4) for name in ("lo", "mid", "hi")}
