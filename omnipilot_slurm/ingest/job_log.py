"""The beginning and the end of a job's log, where it can be read.

In: the path with Slurm's %-patterns, and the job. Out: text, "" where there is none. Nothing of it
is kept. Called by decided; the file is a user's, so that it may be anything.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnipilot_slurm.ingest.sacct_job import SacctJob

HEAD_BYTES: Final = 512 << 10
TAIL_BYTES: Final = 128 << 10
_PATTERN: Final = re.compile(r"%(\d*)([A-Za-z%])")


def read_log(job: SacctJob) -> str:
    """Return a log's beginning and end; a file that cannot be read, or is none, is empty."""
    path = log_path(job)
    if not path.startswith("/"):
        return ""
    try:
        # a pipe that nobody writes to must not hold us
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        head = os.pread(descriptor, HEAD_BYTES, 0)
        tail_at = max(len(head), status.st_size - TAIL_BYTES)
        tail = os.pread(descriptor, TAIL_BYTES, tail_at)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return (head + b"\n" + tail).decode("utf-8", "replace")


def log_path(job: SacctJob) -> str:
    """Return where a job's output went, "" where its pattern says more than accounting does."""
    array, _, task = job.job_id.partition("_")
    values = {
        "%": "%",
        "j": job.raw_id,
        "J": job.raw_id,
        "A": array if task else job.raw_id,
        "a": task,
        "x": job.name,
        "u": job.user,
    }
    known = True

    def value(match: re.Match[str]) -> str:
        nonlocal known
        text = values.get(match[2])
        known = known and text is not None
        return (text or "").zfill(int(match[1] or 0)) if (text or "").isdecimal() else text or ""

    path = _PATTERN.sub(value, job.log)
    return path if known else ""
