"""`omnipilot drift`: whether the model in force still holds for what is measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import expm1
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.cli.site_models import (
    existing_store,
    live_outcomes,
    model_in_force,
    models_option,
    rows_of_store,
)
from omnipilot_slurm.cli.site_store import site_folders, store_options
from omnipilot_slurm.predict.drift import adapted_alpha, drifts
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.predict.drift import Drift

ALARM = 4


@click.command()
@store_options
@models_option
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write them for node_exporter's textfile collector.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def drift(
    *,
    config: Path | None,
    store: Path | None,
    models: Path | None,
    metrics: Path | None,
    as_json: bool,
) -> int | None:
    """Compare what was measured since the model was made with what it predicts.

    A line each target, arm and minor version of the engine: coverage of the 80 % interval and bias
    over the last outcomes. An alarm is told on stderr and by exit code 4.
    """
    settings = load_settings(site_folders(config)).settings.daemon
    found = model_in_force(models or settings.model)
    live = live_outcomes(rows_of_store(existing_store(store, settings)), found)
    groups, alpha = drifts(live), adapted_alpha(live)
    if metrics is not None:
        _replace(metrics, exposition(groups, alpha))
    if as_json:
        plain = [{**asdict(each), "group": each.group._asdict()} for each in groups]
        click.echo(json.dumps({"alpha": alpha, "groups": plain}))
    else:
        for line in shown(groups, alpha):
            click.echo(line)
    alarms = [each for each in groups if each.alarm]
    for each in alarms:
        click.echo(f"drift: {' '.join(each.group)}: {each.alarm}", err=True)
    return ALARM if alarms else None


def shown(groups: Sequence[Drift], alpha: float) -> list[str]:
    """Return the lines that people read."""
    if not groups:
        return ["nothing has been measured since the model was made"]
    return [
        *(
            f"{each.group.target:13s} {each.group.arm:32s} {each.group.engine or '?':6s} "
            f"{each.n:3d}  coverage {each.coverage:.2f}  bias {100 * expm1(each.bias):+.0f} %"
            f"{'  new version' if each.is_new else ''}{'  ALARM' if each.alarm else ''}"
            for each in groups
        ),
        f"intervals are to miss {100 * alpha:.1f} % of outcomes from the next adapt on",
    ]


def exposition(groups: Sequence[Drift], alpha: float) -> str:
    """Return gauges in Prometheus' text format."""
    lines = [f"omnipilot_adapted_alpha {alpha}"]
    for each in groups:
        labels = ",".join(f'{name}="{text}"' for name, text in each.group._asdict().items())
        figures = {
            "outcomes": each.n,
            "coverage": each.coverage,
            "bias_log": each.bias,
            "alarm": int(bool(each.alarm)),
        }
        lines += [f"omnipilot_drift_{name}{{{labels}}} {value}" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
