"""A decision for the terminal: verdict, arms side by side, the exact changes.

In: a Decision and the script. Out: text. Called by `advise`.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

from omnipilot_slurm.decide.explain import described
from omnipilot_slurm.script.rewrite import apply

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.decision import Decision

_HEAD = ("partition", "arm", "starts", "KV GiB", "output tok/s", "TTFT ms", "$/h", "")


def shown(decision: Decision, script: bytes) -> str:
    """Return what `advise` prints of a decision on a script."""
    finding = decision.finding
    parts = [f"verdict: {finding.verdict} ({finding.reason.code}: {finding.reason.text})"]
    if decision.model_said:
        parts.append(f"model: {decision.model_said}")
    if decision.workload is not None:
        load = decision.workload
        source = ", ".join(sorted({load.source[name] for name in ("isl", "osl", "concurrency")}))
        parts.append(
            f"workload: {load.isl} prompt and {load.osl} output tokens,"
            f" {load.concurrency} requests at a time (from: {source})"
        )
    parts += [line.removeprefix("omnipilot: ") for line in decision.messages[:-1]]
    if decision.arms:
        parts += ["", *_table(decision)]
    parts += _changes(decision, script)
    return "\n".join(parts) + "\n"


def _table(decision: Decision) -> list[str]:
    chosen = decision.finding.chosen
    rows = [_HEAD, *(_row(rated, chosen) for rated in decision.arms)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    calibrated = any(rated.prediction and rated.prediction.calibrated for rated in decision.arms)
    note = "" if calibrated else "throughput and TTFT: roofline estimates, not calibrated"
    return [line.rstrip() for line in (*lines, note) if line]


def _row(rated: RatedArm, chosen: RatedArm | None) -> tuple[str, ...]:
    memory, prediction = rated.report.memory, rated.prediction
    targets = prediction.targets if prediction is not None else {}
    here = (
        chosen is not None
        and chosen.arm.gpu == rated.arm.gpu
        and ((chosen.arm.partition, chosen.arm.n_gpus) == (rated.arm.partition, rated.arm.n_gpus))
    )
    price = rated.usd_per_hour
    return (
        rated.arm.partition or "",
        described(rated),
        str(rated.starts),
        "" if memory is None else f"{memory.kv.lo:.1f} to {memory.kv.hi:.1f}",
        _figure(targets, "output_tok_s"),
        _figure(targets, "ttft_ms"),
        "" if price == float("inf") else f"{price:.2f}",
        "<- chosen" if here else (rated.blocked.text if rated.blocked is not None else ""),
    )


def _figure(targets: object, name: str) -> str:
    interval = targets.get(name) if isinstance(targets, dict) else None
    return "" if interval is None else f"~{float(f'{interval.mid:.2g}'):,.0f}"


def _changes(decision: Decision, script: bytes) -> list[str]:
    """Return the job fields that would be written and the script's diff."""
    change = decision.finding.change
    if change is None:
        return []
    fields = [f"job field {name}: {value or '(emptied)'}" for name, value in change.fields.items()]
    fields += [f"variable {name}: {value or '(emptied)'}" for name, value in change.env.items()]
    before = script.decode("utf-8", "replace").splitlines()
    after = apply(script, change.edits).decode("utf-8", "replace").splitlines()
    diff = unified_diff(before, after, "script as written", "script as it would run", "", "", 0, "")
    return ["", *fields, *diff]
