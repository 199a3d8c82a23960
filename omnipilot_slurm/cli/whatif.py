"""`omnipilot whatif JOB.sh`: how the decision changes with a figure of the site's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from omnipilot_slurm.cli import sweep as sweeps
from omnipilot_slurm.cli.decision_text import described, place
from omnipilot_slurm.cli.job_question import JobOptions, job_options, job_question
from omnipilot_slurm.cli.site_changes import (
    SiteChange,
    changed_site,
    checked,
    is_whole,
    parse_change,
    parse_price,
)
from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.text_table import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.cli.job_question import JobQuestion
    from omnipilot_slurm.decide.site import Site

Json = Any


class Answer(NamedTuple):
    """What a decision comes to: two that are equal here are the same to the user."""

    verdict: str
    place: str

    @classmethod
    def of(cls, record: Mapping[str, Json]) -> Answer:
        """Return what a decision as plain values comes to."""
        arm = record["chosen"] or record["asked"]
        own = "" if record["chosen"] else " (as asked)"
        where = "none" if arm is None else f"{described(arm)} in {arm['partition']}{own}"
        return cls(record["would_be"], where)

    def __str__(self) -> str:
        return f"{self.verdict}: {self.place}"


@click.command()
@job_options
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of utility, policy, workload, vllm, launch or wait, as in the YAML files.",
)
@click.option(
    "--gpu-price", "prices", multiple=True, metavar="GPU=USD", help="Set a GPU's price per hour."
)
@click.option(
    "--sweep",
    metavar="KEY=FROM:TO:N[:log]",
    help="Try N values of a key, evenly spaced or, with :log, evenly in ratio.",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def whatif(
    *,
    settings: tuple[str, ...],
    prices: tuple[str, ...],
    sweep: str | None,
    as_one_json: bool,
    **options: Any,
) -> None:
    """Show what becomes of JOB if figures of the site were others, and at which value it changes.

    Keys are those of utility.yaml, omnipilot.yaml, priors.yaml and gpus.yaml
    (utility.wait_usd_per_hour=5, workload.default.concurrency=64,
    gpus.h100.price_usd_per_gpu_hour=2.5), read as strictly as there. Nothing is written. Both
    answers are those of enforce mode.
    """
    if not (settings or prices or sweep):
        raise UsageError(
            "nothing is to be changed", hint="--set, --gpu-price or --sweep say what; see --help"
        )
    with job_question(JobOptions(**options)) as question:
        changes = _changes(question, settings, prices)
        site = changed_site(question.site, question.folders, changes)
        found: dict[str, Json] = {"set": {change.key: change.value for change in changes}}
        if changes:
            found["before"] = as_json(question.decided())
            found["after"] = as_json(question.decided(site))
        if sweep is not None:
            found["sweep"] = _swept(question, changes, sweep)
    if as_one_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    click.echo(f"cluster: {question.cluster}; mode there: {question.mode}", err=True)
    parts = [_difference(found)] if changes else []
    parts += [_sweep_text(found["sweep"])] if sweep is not None else []
    click.echo("\n\n".join(parts))


def _changes(
    question: JobQuestion, settings: Sequence[str], prices: Sequence[str]
) -> list[SiteChange]:
    catalog = question.files.catalog
    changes = [checked(parse_change("--set", text), catalog) for text in settings]
    return changes + [parse_price("--gpu-price", text, catalog) for text in prices]


# a sweep


def _swept(question: JobQuestion, changes: Sequence[SiteChange], text: str) -> dict[str, Json]:
    """Return the decision at each point of a sweep and the flips between them."""
    key, sweep = sweeps.parse_sweep(text)
    bare = checked(parse_change("--sweep", f"{key}=?"), question.files.catalog)
    sweep = sweeps.Sweep(
        key=bare.key,
        first=sweep.first,
        last=sweep.last,
        n=sweep.n,
        is_log=sweep.is_log,
        is_whole=is_whole(bare),
    )

    def site_at(value: float) -> Site:
        said, written = f"--sweep {key}={sweeps.as_yaml(value)}", sweeps.as_yaml(value)
        swept = SiteChange(said=said, path=bare.path, value=written)
        return changed_site(question.site, question.folders, [*changes, swept])

    def record_at(value: float) -> dict[str, Json]:
        return as_json(question.decided(site_at(value)))

    points = sweep.points()
    records = [record_at(value) for value in points]
    answers = [Answer.of(record) for record in records]
    found = sweeps.flips(sweep, points, answers, lambda value: Answer.of(record_at(value)))
    return {
        "key": bare.key,
        "spacing": "log" if sweep.is_log else "linear",
        "points": [
            {"value": value, **_point(record)}
            for value, record in zip(points, records, strict=True)
        ],
        "flips": [
            {
                "lo": flip.lo,
                "hi": flip.hi,
                "before": flip.before._asdict(),
                "after": flip.after._asdict(),
            }
            for flip in found
        ],
    }


def _point(record: Mapping[str, Json]) -> dict[str, Json]:
    asked, chosen = record["asked"], record["chosen"]
    return {
        **Answer.of(record)._asdict(),
        "own_usd": None if asked is None else asked["utility_usd"],
        "chosen_usd": None if chosen is None else chosen["utility_usd"],
    }


def _sweep_text(swept: Mapping[str, Json]) -> str:
    rows = [(swept["key"], "verdict", "place", "own, worth $", "proposed, worth $")]
    rows += [
        (
            f"{point['value']:g}",
            point["verdict"],
            point["place"],
            _usd(point["own_usd"]),
            _usd(point["chosen_usd"]),
        )
        for point in swept["points"]
    ]
    return "\n".join([*table(rows, right=(0, 3, 4)), "", *_flip_lines(swept)])


def _flip_lines(swept: Mapping[str, Json]) -> list[str]:
    if not swept["flips"]:
        return ["the answer is the same at every point"]
    return [
        f"flips between {flip['lo']:.4g} and {flip['hi']:.4g}:"
        f" {Answer(**flip['before'])} -> {Answer(**flip['after'])}"
        for flip in swept["flips"]
    ]


# before and after


def _difference(found: Mapping[str, Json]) -> str:
    """Return what is printed of the decision before and after the change."""
    before, after = found["before"], found["after"]
    was, now = Answer.of(before), Answer.of(after)
    settings = ", ".join(f"{key}={value}" for key, value in found["set"].items())
    lines = [f"with {settings}:"]
    if was == now:
        lines.append(f"unchanged  {now}")
    else:
        lines += [f"before     {was}", f"after      {now}"]
    lines += [f"why        {after['reason']['text']}"]
    lines += _gains(before, after)
    return "\n".join([*lines, "", *_worths(before, after)])


def _gains(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """Say what the proposed place is worth more than one's own, before and after."""
    texts = []
    for record in (before, after):
        gain = record["gain"]
        usd = None if gain is None else gain["usd"]
        texts.append(
            "nothing is proposed for its worth"
            if usd is None
            else f"${usd['mid']:,.2f} more (80 %: {usd['lo']:,.2f} to {usd['hi']:,.2f})"
        )
    if texts[0] == texts[1]:
        return [] if before["gain"] is None else [f"proposal   {texts[0]}, as before"]
    return [f"proposal   {texts[0]} -> {texts[1]}"]


def _worths(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """Return the arms whose worth changes, the best one after the change first."""
    # prices change the order in which arms are listed
    were = {place(arm): arm["utility_usd"] for arm in before["arms"]}
    rows = [
        (arm["partition"], described(arm), were.get(place(arm)), arm["utility_usd"])
        for arm in after["arms"]
        # to the cent: sums of many terms differ in their last digits from run to run
        if _usd(were.get(place(arm))) != _usd(arm["utility_usd"])
    ]
    if not rows:
        return ["no arm is worth more or less than before"]
    rows.sort(key=lambda row: -(row[3] if row[3] is not None else float("-inf")))
    head = ("partition", "arm", "worth $ before", "after")
    return table([head, *((*row[:2], _usd(row[2]), _usd(row[3])) for row in rows)], right=(2, 3))


def _usd(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
