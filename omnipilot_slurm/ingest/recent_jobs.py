"""Past jobs with their scripts: from the accounting of this cluster, or from a folder.

In: a span of time, or paths. Out: PastJobs, newest first. Called by `omnipilot replay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.batch_scripts import batch_scripts
from omnipilot_slurm.ingest.past_job import PastJob
from omnipilot_slurm.ingest.sacct_job import SacctJob
from omnipilot_slurm.ingest.sacct_live import accounted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: no batch script is longer; Slurm's own limit is 4 MiB
_MAX_BYTES = 5 << 20


def past_jobs(start: float, end: float, *, limit: int) -> Iterator[PastJob]:
    """Yield the jobs with GPUs of [start, end) that have a script, one for each array.

    Raises: SlurmError when sacct fails.
    """
    jobs = {
        job.job_id.partition("_")[0]: job
        for job in accounted(start, end)
        if isinstance(job, SacctJob) and "+" not in job.job_id
    }
    newest = sorted(jobs.values(), key=lambda job: job.submitted_at, reverse=True)[:limit]
    by_id = {job.job_id: job for job in newest}
    for job_id, script in batch_scripts(list(by_id)):
        yield PastJob(id=job_id, script=script, accounted=by_id[job_id])


def scripts_in(paths: Sequence[Path]) -> Iterator[PastJob]:
    """Yield the scripts among files and, in folders, among all files that begin with #!.

    Raises: DataError when one cannot be read.
    """
    for path in paths:
        if path.is_dir():
            for file in sorted(one for one in path.rglob("*") if one.is_file()):
                script = _read(file)
                if script.startswith(b"#!"):
                    yield PastJob(id=str(file.relative_to(path)), script=script)
        else:
            yield PastJob(id=str(path), script=_read(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
