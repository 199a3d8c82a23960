"""`omnipilot report`: the site's report; those on single matters, a module each."""

from __future__ import annotations

from pathlib import Path

import click

from omnipilot_slurm.cli.lazy import LazyGroup, Subcommand
from omnipilot_slurm.cli.site_store import store_options

#: one line each, in alphabetical order
REPORTS: dict[str, Subcommand] = {
    "decisions": Subcommand(
        "omnipilot_slurm.cli.report_decisions:decisions", "What was decided, and its worth."
    ),
    "model": Subcommand(
        "omnipilot_slurm.cli.report_model:model", "How good the cost model is, in pictures."
    ),
}


@click.group(cls=LazyGroup, table=REPORTS, invoke_without_command=True)
@click.option("--since", default="30d", show_default=True, help="A span (7d, 2w) or a date.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one page that needs nothing else, instead of text.",
)
@store_options
@click.pass_context
def report(
    context: click.Context,
    since: str,
    html: Path | None,
    config: Path | None,
    store: Path | None,
) -> None:
    """How the site is doing: decisions, savings, launches, calibration, drift, waits.

    The commands below draw or print single matters in full.
    """
    if context.invoked_subcommand is None:
        from omnipilot_slurm.cli.report_site import show  # noqa: PLC0415 (as the commands below)

        show(since, html, config, store)
