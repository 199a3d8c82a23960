"""Lines of `sacct -P` in, jobs out, one by one; rows that are none are told with file and line.

In: the bytes of lines, a header first, as sacct of 22.05 and 24.11 writes them (26.05 by its
manual: the fields are the same). Out: what each stretch of bytes holds: a SacctJob, a Fault, or
nothing of interest (steps, jobs without GPUs, jobs that wait). Called by sacct_file and sacct_live.

Names and comments may hold the delimiter and line ends. A row with too few fields goes on in the
next line; one with too many has them in a text field, the last one where the others then read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.sacct_job import (
    SacctJob,
    check,
    count_of,
    exit_of,
    gpus_of,
    log_of,
    minutes_of,
    state_of,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: what a reading needs, and what it makes use of where it is there
REQUIRED: Final = ("jobid", "partition", "submit", "start", "end", "state")
_TRES: Final = ("alloctres", "reqtres")
KNOWN: Final = (
    *REQUIRED, *_TRES, "jobidraw", "user", "nnodes", "allocnodes", "eligible", "timelimit",
    "timelimitraw", "exitcode", "nodelist", "stdout", "workdir", "admincomment", "submitline",
    "jobname",
)  # fmt: skip
#: fields that may hold anything
_TEXTS: Final = frozenset((
    "admincomment", "comment", "systemcomment", "extra", "jobname", "submitline", "workdir",
    "stdout", "stderr", "stdin", "account", "wckey", "reason", "constraints", "container",
    "reservation",
))  # fmt: skip
_JOB_ID: Final = re.compile(r"\d+(?:_(?:\d+|\[.*)|\+\d+)?(?:\..*)?")
_HOW: Final = "`omnipilot ingest sacct --help` shows how such a dump is made"
_MAX_LINES: Final = 100
_SHOWN: Final = 60


class Skipped(Enum):
    """Why a row is no job of interest."""

    STEP = "step"
    NO_GPUS = "no_gpus"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True)
class Fault:
    """A row that cannot be read: its line in the source, from 1, and why."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.line}: {self.why}"


@dataclass(slots=True)
class Table:
    """Reads the lines of one source; `n_bytes` and `n_lines` say how far the rows given out go."""

    delimiter: str = "|"
    n_bytes: int = 0
    n_lines: int = 0
    _delimiter: bytes = b"|"
    _n_columns: int = 0
    _wanted: Callable[[Sequence[str]], tuple[str, ...]] = tuple
    _texts: Sequence[int] = ()
    _tells_allocated: bool = False

    def header(self, line: bytes) -> None:
        """Read the header.

        Raises: DataError when it lacks a field.
        """
        names = tuple(line.decode("utf-8", "replace").rstrip("\n").lower().split(self.delimiter))
        missing = [name for name in REQUIRED if name not in names]
        if not set(_TRES) & set(names):
            missing.append(_TRES[0])
        if names[0] != "jobid":
            raise DataError(
                f"the first line must be sacct's header and begin with JobID, was {names[0]!r}",
                hint=_HOW,
            )
        if missing:
            raise DataError(
                f"the first line must be sacct's header, lacks {', '.join(missing)}",
                hint=_HOW,
            )
        self._delimiter = self.delimiter.encode()
        self._n_columns = len(names)
        # a field that is not there is the empty cell behind the last
        places = [names.index(name) if name in names else len(names) for name in KNOWN]
        self._wanted = itemgetter(*places)
        self._tells_allocated = _TRES[0] in names
        self._texts = [i for i, name in enumerate(names) if name in _TEXTS]
        self._took(line)

    def rows(self, lines: Iterator[bytes]) -> Iterator[SacctJob | Skipped | Fault]:
        """Yield what each row behind the header is."""
        n = self._n_columns
        waiting: bytes | None = next(lines, None)
        while waiting is not None:
            raw, n_lines = waiting, 1
            waiting = next(lines, None)
            if self._is_plain_step(raw):
                self._took(raw)
                yield Skipped.STEP
                continue
            text = raw.decode("utf-8", "replace")
            cells = text.rstrip("\n").split(self.delimiter)
            is_row = _is_job_id(cells[0])
            while is_row and len(cells) < n and waiting is not None and n_lines < _MAX_LINES:
                more = waiting.decode("utf-8", "replace")
                if self._is_whole(more):
                    break
                raw, text, n_lines = raw + waiting, text + more, n_lines + 1
                cells = text.rstrip("\n").split(self.delimiter)
                waiting = next(lines, None)
            if waiting is None and not raw.endswith(b"\n"):
                yield Fault(self.n_lines + 1, "is cut off in the middle of a row")
                return
            line = self.n_lines + 1
            self._took(raw, n_lines)
            if is_row:
                yield self._row(cells, line)
            # else a line end in the last field of the row before, which nothing is read of

    def _is_plain_step(self, raw: bytes) -> bool:
        """Return whether a line is one whole row of a step: two in three are."""
        head, _, rest = raw.partition(self._delimiter)
        return (
            b"." in head
            and head[:1].isdigit()
            and rest.count(self._delimiter) == self._n_columns - 2
            and rest.endswith(b"\n")
        )

    def _took(self, raw: bytes, n_lines: int = 1) -> None:
        self.n_bytes += len(raw)
        self.n_lines += n_lines

    def _is_whole(self, line: str) -> bool:
        cells = line.rstrip("\n").split(self.delimiter)
        return len(cells) >= self._n_columns and _is_job_id(cells[0])

    def _row(self, cells: list[str], line: int) -> SacctJob | Skipped | Fault:
        if "." in cells[0]:
            return Skipped.STEP
        n_more = len(cells) - self._n_columns
        if n_more < 0:
            shown = self.delimiter.join(cells)[:_SHOWN]
            return Fault(line, f"must have {self._n_columns} fields, has {len(cells)}: {shown!r}")
        try:
            return self._job(cells) if n_more == 0 else self._job_among(cells, n_more)
        except DataError as error:
            return Fault(line, f"job {cells[0]}: {error}")

    def _job_among(self, cells: list[str], n_more: int) -> SacctJob | Skipped:
        """Return the job of a row with too many fields: its delimiters stand in one text field.

        Raises: DataError.
        """
        for place in reversed(self._texts):
            merged = self.delimiter.join(cells[place : place + n_more + 1])
            try:
                return self._job([*cells[:place], merged, *cells[place + n_more + 1 :]])
            except DataError:
                continue
        raise DataError(f"has {n_more} fields too many, and they fit into no text field")

    def _job(self, cells: list[str]) -> SacctJob | Skipped:
        """Return the job of a row.

        Raises: DataError.
        """
        (
            job_id, partition, submit, start, end, state, allocated, requested, raw_id, user,
            n_nodes, n_alloc_nodes, eligible, time_limit, time_limit_raw, exit_text, nodes,
            stdout, work_dir, admin_comment, submit_line, name,
        ) = self._wanted([*cells, ""])  # fmt: skip
        known_state = state_of(state)
        submitted = time_of(submit)
        if submitted is None:
            raise DataError(f"Submit must be a time, was {submit!r}")
        started, ended = time_of(start), time_of(end)
        if started is None and ended is None:
            return Skipped.NOT_STARTED
        gres_type, n_gpus = gpus_of(allocated, requested)
        if n_gpus == 0:
            return Skipped.NO_GPUS
        if nodes == "None assigned" or (self._tells_allocated and not allocated):
            # it ended before it got a node, whatever Start says
            started = None
        exit_code, signal = exit_of(exit_text)
        return check(
            SacctJob(
                job_id=job_id,
                raw_id=raw_id or job_id,
                user=user,
                name=name,
                partition=partition.partition(",")[0],
                gres_type=gres_type,
                n_gpus=n_gpus,
                n_nodes=count_of(n_nodes or n_alloc_nodes),
                submitted_at=submitted,
                eligible_at=time_of(eligible),
                started_at=started,
                ended_at=ended,
                time_limit_min=minutes_of(time_limit_raw or time_limit),
                state=known_state,
                exit_code=exit_code,
                signal=signal,
                admin_comment=admin_comment,
                log=log_of(stdout, work_dir, submit_line, is_array="_" in job_id),
            )
        )


def _is_job_id(text: str) -> bool:
    return text.isdecimal() or _JOB_ID.fullmatch(text) is not None
