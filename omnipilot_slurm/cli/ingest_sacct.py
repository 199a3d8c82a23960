"""`omnipilot ingest sacct`: jobs of Slurm's accounting, live or from dumps."""

from __future__ import annotations

import json
import time
from dataclasses import replace
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
from omnipilot_slurm.ingest.accounting import Keeping, Recognised, Tally
from omnipilot_slurm.ingest.decided import DecidedJobs
from omnipilot_slurm.ingest.sacct_file import ingest_file
from omnipilot_slurm.ingest.sacct_live import first_time, ingest_live
from omnipilot_slurm.ingest.sacct_table import Skipped
from omnipilot_slurm.ingest.site_key import key_path, load_key, user_keys
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

    from omnipilot_slurm.ingest.sacct_job import SacctJob

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
    "dumps",
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
@click.option(
    "--scripts",
    "n_scripts",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    help="Of so many jobs, the latest, read the script to see whether it starts vLLM.",
)
@store_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def sacct(  # noqa: PLR0917 (one parameter for each option)
    dumps: tuple[Path, ...],
    since: str | None,
    user_names: str,
    n_scripts: int,
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
    since_s = None if since is None else since_time(since, now)
    keeping = Keeping(
        user_key=_user_key(path, user_names),
        oldest=oldest,
        at=now,
        seen_at=now,
        decided=DecidedJobs(),
    )
    began = time.monotonic()
    total, recognised = Tally(), Recognised()
    with opened_for_writing(path) as connection:
        for dump in dumps:
            total.add(_of_dump(connection, dump, keeping, since_s), str(dump))
        if not dumps:
            start = first_time(connection, since_s, keeping)
            tally = ingest_live(connection, start, keeping, n_latest=n_scripts)
            total.add(tally, "sacct")
            recognised = _recognised(
                connection, tally.latest, site_folders(config), again=since_s is not None
            )
    told = total.as_json() | {
        "scripts": recognised.n_scripts,
        "servers": recognised.n_servers,
        "launches": recognised.n_launches,
        "elapsed_s": round(time.monotonic() - began, 2),
    }
    click.echo(json.dumps(told) if as_one_json else _shown(total, recognised))
    if recognised.n_servers and not recognised.n_launches:
        click.echo(
            "hint: on which GPUs they ran is not known; `omnipilot config check` tells why",
            err=True,
        )
    return _complained(total)


def _of_dump(
    connection: sqlite3.Connection, dump: Path, keeping: Keeping, since_s: float | None
) -> Tally:
    of_dump = replace(
        keeping,
        oldest=keeping.oldest if since_s is None else max(keeping.oldest, since_s),
        # what ran when it was written has run until then, as far as it tells
        seen_at=min(keeping.at, dump.stat().st_mtime),
    )
    return ingest_file(connection, dump, of_dump, in_part=since_s is not None)


def _recognised(
    connection: sqlite3.Connection,
    jobs: Collection[SacctJob],
    folders: list[Path],
    *,
    again: bool,
) -> Recognised:
    """Look at the scripts of jobs, on this cluster as it is."""
    if not jobs:
        return Recognised()
    # numpy, the cost model and the parser of scripts are loaded only where a script is read
    from omnipilot_slurm.cli.live_site import live_site  # noqa: PLC0415
    from omnipilot_slurm.ingest.recognition import recognise  # noqa: PLC0415

    return recognise(connection, jobs, live_site(folders), again=again)


def _user_key(store: Path, user_names: str) -> Callable[[str], str | None]:
    if user_names == "keep":
        return lambda name: name or None
    store.parent.mkdir(parents=True, exist_ok=True)
    return user_keys(load_key(key_path(store)))


def _shown(total: Tally, recognised: Recognised) -> str:
    if not recognised.n_scripts:
        return total.shown()
    return (
        f"{total.shown()}\n{recognised.n_scripts} scripts read, {recognised.n_servers} start a "
        f"vLLM server; {recognised.n_launches} launches that nobody was asked about"
    )


def _complained(total: Tally) -> int | None:
    """Tell what cannot be read; return the exit code: 1 where that was all there was."""
    for fault in total.faults:
        click.echo(fault, err=True)
    if total.n_faults > len(total.faults):
        click.echo(f"... and {total.n_faults - len(total.faults)} more", err=True)
    if total.n_jobs == 0 and total.skipped[Skipped.NO_GPUS]:
        click.echo(
            "hint: no job has GPUs; is gres/gpu in AccountingStorageTRES of slurm.conf?", err=True
        )
    return 1 if total.n_faults and not total.n_jobs else None
