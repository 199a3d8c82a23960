"""`omnipilot train`: fit the cost model on measured rows."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from omnipilot_slurm.cli.row_files import row_files
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.train.card import about
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.fit import fit
from omnipilot_slurm.train.load import load_dataset


@click.command()
@row_files
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for model.npz and card.json.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the trees.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Threads that grow the trees.",
)
def train(
    *, first: tuple[Path, ...], more: tuple[Path, ...], out: Path, seed: int, jobs: int
) -> None:
    """Fit everything (physics, kernel, trees, intervals, support) and write model and card."""
    start = time.monotonic()
    data = load_dataset([*first, *more], _say)
    settings = Settings(seed=seed, n_jobs=jobs)
    fitted = fit(data, settings, _progress)
    click.echo("\r\x1b[K" if _is_terminal() else "", err=True, nl=False)
    card = about(data, fitted, settings)
    artifact.write(out, fitted.model, card)
    for target, metrics in card["metrics"].items():
        if metrics["n_rows"]:
            click.echo(
                f"{target:13s} {metrics['n_rows']:5d} rows  MAPE {metrics['mape_percent']:5.2f} %  "
                f"median {metrics['median_percent']:5.2f} %  (out of fold, by cell)"
            )
        else:
            click.echo(f"{target:13s} not learned: too few rows measure it")
    click.echo(f"wrote {out / artifact.ARRAYS} and {out / artifact.CARD}")
    _say(f"{time.monotonic() - start:.0f} s")


def _say(text: str) -> None:
    click.echo(text, err=True)


def _progress(step: str) -> None:
    if _is_terminal():
        click.echo(f"\r\x1b[K{step}", err=True, nl=False)
    else:
        click.echo(step, err=True)


def _is_terminal() -> bool:
    return sys.stderr.isatty()
