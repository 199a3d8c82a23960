"""`omnipilot explain ID`: the whole decision on a job, again, from the store."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import click

from omnipilot_slurm.cli.decision_text import shown
from omnipilot_slurm.errors import StoreError, UsageError
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.store.database import open_for_reading
from omnipilot_slurm.store.decisions import by_id


@click.command()
@click.argument("decision_id", metavar="ID")
@click.option(
    "--config",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with the site's settings. [default: {SITE_FOLDER}]",
)
@click.option(
    "--store",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The daemon's database. [default: the one its settings name]",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def explain(
    decision_id: str, config: Path | None, store: Path | None, *, as_one_json: bool
) -> None:
    """Show the decision ID again: why, what was changed, the arms side by side.

    ID is what a message or the job's AdminComment (`omnipilot=ID:verdict`) names. Needs to read the
    daemon's database, so it is for administrators on the controller.
    """
    path = store or _store_of(config)
    wanted = decision_id.removeprefix("omnipilot=").partition(":")[0]
    with closing(open_for_reading(path)) as connection:
        decision = by_id(connection, wanted)
    if decision is None:
        raise StoreError(
            f"decision {wanted!r} is not in {path}",
            hint="it may be older than daemon.retention_days, or of another controller",
        )
    if decision.record is None:
        raise StoreError(f"the reasons of decision {wanted!r} are no longer stored in {path}")
    if as_one_json:
        click.echo(json.dumps({"id": decision.id, "at": decision.at, **decision.record}))
        return
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.at))
    who = " ".join(filter(None, (decision.user_name, decision.account, decision.partition)))
    click.echo(f"decision {decision.id} of {at}, job {decision.job_name or '?'} of {who or '?'}")
    click.echo(shown(decision.record), nl=False)


def _store_of(config: Path | None) -> Path:
    folders = [folder for folder in (config or SITE_FOLDER,) if folder.is_dir()]
    path = load_settings(folders).settings.daemon.store
    if path is None:
        raise UsageError("daemon.store is null: no decisions are kept", hint="see omnipilot.yaml")
    return path
