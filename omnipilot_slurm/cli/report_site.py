"""`omnipilot report`: how the site is doing, on a terminal or as one HTML page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.cli.site_models import live_outcomes, model_in_force, rows_of_store
from omnipilot_slurm.cli.site_store import opened, since_time, site_folders, store_path
from omnipilot_slurm.predict.drift import drifts
from omnipilot_slurm.priors_file import load_priors
from omnipilot_slurm.report.page import as_html
from omnipilot_slurm.report.sections import as_text
from omnipilot_slurm.report.site_sections import Period, site_sections
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.report.sections import Section


def show(since: str, html: Path | None, config: Path | None, store: Path | None) -> None:
    """Print the report, or write it as a page."""
    now = time.time()
    sections = _sections(since_time(since, now), now, config, store_path(config, store))
    if html is None:
        click.echo(as_text(sections))
        return
    made_at = datetime.fromtimestamp(now, UTC).strftime("made on %Y-%m-%d at %H:%M UTC")
    html.write_text(as_html(sections, made_at), encoding="utf-8")
    click.echo(f"wrote {html}")


def _sections(since: float, now: float, config: Path | None, store: Path) -> tuple[Section, ...]:
    folders = site_folders(config)
    found = model_in_force(load_settings(folders).settings.daemon.model)
    live = live_outcomes(rows_of_store(store), found)
    hours = load_utility(folders).failed_launch_hours
    period = Period(since=since, until=now, failed_launch_hours=hours)
    with opened(store) as connection:
        return site_sections(connection, period, load_priors(folders), live, drifts(live))
