"""`omnipilot advise JOB.sh`: what sbatch would be answered, before sbatch."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.catalog.local import FolderLookup, PatientFolders
from omnipilot_slurm.cli.decision_text import shown
from omnipilot_slurm.cli.detect import parse_variables
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.decide.decision import decide, mode_of
from omnipilot_slurm.records import Mode, Starts, Verdict
from omnipilot_slurm.resources import SITE_FOLDER, shipped_path
from omnipilot_slurm.script import directives
from omnipilot_slurm.site_files import read_files

if TYPE_CHECKING:
    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.site_files import SiteFiles

_BUDGET_S = 5.0
_FOLDER_S = 3.0
_REFUSED, _UNSURE = 3, 4


@click.command()
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A snapshot of the cluster, as omnipilotd publishes it or written by hand.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with the site's settings. [default: {SITE_FOLDER}]",
)
@click.option("--env", "variables", multiple=True, metavar="K=V", help="A variable set at sbatch.")
@click.option("--user", help="Decide as for this user. [default: you]")
@click.option("--account", help="Decide as for this account.")
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def advise(  # noqa: PLR0917 (one parameter for each option)
    job: Path,
    args: tuple[str, ...],
    cluster: Path | None,
    config: Path | None,
    variables: tuple[str, ...],
    user: str | None,
    account: str | None,
    *,
    as_one_json: bool,
) -> int:
    """Say what JOB would be answered at sbatch: start, fail, move, and what it would deliver.

    ARGS behind `--` are the arguments that sbatch would pass to the script. The answer is the one
    that enforce mode gives, whatever the site's own mode is.
    """
    folders = [folder for folder in (config or SITE_FOLDER,) if folder.is_dir()]
    files = read_files(folders)
    snapshot, said = _snapshot(cluster, files)
    # what this user may read may be read for this user
    folders_read = FolderLookup(roots=[Path("/")], public_only=False)
    site = files.site(snapshot, PatientFolders(folders_read, _FOLDER_S), files.experience())
    script = job.read_bytes()
    environment = {**_inherited(script), **parse_variables(variables)}
    submission, _ = directives.submission_of(script, args=args, environment=environment)
    submission = replace(submission, user_name=user, account=account or submission.account)
    enforced = replace(site.policy, mode=Mode.ENFORCE, by_partition={}, by_account={}, by_user={})
    deadline = time.monotonic() + _BUDGET_S
    decision = decide(
        submission,
        replace(site, policy=enforced),
        expired=lambda: time.monotonic() > deadline,
        all_arms=True,
    )
    folders_read.close()
    mode = mode_of(submission, site, directives.omnipilot(script))
    record = as_json(decision)
    if as_one_json:
        click.echo(json.dumps(record | {"mode": str(mode)}, ensure_ascii=False))
    else:
        click.echo(f"cluster: {said}; mode there: {mode}", err=True)
        click.echo(shown(record, script), nl=False)
    return _exit_code(decision)


def _snapshot(cluster: Path | None, files: SiteFiles) -> tuple[Snapshot, str]:
    """Return the snapshot to advise on and where it came from: given, published, or the example."""
    if cluster is not None:
        return load_snapshot(cluster.read_bytes(), file=str(cluster)), str(cluster)
    published = files.published()
    if published is not None:
        said = f"{published.file}, as published"
        return load_snapshot(published.data, file=published.file), said
    path = shipped_path("etc", "cluster-example.yaml")
    said = "the example of this package, not yours (no snapshot is published here; see --cluster)"
    return load_snapshot(path.read_bytes(), file=str(path)), said


def _inherited(script: bytes) -> dict[str, str]:
    """Return the variables of this shell that occur in the script, as sbatch would export them."""
    text = script.decode("utf-8", "replace")
    return {
        name: value
        for name, value in os.environ.items()
        if f"${name}" in text or f"${{{name}" in text
    }


def _exit_code(decision: Decision) -> int:
    finding = decision.finding
    if finding.verdict is Verdict.REJECT:
        return _REFUSED
    asked = finding.asked
    if finding.verdict is Verdict.ABSTAIN or (asked and asked.starts is Starts.UNSURE):
        return _UNSURE
    return _REFUSED if asked and asked.starts is Starts.FAILS else 0
