"""Bytes of `sacct --json` in, jobs out, one by one, whatever the size of the file.

In: a binary stream. Out: the same as sacct_table gives of rows. The data parsers of 22.05 (v0.0.38)
and 24.11 (v0.0.42) were read from the commands themselves; of those between and after, by Slurm's
published schema. Called by sacct_file.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.sacct_job import SacctJob, check, log_of, state_of
from omnipilot_slurm.ingest.sacct_table import Fault, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_BLOCK: Final = 1 << 20
_MAX_JOB: Final = 64 << 20
_START: Final = '"jobs"'
_BETWEEN: Final = " \t\r\n,"


@dataclass(slots=True)
class Document:
    """Reads the jobs of one document; `n_bytes` says how far those given out go.

    `n_jobs` counts the elements of `jobs`; a fault is told by its number, from 1.
    """

    n_bytes: int = 0
    n_jobs: int = 0
    _text: str = ""
    _at: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("surrogateescape")
    )

    def rows(self, stream: BinaryIO) -> Iterator[SacctJob | Skipped | Fault]:
        """Yield what each element of `jobs` is, from the stream's place on.

        Raises: DataError when it is no such document.
        """
        if self.n_bytes == 0:
            self._find_jobs(stream)
        decoder = json.JSONDecoder()
        while (first := self._next_character(stream)) not in {"]", ""}:
            if first != "{":
                raise DataError(f"an element of `jobs` must be an object, begins with {first!r}")
            found = self._decode(stream, decoder)
            self.n_jobs += 1
            if found is None:
                yield Fault(self.n_jobs, "the file is cut off in the middle of a job")
                return
            yield _row(found, self.n_jobs)
        self._to_end(stream)

    def _find_jobs(self, stream: BinaryIO) -> None:
        while True:
            place = self._text.find(_START)
            opened = self._text.find("[", place) if place >= 0 else -1
            if opened >= 0:
                self._take(opened + 1)
                return
            if not self._more(stream) or len(self._text) > _MAX_JOB:
                raise DataError(
                    "must be what `sacct --json` prints, has no list `jobs`",
                    hint="rows of `sacct -P` are read too, with their header line",
                )

    def _next_character(self, stream: BinaryIO) -> str:
        """Return the first character of the next element, ] at the end of the list, "" of all."""
        while True:
            at = self._at
            while at < len(self._text) and self._text[at] in _BETWEEN:
                at += 1
            self._take(at)
            if at < len(self._text):
                return self._text[at]
            if not self._more(stream):
                return ""

    def _decode(self, stream: BinaryIO, decoder: json.JSONDecoder) -> Any:
        """Return the element that begins here, None where the document ends before it does."""
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > _MAX_JOB:
                    raise DataError(f"job {self.n_jobs + 1} is no JSON: {error.msg}") from error
                if not self._more(stream):
                    return None
            else:
                self._take(end)
                return value

    def _take(self, end: int) -> None:
        # bytes that are not UTF-8 come back as they were
        self.n_bytes += len(self._text[self._at : end].encode("utf-8", "surrogateescape"))
        self._at = end

    def _more(self, stream: BinaryIO) -> bool:
        block = stream.read(_BLOCK)
        self._text = self._text[self._at :] + self._decoder.decode(block, final=not block)
        self._at = 0
        return bool(block)

    def _to_end(self, stream: BinaryIO) -> None:
        while self._more(stream):
            self._take(len(self._text))
        self._take(len(self._text))


def _row(job: Any, number: int) -> SacctJob | Skipped | Fault:
    try:
        return _job(job)
    except DataError as error:
        return Fault(number, f"job {_shown_id(job)}: {error}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Fault(number, f"job {_shown_id(job)}: is not of Slurm's schema: {error!r}")


def _shown_id(job: Any) -> object:
    return job.get("job_id", "?") if isinstance(job, dict) else "?"


def _job(job: dict[str, Any]) -> SacctJob | Skipped:
    times, state = job["time"], job["state"]["current"]
    started, ended = _time(times["start"]), _time(times["end"])
    if started is None and ended is None:
        return Skipped.NOT_STARTED
    allocated = _gpus(job["tres"]["allocated"])
    gres_type, n_gpus = allocated or _gpus(job["tres"]["requested"]) or (None, 0)
    if n_gpus == 0:
        return Skipped.NO_GPUS
    if job["nodes"] in {"None assigned", "", None}:
        started = None
    submitted = _time(times["submission"])
    if submitted is None:
        raise DataError(f"time.submission must be a time, was {times['submission']!r}")
    job_id = _job_id(job)
    code = job["exit_code"]
    signal = code.get("signal") or {}
    return check(
        SacctJob(
            job_id=job_id,
            raw_id=str(job["job_id"]),
            user=job.get("user") or job["association"]["user"] or "",
            name=job["name"] or "",
            partition=(job["partition"] or "").partition(",")[0],
            gres_type=gres_type,
            n_gpus=n_gpus,
            n_nodes=int(job.get("allocation_nodes") or 1),
            submitted_at=submitted,
            eligible_at=_time(times["eligible"]),
            started_at=started,
            ended_at=ended,
            time_limit_min=_number(times["limit"]),
            state=state_of(state[0] if isinstance(state, list) else state),
            exit_code=int(_number(code.get("return_code")) or 0),
            signal=int(_number(signal.get("id", signal.get("signal_id"))) or 0),
            admin_comment=(job["comment"] or {}).get("administrator") or "",
            log=log_of(
                job.get("stdout_expanded") or job.get("stdout") or "",
                job.get("working_directory") or "",
                job.get("submit_line") or "",
                is_array="_" in job_id,
            ),
        )
    )


def _job_id(job: dict[str, Any]) -> str:
    array, het = job["array"], job["het"]
    if array["job_id"]:
        task = _number(array["task_id"])
        return f"{array['job_id']}_{array['task'] if task is None else int(task)}"
    if het["job_id"]:
        return f"{het['job_id']}+{int(_number(het['job_offset']) or 0)}"
    return str(job["job_id"])


def _number(value: Any) -> float | None:
    """Return a number that older data parsers write plainly and newer ones as an object."""
    if isinstance(value, dict):
        return value["number"] if value["set"] and not value["infinite"] else None
    return value if isinstance(value, int | float) else None


def _time(value: Any) -> float | None:
    return _number(value) or None


def _gpus(tres: list[dict[str, Any]]) -> tuple[str | None, int] | None:
    counts = {
        one["name"].partition(":")[2]: one["count"]
        for one in tres
        if one["type"] == "gres" and (one["name"] or "").partition(":")[0] == "gpu"
    }
    if not counts:
        return None
    types = [kind for kind in counts if kind]
    total = counts.get("", sum(counts.values()))
    return (types[0] if len(types) == 1 and counts[types[0]] == total else None), total
