"""`omnipilot probe`: benchmarks worth their GPU-hours, as Slurm job arrays."""

from __future__ import annotations

import click

from omnipilot_slurm.cli.lazy import LazyGroup, Subcommand

#: one line each, in alphabetical order
COMMANDS: dict[str, Subcommand] = {
    "plan": Subcommand("omnipilot_slurm.cli.probe_plan:plan", "What to measure next, as jobs."),
    "run": Subcommand("omnipilot_slurm.cli.probe_run:run", "One cell of a plan, in its job."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def probe() -> None:
    """Measure what would change the choice, within a budget of GPU-hours."""
