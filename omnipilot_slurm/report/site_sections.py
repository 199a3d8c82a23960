"""What a site's database and model come to, as sections.

In: a connection of database, what is assumed, the drift of the model in force. Out: `Section`s.
Called by `omnipilot report`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from math import expm1, sqrt
from statistics import median
from typing import TYPE_CHECKING

from omnipilot_slurm.decide.success import credible_interval, launch_priors, launch_probability
from omnipilot_slurm.records import Arm, Verdict
from omnipilot_slurm.report.sections import Bar, Section
from omnipilot_slurm.store.decision_report import Effect, report_on
from omnipilot_slurm.store.decisions import briefs
from omnipilot_slurm.store.site_tables import launch_counts, wait_history
from omnipilot_slurm.store.start_report import starts_by_word

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from omnipilot_slurm.decide.assumed import Assumed
    from omnipilot_slurm.predict.drift import Drift, Outcome
    from omnipilot_slurm.store.decision_report import DecisionReport

NOMINAL = 0.8
_Z_95 = 1.96
#: how a lacking axis is brought into support
_CURES = {
    "gpu": "three cells on that card",
    "family": "three cells of that family",
    "precision": "three cells in that format",
    "engine_version": "any cell with that version; it is low confidence until then",
}
_CURE = "one cell near the value asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What the report is of; times are Unix seconds."""

    since: float
    until: float
    failed_launch_hours: float


def site_sections(
    connection: sqlite3.Connection,
    period: Period,
    assumed: Assumed,
    live: Sequence[Outcome],
    drifted: Sequence[Drift],
) -> tuple[Section, ...]:
    """Return the report of a period.

    Raises: StoreError.
    """
    made = report_on(
        briefs(connection, period.since), failed_launch_hours=period.failed_launch_hours
    )
    return (
        _decisions(made, period),
        _savings(made),
        _starts(connection, period.since),
        _launches(connection, period.since, assumed),
        _calibration(live),
        _drift(drifted),
        _abstentions(made),
        _waits(connection, period.since),
        _next(made, drifted),
    )


def _decisions(made: DecisionReport, period: Period) -> Section:
    verdicts = [(str(each), made.by_verdict.get(str(each), 0)) for each in Verdict]
    return Section(
        title="Decisions",
        note=f"{made.n} on jobs of {len(made.users)} users, {_day(period.since)} to "
        f"{_day(period.until)}",
        bars=tuple(Bar(label=name, share=n / made.n, text=str(n)) for name, n in verdicts if n),
    )


def _savings(made: DecisionReport) -> Section:
    effects = {"done": made.done, "in enforce mode": made.not_done, "advised": made.advised}
    heads = ("", "gain $", "80 % bounds", "failing starts", "GPU-hours they hold", "at risk $")
    return Section(
        title="Savings",
        note="Gains add up as if all errors went the same way, since one model makes them.",
        rows=(heads, *((name, *_effect(each)) for name, each in effects.items())),
    )


def _effect(effect: Effect) -> tuple[str, ...]:
    return (
        f"{effect.gain_usd_mid:.2f}",
        f"{effect.gain_usd_lo:.2f} to {effect.gain_usd_hi:.2f}",
        str(effect.n_failing),
        f"{effect.failing_gpu_hours:.1f}",
        f"{effect.risk_usd:.2f}",
    )


def _starts(connection: sqlite3.Connection, since: float) -> Section:
    found = starts_by_word(connection, since)
    rows = [(said, str(c.n_up), str(c.n_failed), str(c.n_unknown)) for said, c in found.items()]
    return Section(
        title="Starts, against what was said of them",
        note=""
        if rows
        else "no decided job has ended yet, or `omnipilot ingest sacct` did not run",
        rows=(("said", "came up", "did not", "not known"), *rows) if rows else (),
    )


def _launches(connection: sqlite3.Connection, since: float, assumed: Assumed) -> Section:
    """Compare launches that passed the checks with the prior before the site had any."""
    counts = launch_counts(connection, since)
    fitted = launch_priors(assumed.launch, counts)
    bars = []
    for group, seen in sorted(counts.by_group.items(), key=str):
        n_gpus, gpu, tensor_parallel, precision, engine = group
        arm = Arm(
            partition=None,
            gres_type=None,
            gpu=gpu,
            n_gpus=n_gpus,
            tensor_parallel=tensor_parallel,
            precision=precision,
        )
        interval = credible_interval(launch_probability(fitted, arm, engine))
        n = seen.n_ok + seen.n_failed
        bars.append(
            Bar(
                label=f"{n_gpus} x {gpu} TP {tensor_parallel} {precision} {engine or ''}".strip(),
                share=seen.n_ok / n,
                lo=interval.lo,
                hi=interval.hi,
                text=f"{seen.n_ok} of {n} came up; expected of the next {interval.lo:.2f} to "
                f"{interval.hi:.2f}",
            )
        )
    note = "" if bars else "no launch is known; what is expected of them is assumed (n = 0)"
    return Section(title="Launches that had passed the checks", note=note, bars=tuple(bars))


def _calibration(live: Sequence[Outcome]) -> Section:
    inside, total = Counter[str](), Counter[str]()
    for each in live:
        total[each.group.target] += 1
        inside[each.group.target] += each.is_inside
    bars = [
        Bar(
            label=target,
            share=inside[target] / n,
            lo=max(NOMINAL - _Z_95 * sqrt(NOMINAL * (1 - NOMINAL) / n), 0.0),
            hi=min(NOMINAL + _Z_95 * sqrt(NOMINAL * (1 - NOMINAL) / n), 1.0),
            text=f"{inside[target]} of {n} inside",
        )
        for target, n in sorted(total.items())
    ]
    return Section(
        title="Calibration of the 80 % intervals",
        note="of what was measured since the model in force was made; the whisker is where 95 % of "
        "coverages lie if the intervals hold"
        if bars
        else "nothing has been measured since the model in force was made",
        bars=tuple(bars),
        mark=NOMINAL,
    )


def _drift(drifted: Sequence[Drift]) -> Section:
    rows = [
        (
            " ".join(filter(None, (each.group.target, each.group.arm, each.group.engine))),
            str(each.n),
            f"{each.coverage:.2f}",
            f"{100 * expm1(each.bias):+.0f} %",
            each.alarm or ("new version" if each.is_new else "-"),
        )
        for each in drifted
    ]
    return Section(
        title="Drift",
        note="" if rows else "nothing to compare yet: `omnipilot collect` watches servers",
        rows=(("of", "outcomes", "coverage", "bias", "alarm"), *rows) if rows else (),
    )


def _abstentions(made: DecisionReport) -> Section:
    n = made.abstained.total()
    return Section(
        title="Abstentions by axis",
        note=f"{n} of {made.n} decisions" if n else "none",
        bars=tuple(
            Bar(label=axis, share=min(count / n, 1.0), text=str(count))
            for axis, count in made.axes.most_common()
        ),
    )


def _waits(connection: sqlite3.Connection, since: float) -> Section:
    groups: dict[tuple[str, int], list[float]] = {}
    means: dict[tuple[str, int], tuple[int, float]] = {}
    for group, sample in wait_history(connection, since).by_group.items():
        key = (group[0], group[1])
        groups.setdefault(key, []).extend(sample.quantiles_h)
        n, mean_h = means.get(key, (0, 0.0))
        total = n + sample.n
        means[key] = (total, (n * mean_h + sample.n * sample.mean_h) / total)
    rows = [
        (
            f"{partition}, {n_gpus} GPUs",
            str(means[partition, n_gpus][0]),
            f"{median(hours):.2f}",
            f"{means[partition, n_gpus][1]:.2f}",
            f"{max(hours):.2f}",
        )
        for (partition, n_gpus), hours in sorted(groups.items())
    ]
    return Section(
        title="Queue waits, in hours",
        note="" if rows else "none is known: `omnipilot ingest sacct` reads the accounting",
        rows=(("", "jobs", "median", "mean", "longest"), *rows) if rows else (),
    )


def _next(made: DecisionReport, drifted: Sequence[Drift]) -> Section:
    rows = [
        (axis, f"{count} abstentions", _CURES.get(axis, _CURE))
        for axis, count in made.axes.most_common()
    ]
    rows += [
        (each.group.arm, each.alarm, "the arm again, then `omnipilot adapt`")
        for each in drifted
        if each.alarm
    ]
    return Section(
        title="What to measure next",
        note="`omnipilot probe plan` ranks arms of a model by worth; `omnipilot bench-plan` finds "
        "the cheapest cell for one decision"
        if rows
        else "nothing stands out",
        rows=(("where", "why", "what would help"), *rows) if rows else (),
    )


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
