"""`omnipilot ingest sacct`: jobs of Slurm's accounting, live or from dumps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.cli.site_store import (
    opened_for_writing,
    since_time,
    site_folders,
    store_options,
    store_path,
)
from omnipilot_slurm.ingest.accounting import Keeping, Tally
from omnipilot_slurm.ingest.decided import DecidedJobs
from omnipilot_slurm.ingest.sacct_file import ingest_file
from omnipilot_slurm.ingest.sacct_live import first_time, ingest_live
from omnipilot_slurm.ingest.sacct_table import Skipped
from omnipilot_slurm.ingest.site_key import key_path, load_key, user_keys
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

_DAY_S = 86_400.0
_DUMP = """How a dump is made:

\b
  export SLURM_TIME_FORMAT=%s
  sacct -aDXP -S now-30days -o JobID,JobIDRaw,User,Partition,\\
  ReqTRES,AllocTRES,NNodes,Submit,Eligible,Start,End,TimelimitRaw,\\
  State,ExitCode,NodeList,AdminComment,WorkDir,SubmitLine,JobName
"""


@click.command(epilog=_DUMP)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A dump, of `sacct -P` with its header line or of `sacct --json`; may be repeated.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="From when on: 2026-01-31, 2026-01-31T14:00, or 30d. [default: where the last one ended]",
)
@click.option(
    "--user-names",
    type=click.Choice(["hash", "keep"]),
    default="hash",
    show_default=True,
    help="Keep users as hashes under the site's key, or by name.",
)
@store_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def sacct(
    files: tuple[Path, ...],
    since: str | None,
    user_names: str,
    config: Path | None,
    store: Path | None,
    *,
    as_one_json: bool,
) -> int | None:
    """Read jobs with GPUs from Slurm's accounting: demand, waits, how decided jobs ended.

    Without --file this cluster's own sacct is asked, from where the last reading ended. What was
    read before is read again at no harm; a reading that is broken off goes on where it was. Scripts
    and job names are not kept.
    """
    path = store_path(config, store)
    now = time.time()
    days = load_settings(site_folders(config)).settings.daemon.retention_days
    oldest = now - days * _DAY_S
    user_key = _user_key(path, user_names)
    asked_since = None if since is None else since_time(since, now)
    began = time.monotonic()
    total = Tally()
    with opened_for_writing(path) as connection:
        for file in files:
            seen_at = min(now, file.stat().st_mtime)
            keeping = Keeping(
                user_key=user_key,
                oldest=max(oldest, asked_since or oldest),
                at=now,
                seen_at=seen_at,
                decided=DecidedJobs(),
            )
            total.add(ingest_file(connection, file, keeping), str(file))
        if not files:
            keeping = Keeping(
                user_key=user_key, oldest=oldest, at=now, seen_at=now, decided=DecidedJobs()
            )
            start = first_time(connection, asked_since, keeping)
            total.add(ingest_live(connection, start, keeping), "sacct")
    return _told(total, time.monotonic() - began, as_one_json=as_one_json)


def _user_key(store: Path, user_names: str) -> Callable[[str], str | None]:
    if user_names == "keep":
        return lambda name: name or None
    store.parent.mkdir(parents=True, exist_ok=True)
    return user_keys(load_key(key_path(store)))


def _told(total: Tally, elapsed_s: float, *, as_one_json: bool) -> int | None:
    if as_one_json:
        click.echo(json.dumps(total.as_json() | {"elapsed_s": round(elapsed_s, 2)}))
    else:
        click.echo(total.shown())
    for fault in total.faults:
        click.echo(fault, err=True)
    if total.n_faults > len(total.faults):
        click.echo(f"... and {total.n_faults - len(total.faults)} more", err=True)
    if total.n_jobs == 0 and total.skipped[Skipped.NO_GPUS]:
        click.echo(
            "hint: no job has GPUs; is gres/gpu in AccountingStorageTRES of slurm.conf?", err=True
        )
    return 1 if total.n_faults and not total.n_jobs else None
