"""`omnipilot ingest bench FILE...`: result files of benchmarks."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.arm_options import arm_options, told_of
from omnipilot_slurm.cli.site_store import (
    opened_for_writing,
    site_folders,
    store_options,
    store_path,
)
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.benchmark_files import Beside, benchmarks_of
from omnipilot_slurm.ingest.job_setup import setup_of_job
from omnipilot_slurm.store.benchmarks import record_benchmarks

if TYPE_CHECKING:
    import sqlite3


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--model", help="Name of the model, where the file does not say it.")
@click.option("--isl", type=click.FloatRange(min=1), help="Prompt tokens, where not said.")
@click.option("--osl", type=click.FloatRange(min=1), help="Output tokens, where not said.")
@click.option("--concurrency", type=click.FloatRange(min=1), help="Or batch size, where not said.")
@arm_options
@store_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def bench(  # noqa: PLR0917 (one parameter for each option)
    files: tuple[Path, ...],
    model: str | None,
    isl: float | None,
    osl: float | None,
    concurrency: float | None,
    config: Path | None,
    store: Path | None,
    *,
    as_one_json: bool,
    **arm: str | None,
) -> int | None:
    """Read results of vllm bench, GuideLLM, inference-perf or a CSV into the database.

    Which program wrote a FILE is seen in it. The arm is told by the options below, else by the file
    (vllm bench serve --metadata gpu=h100 tensor_parallel=2), else by its job. A file in which
    anything is wrong is reported and nothing of it is stored; the others are. Read again, a run
    counts once, and what is told of its arm the last time holds.
    """
    told = told_of(arm)
    catalog = Catalog.load(site=next(iter(site_folders(config)), None))
    done: list[dict[str, object]] = []
    with opened_for_writing(store_path(config, store)) as connection:
        beside = Beside(
            told=told,
            model=model,
            isl=isl,
            osl=osl,
            concurrency=concurrency,
            job=partial(setup_of_job, connection),
        )
        for file in files:
            done.append(_ingest(connection, file, beside, catalog))
            if not as_one_json:
                _show(done[-1])
    if as_one_json:
        click.echo(json.dumps({"files": done}))
    return 1 if any(one["fault"] for one in done) else None


def _ingest(
    connection: sqlite3.Connection, file: Path, beside: Beside, catalog: Catalog
) -> dict[str, object]:
    try:
        rows = benchmarks_of(file.read_bytes(), file.name, beside, catalog)
    except OSError as error:
        return _told(file, fault=f"cannot be read: {error.strerror}")
    except DataError as error:
        return _told(file, fault=str(error))
    n_changed = record_benchmarks(connection, rows, at=time.time())
    return _told(file, n_runs=len(rows), n_changed=n_changed)


def _told(
    file: Path, *, n_runs: int = 0, n_changed: int = 0, fault: str | None = None
) -> dict[str, object]:
    return {"file": str(file), "runs": n_runs, "new_or_changed": n_changed, "fault": fault}


def _show(told: dict[str, object]) -> None:
    if told["fault"] is not None:
        for line in str(told["fault"]).splitlines():
            click.echo(f"{told['file']}: {line}", err=True)
    else:
        click.echo(f"{told['file']}: {told['runs']} runs, {told['new_or_changed']} new or changed")
