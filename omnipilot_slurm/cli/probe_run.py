"""`omnipilot probe run`: one cell of a plan, as the tasks of its job arrays call it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.site_store import (
    opened_for_writing,
    site_folders,
    store_options,
    store_path,
)
from omnipilot_slurm.ingest.benchmark_files import Beside, benchmarks_of
from omnipilot_slurm.probe.task import run_cell
from omnipilot_slurm.store.benchmarks import record_benchmarks

if TYPE_CHECKING:
    from omnipilot_slurm.probe.plan_file import Cell

UNSURE = 4


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("cell", type=click.IntRange(0))
@store_options
def run(*, folder: Path, cell: int, config: Path | None, store: Path | None) -> int | None:
    """Run CELL of the plan in FOLDER on this node, and keep what it measures.

    The server is started, warmed up, measured until the 95 % interval of its throughput is narrow,
    and ended. A cell that is done is not run again; one without budget is not begun.
    """
    path = store_path(config, store)
    catalog = Catalog.load(site=next(iter(site_folders(config)), None))

    def keep(result: Path, one: Cell) -> None:
        beside = Beside(told=one.told, model=one.model)
        rows = benchmarks_of(result.read_bytes(), result.name, beside, catalog)
        with opened_for_writing(path) as connection:
            record_benchmarks(connection, rows, at=time.time())

    found = run_cell(folder, cell, keep, lambda text: click.echo(text, err=True))
    click.echo(f"cell {cell}: {found.why}")
    return None if found.output_tok_s or found.why.startswith("it was done") else UNSURE
