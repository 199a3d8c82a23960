"""`omnipilot report`: reports on the model and on past decisions, a module each."""

from __future__ import annotations

import click

from omnipilot_slurm.cli.lazy import LazyGroup, Subcommand

#: one line each, in alphabetical order
REPORTS: dict[str, Subcommand] = {
    "decisions": Subcommand(
        "omnipilot_slurm.cli.report_decisions:decisions", "What was decided, and its worth."
    ),
    "model": Subcommand(
        "omnipilot_slurm.cli.report_model:model", "How good the cost model is, in pictures."
    ),
}


@click.group(cls=LazyGroup, table=REPORTS)
def report() -> None:
    """Draw or print what is known of the cost model and of the decisions made so far."""
