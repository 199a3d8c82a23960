"""`omnipilot predict`: predictions for rows of the tidy schema, one output row each."""

from __future__ import annotations

import csv
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.predict.support import OUT
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.train.dataset import feature_row
from omnipilot_slurm.train.load import gpu_finder, tell
from omnipilot_slurm.train.schema import TARGETS, read_csv

if TYPE_CHECKING:
    from omnipilot_slurm.predict.predictor import Predictions

_BOUNDS = ("lo", "mid", "hi")
_NO_NUMBERS = [""] * len(TARGETS) * len(_BOUNDS)


@click.command()
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Rows of the tidy schema; columns of targets may be absent.",
)
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="CSV to write."
)
@click.option(
    "--artifact",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the cost model. [default: the shipped one]",
)
def predict(*, data: Path, out: Path, folder: Path | None) -> None:
    """Write <target>_lo, _mid and _hi of every target, tier and axis for each row, in order.

    A row out of support has a tier and an axis but no numbers; so has one of another engine, and
    one with a fault, whose axis is the column.
    """
    model, _ = artifact.read(folder or shipped_path("etc", "artifact"))
    reading = read_csv([data], drop_faulty=True)
    tell(reading, lambda text: click.echo(text, err=True))
    find = gpu_finder()
    found = Predictor(model).predict([feature_row(row, find) for row in reading.rows])
    with out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            [*(f"{name}_{bound}" for name in TARGETS for bound in _BOUNDS), "tier", "axis"]
        )
        writer.writerows(
            _cells(found, place) if isinstance(place, int) else [*_NO_NUMBERS, OUT, place]
            for place in reading.places
        )
    tiers = [
        found.support[place].tier if isinstance(place, int) else OUT for place in reading.places
    ]
    counts = ", ".join(f"{tiers.count(tier)} {tier}" for tier in ("in", "low", "out"))
    click.echo(f"wrote {len(tiers)} rows to {out}: {counts}")


def _cells(found: Predictions, row: int) -> list[str]:
    support = found.support[row]
    bounds = [getattr(found.targets[name], bound)[row] for name in TARGETS for bound in _BOUNDS]
    numbers = [f"{value:.6g}" if isfinite(value) else "" for value in bounds]
    return [*numbers, support.tier, support.axes[0] if support.axes else ""]
