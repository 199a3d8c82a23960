"""`omnipilot replay`: what past jobs would have been answered, before anything is enforced."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from omnipilot_slurm.catalog.local import FolderLookup, PatientFolders
from omnipilot_slurm.cli.job_question import snapshot_of
from omnipilot_slurm.cli.site_store import since_time, site_folders
from omnipilot_slurm.ingest.recent_jobs import past_jobs, scripts_in
from omnipilot_slurm.ingest.replaying import replay as replayed
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.site_files import read_files
from omnipilot_slurm.text_table import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.ingest.replaying import Replay, Replayed

_FOLDER_S: Final = 3.0
_SHOWN: Final = 20
_WIDTH: Final = 90


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--since", default="7d", show_default=True, help="Jobs from then on: 12h, 7d, 2026-01-31."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="At most so many of them, the newest.",
)
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
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def replay(
    paths: tuple[Path, ...],
    since: str,
    limit: int,
    cluster: Path | None,
    config: Path | None,
    *,
    as_one_json: bool,
) -> None:
    """Decide on past jobs as enforce mode would, on the cluster as it is now. Nothing is changed.

    PATHS are scripts, or folders of them. Without any, this cluster's accounting is asked for jobs
    with GPUs and their scripts (it keeps them where AccountingStoreFlags has job_script), and what
    would have been answered is held against how they ended. Scripts are not kept.
    """
    files = read_files(site_folders(config))
    snapshot, said = snapshot_of(cluster, files)
    now = time.time()
    jobs = scripts_in(paths) if paths else past_jobs(since_time(since, now), now, limit=limit)
    # whoever replays may read what they may read
    with closing(FolderLookup(roots=[Path("/")], public_only=False)) as folders:
        site = files.site(snapshot, PatientFolders(folders, _FOLDER_S), files.experience())
        found = replayed(jobs, site)
    if as_one_json:
        click.echo(json.dumps(found.as_json(), ensure_ascii=False))
        return
    click.echo(f"cluster: {said}", err=True)
    for line in _shown(found):
        click.echo(line)


def _shown(found: Replay) -> Iterator[str]:
    others = ", ".join(f"{n} {code}" for code, n in found.not_serving.most_common())
    yield f"{found.n_scripts} scripts, {len(found.jobs)} start a vLLM server" + (
        f" (others: {others})" if others else ""
    )
    if not found.jobs:
        return
    kinds: dict[tuple[str, str], list[Replayed]] = {}
    for job in found.jobs:
        kinds.setdefault((job.verdict, job.code), []).append(job)
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [("verdict", "reason", "jobs", "GPU-hours held", "for example")]
    for (verdict, code), jobs in ordered:
        hours = sum(job.gpu_hours or 0.0 for job in jobs)
        rows.append((verdict, code, str(len(jobs)), f"{hours:.1f}", jobs[0].id))
    yield ""
    yield from table(rows, right={2, 3})
    yield from _ends(found)
    yield from _acted(found)


def _ends(found: Replay) -> Iterator[str]:
    """Yield the table of what was foretold of what was asked, against how it ended."""
    ends = found.ends()
    if not ends:
        return
    columns = sorted({ended for _, ended in ends})
    rows = [
        (starts, *(str(ends[starts, ended]) for ended in columns))
        for starts in sorted({starts for starts, _ in ends})
    ]
    yield ""
    yield "what was foretold of the job as it was asked, and how its server ended:"
    yield from table([("foretold", *columns), *rows], right=set(range(1, len(columns) + 1)))


def _acted(found: Replay) -> Iterator[str]:
    """Yield the jobs that would have been changed or refused."""
    acted = [job for job in found.jobs if job.verdict in {"rewrite", "reject"}]
    if not acted:
        return
    yield ""
    yield "would have been changed or refused:"
    for job in acted[:_SHOWN]:
        ended = f", ended {job.ended}" if job.ended else ""
        text = job.text if len(job.text) <= _WIDTH else job.text[: _WIDTH - 3] + "..."
        yield f"  {job.id}: {job.verdict}{ended}: {text}"
    if len(acted) > _SHOWN:
        yield f"  ... and {len(acted) - _SHOWN} more (--json lists all)"
