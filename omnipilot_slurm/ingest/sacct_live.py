"""The accounting of this cluster in, rows of the store out: sacct, a day at a time.

In: the Slurm that this process's environment names. Out: a Tally. Each day is done before the next
is asked for, and the next reading begins an hour before the last one ended, since slurmdbd may
learn of a job late. Called by `omnipilot ingest sacct`.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import SlurmError, StoreError
from omnipilot_slurm.ingest.accounting import Keeping, Tally, keep
from omnipilot_slurm.ingest.sacct_table import Table
from omnipilot_slurm.store.progress import Progress, progress, set_progress

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.ingest.sacct_job import SacctJob
    from omnipilot_slurm.ingest.sacct_table import Fault, Skipped


SOURCE: Final = "sacct"
#: what is asked for; StdOut only where sacct has it, from 24.05 on
FIELDS: Final = (
    "JobID,JobIDRaw,User,Partition,ReqTRES,AllocTRES,NNodes,Submit,Eligible,Start,End,TimelimitRaw,"
    "State,ExitCode,NodeList,AdminComment,WorkDir,SubmitLine,JobName"
)
WINDOW_S: Final = 86_400.0
OVERLAP_S: Final = 3600.0
#: clocks of two machines differ by so much
_CLOCK_SLACK_S: Final = 120.0
_DELIMITER: Final = "\x1f"
_WINDOW_PATIENCE_S: Final = 900.0
_SHOWN: Final = 300


def first_time(connection: sqlite3.Connection, since: float | None, keeping: Keeping) -> float:
    """Return from when on accounting is to be read: as asked, else where the last reading ended.

    Raises: StoreError when that lies in the future.
    """
    if since is not None:
        return since
    before = progress(connection, SOURCE)
    if before is None or before.read_to is None:
        return keeping.oldest
    if before.read_to > keeping.at + _CLOCK_SLACK_S:
        raise StoreError(
            f"accounting was read up to {_shown(before.read_to)}, which this machine's clock has "
            f"not reached, it shows {_shown(keeping.at)}",
            hint="set the clock right, or say with --since from when on to read again",
        )
    return max(before.read_to - OVERLAP_S, keeping.oldest)


def ingest_live(
    connection: sqlite3.Connection, since: float, keeping: Keeping, *, n_latest: int = 0
) -> Tally:
    """Write the jobs of [since, now) that are not there yet or have changed.

    The Tally holds the last `n_latest` of them. Where days before `since` were not read yet, the
    next reading still begins with those.

    Raises: SlurmError when sacct fails, sqlite3.Error when the database refuses; the days that
    were done before stay.
    """
    tally = Tally(latest=deque(maxlen=n_latest))
    before = progress(connection, SOURCE)
    read_to = None if before is None else before.read_to
    stays = before if read_to is not None and since > read_to else None
    fields = _fields()
    start = since
    while start < keeping.at:
        end = min(start + WINDOW_S, keeping.at)
        reached = stays or Progress(at=keeping.at, read_to=start)
        keep(
            connection,
            accounted(start, end, fields),
            keeping,
            tally,
            partial(_of_sacct, reached),
        )
        set_progress(connection, SOURCE, stays or Progress(at=keeping.at, read_to=end))
        start = end
    return tally


def _of_sacct(reached: Progress) -> tuple[str, Progress]:
    return SOURCE, reached


def accounted(
    start: float, end: float, fields: str | None = None
) -> Iterator[SacctJob | Skipped | Fault]:
    """Yield what the rows of [start, end) are; `fields` None asks sacct first what it has.

    Raises: SlurmError when sacct fails, once all that it printed is given out.
    """
    words = [
        *("sacct", "--allusers", "--duplicates", "--allocations", "--parsable2"),
        *(f"--delimiter={_DELIMITER}", f"--format={fields or _fields()}"),
        *(f"--starttime=uts{int(start)}", f"--endtime=uts{int(end)}"),
    ]
    with sacct_lines(words, timeout_s=_WINDOW_PATIENCE_S) as lines:
        table = Table(delimiter=_DELIMITER)
        first = next(lines, b"")
        if first:
            table.header(first)
            yield from table.rows(lines)


def _fields() -> str:
    fields = FIELDS.split(",")
    return ",".join([*fields[:-1], *(["StdOut"] if _has_stdout() else []), fields[-1]])


def _has_stdout() -> bool:
    with sacct_lines(["sacct", "--helpformat"], timeout_s=_WINDOW_PATIENCE_S) as lines:
        return any(b"StdOut" in line.split() for line in lines)


@contextmanager
def sacct_lines(words: Sequence[str], *, timeout_s: float) -> Iterator[Iterator[bytes]]:
    """Run a command of sacct and hand out its lines as they come.

    Raises: SlurmError when it cannot be started, fails, or has not ended in time.
    """
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
    try:
        running = subprocess.Popen(  # noqa: S603 a list of words, no shell
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SlurmError(
            f"{words[0]} must be a program that can be started, was refused: {error.strerror}",
            hint="install Slurm's client commands, or put them on the PATH",
        ) from error
    timer = threading.Timer(timeout_s, running.kill)
    timer.start()
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        complaints: list[bytes] = []
        # else a long complaint would fill its pipe, and sacct would wait for us
        listening = threading.Thread(target=lambda: complaints.extend(running.stderr or ()))
        listening.start()
        try:
            yield iter(running.stdout)
        except BaseException:
            running.kill()
            raise
        finally:
            running.stdout.read()
            listening.join()
            timer.cancel()
    if running.returncode != 0:
        complaint = b"".join(complaints).decode("utf-8", "replace").strip()[:_SHOWN]
        how = "was given up" if running.returncode < 0 else f"failed ({running.returncode})"
        raise SlurmError(
            f"`{words[0]} {words[1]} ...` {how}: {complaint or 'it said nothing'}",
            hint="is slurmdbd up, and may this user see all users' jobs?",
        )


def _shown(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
