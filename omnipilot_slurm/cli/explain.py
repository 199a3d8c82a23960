"""`omnipilot explain ID`: the whole decision on a job, again, from the store."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.cli.decision_text import shown
from omnipilot_slurm.cli.site_store import opened, store_options, store_path
from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store.decisions import by_id

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("decision_id", metavar="ID")
@store_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def explain(
    decision_id: str, config: Path | None, store: Path | None, *, as_one_json: bool
) -> None:
    """Show the decision ID again: why, what was changed, the arms side by side.

    ID is what a message or the job's AdminComment (`omnipilot=ID:verdict`) names. Needs to read the
    daemon's database, so it is for administrators on the controller.
    """
    path = store_path(config, store)
    wanted = decision_id.removeprefix("omnipilot=").partition(":")[0]
    with opened(path) as connection:
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
