"""What commands about a batch script decide on: the submission as sbatch would make it, the site.

In: the options that `advise` and `whatif` share. Out: a JobQuestion, from which decisions are made.
Called by those commands.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnipilot_slurm.catalog.local import FolderLookup, PatientFolders
from omnipilot_slurm.cli.detect import parse_variables
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.decide.decision import decide, mode_of
from omnipilot_slurm.records import Mode
from omnipilot_slurm.resources import SITE_FOLDER, shipped_path
from omnipilot_slurm.script import directives
from omnipilot_slurm.site_files import read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.site_files import SiteFiles

_BUDGET_S = 5.0
_FOLDER_S = 3.0
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.argument("job", type=_FILE),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    click.option(
        "--cluster",
        type=_FILE,
        help="A snapshot of the cluster, as omnipilotd publishes it or written by hand.",
    ),
    click.option(
        "--config",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help=f"Folder with the site's settings. [default: {SITE_FOLDER}]",
    ),
    click.option(
        "--env", "variables", multiple=True, metavar="K=V", help="A variable set at sbatch."
    ),
    click.option("--user", help="Decide as for this user. [default: you]"),
    click.option("--account", help="Decide as for this account."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What was written on the command line of a job and where it would be submitted."""

    job: Path
    args: tuple[str, ...]
    cluster: Path | None
    config: Path | None
    variables: tuple[str, ...]
    user: str | None
    account: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuestion:
    """One script and all that its decision rests on; `site` lets us act, whatever its own mode.

    `mode` is how far the site really goes with this job, `cluster` says whose nodes these are.
    """

    script: bytes
    submission: Submission
    site: Site
    mode: Mode
    cluster: str
    files: SiteFiles
    folders: tuple[Path, ...]

    def decided(self, site: Site | None = None) -> Decision:
        """Return the decision with every arm rated, on another site if one is given."""
        deadline = time.monotonic() + _BUDGET_S
        return decide(
            self.submission,
            site or self.site,
            expired=lambda: time.monotonic() > deadline,
            all_arms=True,
        )


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command JOB, ARGS and the options that make up JobOptions."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def job_question(options: JobOptions) -> Iterator[JobQuestion]:
    """Read the script and the site; models in folders are looked up as long as the block runs."""
    folders = tuple(folder for folder in (options.config or SITE_FOLDER,) if folder.is_dir())
    files = read_files(folders)
    snapshot, said = snapshot_of(options.cluster, files)
    # what this user may read may be read for this user
    folders_read = FolderLookup(roots=[Path("/")], public_only=False)
    site = files.site(snapshot, PatientFolders(folders_read, _FOLDER_S), files.experience())
    script = options.job.read_bytes()
    environment = {**_inherited(script), **parse_variables(options.variables)}
    submission, _ = directives.submission_of(script, args=options.args, environment=environment)
    submission = replace(
        submission, user_name=options.user, account=options.account or submission.account
    )
    enforced = replace(site.policy, mode=Mode.ENFORCE, by_partition={}, by_account={}, by_user={})
    question = JobQuestion(
        script=script,
        submission=submission,
        site=replace(site, policy=enforced),
        mode=mode_of(submission, site, directives.omnipilot(script)),
        cluster=said,
        files=files,
        folders=folders,
    )
    with closing(folders_read):
        yield question


def snapshot_of(cluster: Path | None, files: SiteFiles) -> tuple[Snapshot, str]:
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
