"""A decision for the terminal: verdict, arms side by side, the exact changes.

In: a decision as plain values (decide/as_json.py) and, where it is at hand, the script. Out: text.
Called by `advise` and `explain`, so that both show the same.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = Any
_HEAD = ("partition", "arm", "starts", "KV GiB per GPU", "output tok/s", "TTFT ms", "")


def shown(record: Mapping[str, Json], script: bytes | None = None) -> str:
    """Return what is printed of a decision."""
    reason = record["reason"]
    parts = [f"verdict: {record['would_be']} ({reason['code']}): {reason['text']}"]
    if record["mode"] != "enforce":
        parts.append(f"mode: {record['mode']}, so what was done is: {record['verdict']}")
    if record["model"]:
        parts.append(f"model: {record['model']}")
    if record["workload"]:
        parts.append(_workload(record["workload"]))
    parts += [line.removeprefix("omnipilot: ") for line in record["messages"][:-1]]
    if record["arms"]:
        parts += ["", *_table(record)]
    parts += _changes(record, script)
    return "\n".join(parts) + "\n"


def _workload(load: Mapping[str, Json]) -> str:
    source = ", ".join(sorted({load["source"][name] for name in ("isl", "osl", "concurrency")}))
    return (
        f"workload: {load['isl']} prompt and {load['osl']} output tokens,"
        f" {load['concurrency']} requests at a time (from: {source})"
    )


def _table(record: Mapping[str, Json]) -> list[str]:
    arms: Sequence[Mapping[str, Json]] = record["arms"]
    rows = [_HEAD, *(_row(arm, record["chosen"]) for arm in arms)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    if any(arm["calibrated"] is False for arm in arms):
        lines.append("~: roofline estimates, not calibrated")
    return [line.rstrip() for line in lines]


def _row(arm: Mapping[str, Json], chosen: Mapping[str, Json] | None) -> tuple[str, ...]:
    memory, blocked = arm["memory"], arm["blocked"]
    note = blocked["text"] if blocked else ""
    return (
        arm["partition"] or "",
        described(arm),
        arm["starts"],
        _room(memory["kv_gib"]) if memory else "",
        _figure(arm, "output_tok_s"),
        _figure(arm, "ttft_ms"),
        "<- chosen" if chosen is not None and _place(arm) == _place(chosen) else note,
    )


def _room(kv: Mapping[str, float]) -> str:
    return "none" if kv["hi"] <= 0 else f"{max(kv['lo'], 0.0):.1f} to {kv['hi']:.1f}"


def _place(arm: Mapping[str, Json]) -> tuple[Json, ...]:
    return tuple(arm[name] for name in ("partition", "gpu", "n_gpus", "tensor_parallel"))


def described(arm: Mapping[str, Json]) -> str:
    """Return an arm in a few words: `4x h100, TP 4`."""
    shape = [f"TP {arm['tensor_parallel']}"]
    for name, short in (("pipeline_parallel", "PP"), ("data_parallel", "DP")):
        if arm[name] > 1:
            shape.append(f"{short} {arm[name]}")
    return f"{arm['n_gpus']}x {arm['gpu']}, {' '.join(shape)}"


def _figure(arm: Mapping[str, Json], name: str) -> str:
    target = (arm["predictions"] or {}).get(name)
    if target is None:
        return ""
    if target["lo"] is None:
        two_digits = float(f"{target['mid']:.2g}")
        return f"~{two_digits:,.0f}"
    return f"{target['mid']:,.0f} ({target['lo']:,.0f} to {target['hi']:,.0f})"


def _changes(record: Mapping[str, Json], script: bytes | None) -> list[str]:
    """Return the job fields that are written and the script's diff."""
    lines = [
        f"job field {name}: {value or '(emptied)'}" for name, value in record["fields"].items()
    ]
    lines += [f"variable {name}: {value or '(emptied)'}" for name, value in record["env"].items()]
    lines += _diff(record["edits"], script)
    return ["", *lines] if lines else []


def _diff(edits: Sequence[Mapping[str, Json]], script: bytes | None) -> list[str]:
    if script is None:
        return [
            f"script bytes {e['start']}-{e['end']}: {e['old']!r} -> {e['new']!r}" for e in edits
        ]
    after = script
    for edit in reversed(edits):
        new = edit["new"].encode("utf-8", "surrogateescape")
        after = after[: edit["start"]] + new + after[edit["end"] :]
    before_lines, after_lines = (
        text.decode("utf-8", "replace").splitlines() for text in (script, after)
    )
    names = {"fromfile": "script as written", "tofile": "script as it would run"}
    return list(unified_diff(before_lines, after_lines, **names, n=0, lineterm=""))
