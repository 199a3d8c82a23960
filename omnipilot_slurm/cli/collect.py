"""`omnipilot collect`: watch a running server, and keep what it tells."""

from __future__ import annotations

import os
import time
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
from omnipilot_slurm.collect.collector import Collector, Watch, get
from omnipilot_slurm.collect.power import PowerSample, sample_power
from omnipilot_slurm.errors import StoreError, UsageError
from omnipilot_slurm.ingest.job_setup import setup_of_job
from omnipilot_slurm.ingest.told import setup_told
from omnipilot_slurm.store.benchmarks import Benchmark, record_benchmarks
from omnipilot_slurm.store.server_starts import ServerStart, record_server_starts
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    from omnipilot_slurm.store.setups import Setup

FAILED = 1


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8000", show_default=True, help="Where the server listens."
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that the server's output goes to, for what its start says.",
)
@click.option("--model", help="Name of the model, where no decision on the job says it.")
@arm_options
@click.option(
    "--started-at", type=float, help="Unix time at which the server was started. [default: now]"
)
@click.option("--start-timeout", default=3600.0, show_default=True, help="For its start, in s.")
@click.option("--period", default=10.0, show_default=True, help="Between two looks, in s.")
@click.option("--stretch", default=300.0, show_default=True, help="Of one kept row, in s.")
@click.option("--for", "for_s", type=float, help="Watch this long, in s. [default: until it ends]")
@store_options
def collect(  # noqa: PLR0917 (one parameter for each option)
    url: str,
    log: Path | None,
    model: str | None,
    started_at: float | None,
    start_timeout: float,
    period: float,
    stretch: float,
    for_s: float | None,
    config: Path | None,
    store: Path | None,
    **arm: str | None,
) -> int | None:
    """Watch one vLLM server from beside it: its start, then what it delivers.

    Run it in the job before the server (`omnipilot collect --job $SLURM_JOB_ID --log LOG &`), or by
    a TaskProlog. Stretches of steady load become rows of the database, which `omnipilot adapt`
    learns from; others are told and not kept. It ends when the server does.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url must start with http:// or https://, was {url!r}")
    told = told_of(arm)
    path = store_path(config, store)
    catalog = Catalog.load(site=next(iter(site_folders(config)), None))
    watch = Watch(
        url=url.rstrip("/"),
        setup=_setup(told, model, path, catalog),
        started_at=time.time() if started_at is None else started_at,
        log=log,
        job_id=told.get("job_id"),
        start_timeout_s=start_timeout,
        period_s=period,
        stretch_s=stretch,
    )
    until = float("inf") if for_s is None else time.time() + for_s
    rows = _Store(path)
    outcome = Collector(watch, _Here(), rows, _say).run(until)
    return FAILED if rows.n_waiting or outcome is not LaunchOutcome.OK else None


def _setup(told: dict[str, str], model: str | None, path: Path, catalog: Catalog) -> Setup:
    """Return the server: as told, over what is known of its job."""
    known = None
    if "job_id" in told:
        with opened_for_writing(path) as connection:
            known = setup_of_job(connection, told["job_id"])
    return setup_told(told, model, known, catalog)


class _Here:
    """This machine's clock, wire and GPUs; those that the job may see."""

    def __init__(self) -> None:
        self._gpus = os.environ.get("CUDA_VISIBLE_DEVICES")

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)

    def get(self, url: str, /) -> str | None:
        return get(url)

    def power(self) -> PowerSample | None:
        return sample_power(gpus=self._gpus)


class _Store:
    """The database, opened for each row: nobody waits for a collector that watches.

    Rows that it does not take (locked, no room) are told of, and tried again with the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts: list[ServerStart] = []
        self._runs: list[Benchmark] = []

    def start(self, row: ServerStart, /) -> None:
        self._starts.append(row)
        self._write()

    def run(self, row: Benchmark, /) -> None:
        self._runs.append(row)
        self._write()

    @property
    def n_waiting(self) -> int:
        """How many rows the database has not taken yet."""
        return len(self._starts) + len(self._runs)

    def _write(self) -> None:
        try:
            with opened_for_writing(self._path) as connection:
                record_server_starts(connection, self._starts)
                record_benchmarks(connection, self._runs, at=time.time())
        except StoreError as error:
            _say(f"{error}; {self.n_waiting} rows wait")
            return
        self._starts, self._runs = [], []


def _say(text: str) -> None:
    click.echo(text, err=True)
