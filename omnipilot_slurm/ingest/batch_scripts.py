"""Batch scripts of past jobs, as the accounting keeps them.

In: ids of jobs. Out: their scripts, in memory only. Slurm keeps them where AccountingStoreFlags has
job_script, and tells them to operators and owners; `sacct -B` takes ids alone, so that they are
found first and asked for in batches. Called by replay and by recognition.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.ingest.sacct_live import sacct_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: as many ids as one question holds
BATCH_IDS: Final = 200
_HEADING: Final = re.compile(rb"Batch Script for (\d+(?:[_+]\d+)?)\s*")
_RULE: Final = re.compile(rb"-{40,}\s*")
_PATIENCE_S: Final = 120.0
#: what Slurm prints where it kept no script
_NO_SCRIPT: Final = b"NONE"


def batch_scripts(job_ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the scripts of those jobs that have one; ids are as sacct writes them.

    Raises: SlurmError when sacct fails.
    """
    for start in range(0, len(job_ids), BATCH_IDS):
        ids = job_ids[start : start + BATCH_IDS]
        words = ["sacct", "--batch-script", f"--jobs={','.join(ids)}"]
        with sacct_lines(words, timeout_s=_PATIENCE_S) as lines:
            yield from split_scripts(lines, frozenset(ids))


def split_scripts(lines: Iterable[bytes], asked: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Split what sacct printed into scripts.

    A heading counts only with its rule, of a job that was asked for and has not been seen: scripts
    may hold anything.
    """
    job_id, script, waiting = None, list[bytes](), None
    seen: set[str] = set()
    for line in lines:
        if waiting is not None:
            heading, waiting = waiting, None
            if _RULE.fullmatch(line):
                if job_id is not None:
                    yield from _found(job_id, script)
                job_id, script = _id_of(heading), []
                seen.add(job_id)
                continue
            script.append(heading)
        is_heading = _HEADING.fullmatch(line) is not None
        if is_heading and _id_of(line) in asked - seen:
            waiting = line
        else:
            script.append(line)
    if waiting is not None:
        script.append(waiting)
    if job_id is not None:
        yield from _found(job_id, script)


def _id_of(heading: bytes) -> str:
    match = _HEADING.fullmatch(heading)
    assert match is not None
    return match[1].decode()


def _found(job_id: str, script: list[bytes]) -> Iterator[tuple[str, bytes]]:
    text = b"".join(script)
    if text.strip() not in {b"", _NO_SCRIPT}:
        yield job_id, text
