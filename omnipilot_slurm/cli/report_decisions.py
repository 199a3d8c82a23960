"""`omnipilot report decisions`: what was decided, and what acting on it is worth."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from omnipilot_slurm.cli.site_store import (
    opened,
    since_time,
    site_folders,
    store_options,
    store_path,
)
from omnipilot_slurm.records import Mode, Verdict
from omnipilot_slurm.store.choices import choices_by_kind
from omnipilot_slurm.store.decision_report import DecisionReport, Effect, report_on
from omnipilot_slurm.store.decisions import briefs
from omnipilot_slurm.store.start_report import Starts, starts_by_word
from omnipilot_slurm.text_table import table
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TOP: Final = 8
_SHOWN: Final = 90
#: the rows of the table of effects
_EFFECTS = (
    "jobs moved or filled in",
    "jobs refused",
    "starts that fail for certain",
    "  GPU-hours they hold",
    "  dollars",
    "moves to where it is worth more",
    "  dollars gained (80 % bounds)",
    "  GPU-hours, to the time limits",
    "at risk where the proposal is wrong",
    "  GPU-hours",
    "  dollars",
)
#: what was said of a server's start, as start_report names it
_SAID = {
    "starts": "said to start",
    "unsure": "said to be uncertain",
    "fails": "said to fail for certain",
    "moved": "moved to where it starts",
}
_VERDICTS = tuple(str(verdict) for verdict in Verdict)
_MODES = tuple(str(mode) for mode in Mode)


@click.command("decisions")
@click.option(
    "--since",
    default="7d",
    show_default=True,
    help="Decisions from then on: a span (12h, 7d, 2w) or a date (2026-11-29).",
)
@store_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def decisions(since: str, config: Path | None, store: Path | None, *, as_one_json: bool) -> None:
    """Sum up the decisions in the daemon's database: verdicts, what acting on them is worth.

    Needs to read that database, so it is for administrators on the controller.
    """
    at = since_time(since, time.time())
    hours = load_utility(site_folders(config)).failed_launch_hours
    path = store_path(config, store)
    with opened(path) as connection:
        report = report_on(briefs(connection, at), failed_launch_hours=hours)
        made = choices_by_kind(connection, at)
        started = starts_by_word(connection, at)
    if as_one_json:
        plain = {
            "since": at,
            "failed_launch_hours": hours,
            **_plain(report),
            "started": {said: asdict(counts) for said, counts in started.items()},
            "choices": made,
        }
        click.echo(json.dumps(plain, ensure_ascii=False))
        return
    if report.n == 0:
        click.echo(f"no decisions since {_when(at)} in {path}")
        return
    click.echo("\n".join(_text(report, started, made, hours)))


def _plain(report: DecisionReport) -> dict[str, Any]:
    """Return a report as JSON has it."""
    return {
        "n": report.n,
        "n_users": len(report.users),
        "first_at": report.first_at,
        "last_at": report.last_at,
        "would_be_by_mode": {
            verdict: {
                mode: n for (one, mode), n in sorted(report.by_mode.items()) if one == verdict
            }
            for verdict in sorted({verdict for verdict, _ in report.by_mode})
        },
        "by_verdict": dict(report.by_verdict),
        "done": asdict(report.done),
        "not_done": asdict(report.not_done),
        "advised": asdict(report.advised),
        "reasons": [
            {"verdict": verdict, "code": code, "n": n, "text": report.texts[code]}
            for (verdict, code), n in report.reasons.most_common()
        ],
        "abstained": dict(report.abstained.most_common()),
        "axes": dict(report.axes.most_common()),
        "opted_out": {"n": report.opted_out.total(), "n_users": len(report.opted_out)},
    }


def _text(
    report: DecisionReport, started: Mapping[str, Starts], made: Mapping[str, int], hours: float
) -> Iterator[str]:
    n_users = len(report.users)
    yield (
        f"{_count(report.n, 'decision')} on jobs of {_count(n_users, 'user')},"
        f" {_when(report.first_at)} to {_when(report.last_at)}"
    )
    yield ""
    yield from _verdicts(report)
    yield ""
    yield from _effects(report, hours)
    if started:
        yield ""
        yield from _starts(started)
    if report.reasons:
        yield ""
        yield from _reasons(report)
    if report.abstained:
        yield ""
        yield f"abstentions: {_listed(report.abstained)}"
        if report.axes:
            yield f"  outside of what was measured: {_listed(report.axes)}"
    yield ""
    yield (
        f"opted out: {_count(report.opted_out.total(), 'job')}"
        f" of {_count(len(report.opted_out), 'user')}"
    )
    yield f"what users did with proposals: {_listed(Counter(made)) or 'nothing is known yet'}"


def _verdicts(report: DecisionReport) -> list[str]:
    """Return the table of verdicts as enforce mode would have them, by the mode in force."""
    unknown = {mode for _, mode in report.by_mode} - set(_MODES)
    modes = [*_MODES, *sorted(unknown)]
    rows = [("verdict in enforce mode", *(f"in mode {mode}" for mode in modes), "answered")]
    for verdict in _VERDICTS:
        counts = (f"{report.by_mode[verdict, mode]:,}" for mode in modes)
        rows.append((verdict, *counts, f"{report.by_verdict[verdict]:,}"))
    return table(rows, right=range(1, len(modes) + 2))


def _effects(report: DecisionReport, hours: float) -> list[str]:
    heads = ("what acting on them is worth", "done", "would be done", "only advised")
    columns = [_effect(effect) for effect in (report.done, report.not_done, report.advised)]
    rows = [heads, *((name, *cells) for name, *cells in zip(_EFFECTS, *columns, strict=True))]
    return [
        *table(rows, right=(1, 2, 3)),
        f"a start that fails is taken to hold its GPUs for {hours:g} h (failed_launch_hours)",
    ]


def _effect(effect: Effect) -> tuple[str, ...]:
    """Return the cells under each other in one column, those of _EFFECTS."""
    gain = f"{effect.gain_usd_mid:,.2f} ({effect.gain_usd_lo:,.2f} to {effect.gain_usd_hi:,.2f})"
    moved = f"{effect.gpu_hours_asked:,.0f} -> {effect.gpu_hours_moved:,.0f}"
    return (
        f"{effect.n_rewrites:,}",
        f"{effect.n_rejects:,}",
        f"{effect.n_failing:,}",
        f"{effect.failing_gpu_hours:,.1f}",
        f"{effect.failing_usd:,.2f}",
        f"{effect.n_gains:,}",
        gain if effect.n_gains else "",
        moved if effect.n_gains else "",
        "",
        f"{effect.risk_gpu_hours:,.1f}",
        f"{effect.risk_usd:,.2f}",
    )


def _starts(started: Mapping[str, Starts]) -> list[str]:
    """Return how servers really started, by what was said of them."""
    rows = [("how servers really started", "came up", "did not", "not known")]
    for said, name in _SAID.items():
        if said in started:
            n = started[said]
            rows.append((name, f"{n.n_up:,}", f"{n.n_failed:,}", f"{n.n_unknown:,}"))
    return table(rows, right=(1, 2, 3))


def _reasons(report: DecisionReport) -> list[str]:
    rows = [("top reasons", "", "n", "for example")]
    for (verdict, code), n in report.reasons.most_common(_TOP):
        rows.append((verdict, code, f"{n:,}", _short(report.texts[code])))
    return table(rows, right=(2,))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.most_common())


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _when(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
