"""`omnipilot ingest`: the site's accounting and its benchmarks, into the store."""

from __future__ import annotations

import click

from omnipilot_slurm.cli.lazy import LazyGroup, Subcommand

#: one line each, in alphabetical order
SOURCES: dict[str, Subcommand] = {
    "bench": Subcommand("omnipilot_slurm.cli.ingest_bench:bench", "Results of benchmarks."),
    "sacct": Subcommand("omnipilot_slurm.cli.ingest_sacct:sacct", "Jobs of Slurm's accounting."),
}


@click.group(cls=LazyGroup, table=SOURCES)
def ingest() -> None:
    """Read what the site's jobs and benchmarks teach into the database."""
