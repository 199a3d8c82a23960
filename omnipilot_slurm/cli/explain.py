"""`omnipilot explain ID`: the whole decision on a job, again, from the store."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import click

from omnipilot_slurm.cli.decision_text import shown
from omnipilot_slurm.cli.pareto import picture, points
from omnipilot_slurm.cli.pareto_png import draw
from omnipilot_slurm.cli.site_store import opened, store_options, store_path
from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store.decisions import by_id

_MAX_WIDTH: Final = 100


@click.command()
@click.argument("decision_id", metavar="ID")
@store_options
@click.option(
    "--png",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw cost against throughput into this file (needs matplotlib).",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def explain(
    decision_id: str,
    config: Path | None,
    store: Path | None,
    png: Path | None,
    *,
    as_one_json: bool,
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
    if png is not None:
        draw(points(decision.record), png, title=f"decision {decision.id}")
    if as_one_json:
        click.echo(json.dumps({"id": decision.id, "at": decision.at, **decision.record}))
        return
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.at))
    who = " ".join(filter(None, (decision.user_name, decision.account, decision.partition)))
    click.echo(f"decision {decision.id} of {at}, job {decision.job_name or '?'} of {who or '?'}")
    click.echo(shown(decision.record, all_worths=True), nl=False)
    lines = picture(points(decision.record), width=_width(), plain=_is_plain())
    if lines:
        click.echo("\n".join(("", *lines)))


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)


def _is_plain() -> bool:
    """Return whether this terminal's encoding has no lines to draw with."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "└─│".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False
