"""`omnipilot adapt`: the site's own rows into the model that decides, where they make it better."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from omnipilot_slurm import site_model
from omnipilot_slurm.cli.site_models import (
    existing_store,
    live_outcomes,
    model_in_force,
    models_option,
    rows_of_store,
)
from omnipilot_slurm.cli.site_store import site_folders, store_options
from omnipilot_slurm.errors import DataError, UsageError
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.drift import adapted_alpha
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.train.load import load_dataset
from omnipilot_slurm.train.site_rows import joined
from omnipilot_slurm.train.site_update import Update, update

if TYPE_CHECKING:
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.gate import Verdict
    from omnipilot_slurm.train.site_rows import SiteRows


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="More rows, as CSV of the tidy schema; may be given several times.",
)
@store_options
@models_option
@click.option("--dry-run", is_flag=True, help="Judge, and put nothing in force.")
@click.option("--rollback", is_flag=True, help="Put the model before the one in force into force.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def adapt(
    *,
    data: tuple[Path, ...],
    config: Path | None,
    store: Path | None,
    models: Path | None,
    dry_run: bool,
    rollback: bool,
    as_json: bool,
) -> None:
    """Correct the shipped cost model by the site's own measured rows.

    Rows come from the database and from --data. A target is promoted only where held-out cells do
    not get worse; what is not stays as it was. omnipilotd takes the new model at its next poll.
    """
    settings = load_settings(site_folders(config)).settings.daemon
    folder = models or settings.model
    if folder is None:
        raise UsageError("daemon.model is null: the shipped model is used", hint="or use --models")
    if rollback:
        with site_model.writing(folder):
            now = site_model.roll_back(folder)
        said = "the shipped model" if now is None else f"model {now}"
        click.echo(json.dumps({"in_force": now}) if as_json else f"{said} is in force again")
        return
    stored = rows_of_store(existing_store(store, settings))
    rows = _rows(data, stored)
    shipped, _ = artifact.read(shipped_path("etc", "artifact"))
    with site_model.writing(folder), threadpool_limits(2):
        before = model_in_force(folder)
        alpha = adapted_alpha(live_outcomes(stored, before))
        found = update(shipped, rows, before.learned, alpha)
        number = None
        if found.model is not None and not dry_run:
            number = site_model.promote(folder, found.model, found.about)
    click.echo(_as_json(found, number) if as_json else _as_text(found, number, dry_run=dry_run))


def _rows(files: tuple[Path, ...], stored: SiteRows) -> Dataset:
    """Return all rows of files and database.

    Raises: DataError when there is none.
    """
    if stored.n_left_out:
        _say(
            f"{stored.n_left_out} runs of the database teach nothing: they failed, or their model, "
            "GPU or concurrency is not known"
        )
    parts = [load_dataset(files, _say)] if files else []
    parts += [stored.data] if stored.data is not None else []
    if not parts:
        raise DataError(
            "there is no measured row of this site",
            hint="`omnipilot ingest bench` reads results of benchmarks, --data a CSV",
        )
    return joined(parts)


def _as_json(found: Update, number: int | None) -> str:
    return json.dumps(
        {
            "in_force": number,
            "targets": [
                {**asdict(each), "promoted": each.is_promoted, "reason": each.reason}
                for each in found.verdicts
                if each.n_rows
            ],
        }
    )


def _as_text(found: Update, number: int | None, *, dry_run: bool) -> str:
    lines = [_line(each) for each in found.verdicts if each.n_rows]
    if number is not None:
        lines.append(f"model {number} is in force; --rollback puts the one before back")
    elif dry_run and found.model is not None:
        lines.append("nothing was put in force: --dry-run")
    else:
        lines.append("the model stays as it was")
    return "\n".join(lines)


def _line(verdict: Verdict) -> str:
    word = "promoted" if verdict.is_promoted else "kept"
    return (
        f"{verdict.target:13s} {verdict.n_rows:5d} rows {verdict.n_cells:4d} cells  "
        f"MAPE {verdict.old_mape:.1f} -> {verdict.new_mape:.1f} %  "
        f"coverage {verdict.old_coverage:.2f} -> {verdict.new_coverage:.2f}  "
        f"{word}: {verdict.reason}"
    )


def _say(text: str) -> None:
    click.echo(text, err=True)
