"""How a job's server ended, from its log where that can be read.

In: a job of the accounting, with the path of its log in Slurm's %-patterns. Out: an Ending. Nothing
of the log is kept. Called by decided, recognition and replaying; the file is a user's, so that it
may be anything.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.ingest.ending import NO_LOG, Ending, ending, signs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.ingest.sacct_job import SacctJob

HEAD_BYTES: Final = 512 << 10
TAIL_BYTES: Final = 128 << 10
_PATTERN: Final = re.compile(r"%(\d*)([A-Za-z%])")


def ended_how(job: SacctJob, read: Callable[[SacctJob], str] | None = None) -> Ending | None:
    """Return how the server of a job ended, None while it runs; `read` returns a log's text."""
    if job.ended_at is None:
        return None
    text = (read or read_log)(job) if job.started_at is not None else ""
    signs = signs_of(text) if text else NO_LOG
    outcome, evidence = ending(job.state, job.started_at, job.ended_at, signs)
    return Ending(outcome, evidence, signs.version)


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
