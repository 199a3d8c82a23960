"""A decision for the terminal: verdict, arms side by side, the exact changes.

In: a decision as plain values (decide/as_json.py) and, where it is at hand, the script. Out: text.
Called by `advise` and `explain`, so that both show the same.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.text_table import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = Any
_HEAD = ("partition", "arm", "starts", "KV GiB per GPU", "output tok/s", "TTFT ms", "$/h", "")
_WORTHS = (
    "worth in $",
    "arm",
    "value",
    "GPUs",
    "SLO",
    "wait",
    "failures",
    "comes up",
    "wait, h",
    "",
)
#: how many arms are weighed up where not all are asked for
_BEST: Final = 5


def shown(
    record: Mapping[str, Json], script: bytes | None = None, *, all_worths: bool = False
) -> str:
    """Return what is printed of a decision; `all_worths` weighs up every arm, not only the best."""
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
    parts += _worths(record, None if all_worths else _BEST)
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
    empty = {at for at in range(len(_HEAD)) if not any(row[at] for row in rows[1:])}
    lines = table([[cell for at, cell in enumerate(row) if at not in empty] for row in rows])
    if any(arm["calibrated"] is False for arm in arms):
        lines.append("~: roofline estimates, not calibrated")
    return lines


def _row(arm: Mapping[str, Json], chosen: Mapping[str, Json] | None) -> tuple[str, ...]:
    # the store does not keep how each arm was checked
    memory, blocked = arm.get("memory"), arm["blocked"]
    note = blocked["text"] if blocked else ""
    return (
        arm["partition"] or "",
        described(arm),
        arm["starts"],
        _room(memory["kv_gib"]) if memory else "",
        _figure(arm, "output_tok_s"),
        _figure(arm, "ttft_ms"),
        "" if arm["usd_per_hour"] is None else f"{arm['usd_per_hour']:,.2f}",
        "<- chosen" if chosen is not None and place(arm) == place(chosen) else note,
    )


def _worths(record: Mapping[str, Json], n_best: int | None) -> list[str]:
    """Return the terms of what arms are worth: the best ones and those spoken of, or all."""
    asked, chosen = record["asked"], record["chosen"]
    spoken = {name: place(arm) for name, arm in (("yours", asked), ("chosen", chosen)) if arm}
    arms = {place(arm): arm for arm in (*record["arms"], asked, chosen) if arm is not None}
    known = [arm for arm in arms.values() if arm["utility_terms_usd"] is not None]
    known.sort(key=lambda arm: -arm["utility_usd"])
    kept = [
        arm
        for rank, arm in enumerate(known)
        if n_best is None or rank < n_best or place(arm) in spoken.values()
    ]
    if not kept:
        return []
    rows = [_WORTHS, *(_worth(arm, spoken) for arm in kept)]
    return ["", *table(rows, right=(0, *range(2, len(_WORTHS) - 1)))]


def _worth(arm: Mapping[str, Json], spoken: Mapping[str, tuple[Json, ...]]) -> tuple[str, ...]:
    terms, launch, wait = arm["utility_terms_usd"], arm["launch"], arm["wait_h"]
    costs = (-terms[name] or 0.0 for name in ("gpu_cost", "slo", "wait", "failure"))
    seen = "assumed" if launch["assumed"] else f"n {launch['n']:,}"
    return (
        f"{arm['utility_usd']:,.2f}",
        f"{described(arm)} in {arm['partition']}",
        f"{terms['value']:,.2f}",
        *(f"{usd:,.2f}" for usd in costs),
        f"{100 * arm['p_launch']:.0f} % ({seen})",
        f"{wait['mean']:.2g} ({wait['lo']:.2g} to {wait['hi']:.2g})",
        ", ".join(name for name, where in spoken.items() if where == place(arm)),
    )


def _room(kv: Mapping[str, float]) -> str:
    return "none" if kv["hi"] <= 0 else f"{max(kv['lo'], 0.0):.1f} to {kv['hi']:.1f}"


def place(arm: Mapping[str, Json]) -> tuple[Json, ...]:
    """Return what tells one arm from another."""
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
