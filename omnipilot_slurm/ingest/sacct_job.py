"""One job as sacct shows it, and how its words are read: times, TRES, states.

In: the texts of sacct's fields. Out: SacctJob. Called by the readers of both of sacct's formats.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from omnipilot_slurm.errors import DataError

#: a span that no job has; beyond it a record is wrong
MAX_SPAN_S: Final = 1000 * 86_400.0
_NONE: Final = frozenset(("", "None", "Unknown", "N/A", "INVALID", "0"))
_GPU: Final = re.compile(r"(?:^|,)gres/gpu(?::([^=,]+))?=(\d+)")
_STATE: Final = re.compile(r"[A-Z_]+")
_MINUTES: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_OUTPUT: Final = re.compile(r"(?:^|\s)(?:-o\s*|--output[=\s])([^\s'\"]+)")
#: of Unix seconds, from 1973 to 5138
_DIGITS: Final = range(9, 12)


class SacctJob(NamedTuple):
    """A job of the accounting; times are Unix seconds, None where there was none.

    `job_id` is as sacct writes it (4711, 4711_3, 4711+1), `raw_id` the number Slurm counts by.
    GPUs are those it got, or asked for where it got none. `log` is where its output went, with
    Slurm's %-patterns; "" where that is not told.
    """

    job_id: str
    raw_id: str
    user: str
    name: str
    partition: str
    gres_type: str | None
    n_gpus: int
    n_nodes: int
    submitted_at: float
    eligible_at: float | None
    started_at: float | None
    ended_at: float | None
    time_limit_min: float | None
    state: str
    exit_code: int
    signal: int
    admin_comment: str = ""
    log: str = ""


def check(job: SacctJob) -> SacctJob:
    """Return a job whose times can be.

    Raises: DataError.
    """
    submitted, started, ended = job.submitted_at, job.started_at, job.ended_at
    if ended is not None and ended < (started if started is not None else submitted):
        raise DataError(f"End must not be before Start or Submit, was {ended:.0f}")
    if ended is not None and ended - submitted > MAX_SPAN_S:
        raise DataError(f"must end within 1000 days of its submission, ended at {ended:.0f}")
    return job


def gpus_of(allocated: str, requested: str) -> tuple[str | None, int]:
    """Return type and number of a job's GPUs: what it got, else what it asked for."""
    return _gpus(allocated if "gres/gpu" in allocated else requested)


@lru_cache(maxsize=4096)
def _gpus(tres: str) -> tuple[str | None, int]:
    counts = {kind or None: int(n) for kind, n in _GPU.findall(tres)}
    types = [kind for kind in counts if kind is not None]
    total = counts.get(None, sum(counts.values()))
    return (types[0] if len(types) == 1 and counts[types[0]] == total else None), total


@lru_cache(maxsize=1024)
def state_of(text: str) -> str:
    """Return a state without who ended the job: `CANCELLED by 1000` is CANCELLED.

    Raises: DataError.
    """
    match = _STATE.match(text)
    if match is None:
        raise DataError(f"State must be one of Slurm's, was {text!r}")
    return match[0]


def time_of(text: str) -> float | None:
    """Return a time of sacct as Unix seconds: ISO in this machine's zone, or SLURM_TIME_FORMAT=%s.

    Raises: DataError.
    """
    if text in _NONE:
        return None
    if len(text) in _DIGITS and text.isdecimal() and text.isascii():
        return float(text)
    # within an hour the zone stays: one look at the calendar an hour, not one a job
    hour, rest = text[:13], text[13:]
    if len(rest) != len(":00:00") or rest[0] != ":" or rest[3] != ":":
        raise DataError(f"a time must be as 2026-01-31T14:05:00 or Unix seconds, was {text!r}")
    try:
        return _hour(hour) + 60.0 * int(rest[1:3]) + int(rest[4:])
    except ValueError as error:
        raise DataError(
            f"a time must be as 2026-01-31T14:05:00 or Unix seconds, was {text!r}"
        ) from error


@lru_cache(maxsize=16_384)
def _hour(text: str) -> float:
    return datetime.fromisoformat(text + ":00").timestamp()


@lru_cache(maxsize=4096)
def minutes_of(text: str) -> float | None:
    """Return a time limit in minutes, of [D-]HH:MM:SS or a number of minutes; None for none."""
    if text.isdecimal() and text.isascii():
        return float(text)
    match = _MINUTES.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 1440.0 + hours * 60.0 + minutes + seconds / 60.0


def log_of(stdout: str, work_dir: str, submit_line: str, *, is_array: bool) -> str:
    """Return where a job's output went, as far as sacct tells: `stdout` from 24.05 on.

    Before, what its command line says, else the default; an #SBATCH line may say otherwise.
    """
    if stdout or not work_dir.startswith("/"):
        return stdout
    told = _OUTPUT.search(submit_line)
    name = told[1] if told else "slurm-%A_%a.out" if is_array else "slurm-%j.out"
    return name if name.startswith("/") else f"{work_dir}/{name}"


@lru_cache(maxsize=1024)
def exit_of(text: str) -> tuple[int, int]:
    """Return exit code and signal of `3:0`; (0, 0) where there is none."""
    code, _, signal = text.partition(":")
    return count_of(code, 0), count_of(signal, 0)


def count_of(text: str, unknown: int = 1) -> int:
    """Return a number that sacct writes plainly, `unknown` where it is none."""
    return int(text) if text.isdecimal() and text.isascii() else unknown
