"""`omnipilot report model`: how good the cost model is, as pictures and as the numbers in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from omnipilot_slurm.cli import model_charts as charts
from omnipilot_slurm.cli.row_files import row_files
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.train.curves import (
    LEVELS,
    errors_by_axis,
    learning_curve,
    reliability,
)
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluation import MIN_GROUP_CELLS
from omnipilot_slurm.train.kept import kept
from omnipilot_slurm.train.load import load_dataset

if TYPE_CHECKING:
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held

_FOLDER = click.Path(file_okay=False, path_type=Path)
POOLED = "all"


@click.command("model")
@row_files
@click.option("--out", required=True, type=_FOLDER, help="Folder for the pictures.")
@click.option(
    "--format", "kind", type=click.Choice(["svg", "png"]), default="svg", show_default=True
)
@click.option("--keep", "folder", type=_FOLDER, help="Folder of predictions kept by evaluate.")
@click.option(
    "--learning-curve/--no-learning-curve",
    "with_curve",
    default=True,
    help="Fit on parts of the cells; this takes the longest.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the trees.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Threads.")
def model(
    *,
    first: tuple[Path, ...],
    more: tuple[Path, ...],
    out: Path,
    kind: str,
    folder: Path | None,
    with_curve: bool,
    seed: int,
    jobs: int,
) -> None:
    """Draw reliability, parity, error by axis and learning curve, out of fold by cell.

    The numbers are printed, the pictures need matplotlib: pip install 'omnipilot_slurm[plots]'.
    """
    pen = charts.Pen(out, kind)
    data = load_dataset([*first, *more], _say)
    settings = Settings(seed=seed, n_jobs=jobs)
    with threadpool_limits(jobs):
        held = kept(folder, data, "cell", settings, progress=_say)
        curve = learning_curve(data, held, settings, progress=_say) if with_curve else []
    lines = reliabilities(data, held)
    for (target, group), shares in lines.items():
        click.echo(f"{target:13s} {group:22s} " + " ".join(f"{share:5.3f}" for share in shares))
    errors = {target: list(errors_by_axis(data, held, target)) for target in LEARNED}
    for target, found in errors.items():
        for each in found:
            click.echo(
                f"{target:13s} {each.axis:12s} {each.value:22s} {each.n_rows:5d} {each.n_cells:4d} "
                f"{each.mape:7.2f} {each.median:7.2f}"
            )
    for point in curve:
        click.echo(
            f"{point.target:13s} {point.share:4.0%} of cells {point.mape:7.2f} {point.median:7.2f}"
        )
    charts.draw_reliability(pen, lines, LEVELS)
    charts.draw_parity(pen, data, held)
    charts.draw_errors(pen, errors)
    if curve:
        charts.draw_curve(pen, curve)
    _say(f"wrote {', '.join(map(str, pen.written))}")


def _say(text: str) -> None:
    click.echo(text, err=True)


def reliabilities(data: Dataset, held: Held) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return the share inside by level, for each learned target pooled and by GPU."""
    cells, gpus = data.groups["cell"], data.table.labels["gpu"]
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for target in LEARNED:
        measured = data.measured[target]
        groups = {POOLED: np.ones(len(data), dtype=bool)}
        groups |= {gpu: np.isin(gpus, gpu) for gpu in np.unique(gpus).tolist()}
        for name, rows in groups.items():
            if len(np.unique(cells[rows & np.isfinite(measured)])) >= MIN_GROUP_CELLS:
                found[target, name] = reliability(measured, held.targets[target], cells, rows)
    return found
