"""A dump of the accounting in, rows of the store out: `sacct -P` or `sacct --json`, told apart.

In: a path. Out: a Tally. A dump that only grew since the last reading, or whose reading was broken
off, is read on from there: its beginning is known by its hash. Called by `omnipilot ingest sacct`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.accounting import Keeping, Tally, keep
from omnipilot_slurm.ingest.sacct_json import Document
from omnipilot_slurm.ingest.sacct_table import Table
from omnipilot_slurm.store.progress import Progress, progress

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from omnipilot_slurm.ingest.sacct_job import SacctJob
    from omnipilot_slurm.ingest.sacct_table import Fault, Skipped

_BLOCK: Final = 1 << 20


def ingest_file(
    connection: sqlite3.Connection, path: Path, keeping: Keeping, *, in_part: bool = False
) -> Tally:
    """Write the jobs of a dump that are not there yet.

    A dump of which some jobs are passed over, `in_part`, is read from its beginning the next time.
    Raises: DataError when it cannot be read, sqlite3.Error when the database refuses.
    """
    source = f"file:{path.resolve()}"
    tally = Tally()
    try:
        with path.open("rb") as stream, path.open("rb") as again:
            prefix = _known_prefix(again, progress(connection, source))
            reader = Document() if stream.read(1) == b"{" else Table()

            def reached() -> tuple[str, Progress]:
                if in_part:
                    return source, Progress(at=keeping.at)
                prefix.grow(reader.n_bytes)
                hashed = prefix.sha256.hexdigest()
                now = Progress(at=keeping.at, n_bytes=prefix.n_bytes, prefix_sha256=hashed)
                return source, now

            keep(connection, _rows(stream, reader, prefix), keeping, tally, reached)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}", hint=error.hint) from error
    return tally


class _Prefix:
    """The beginning of a file: how long, its hash, and how many lines."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.n_bytes = 0
        self.n_lines = 0

    def grow(self, n_bytes: int) -> None:
        """Take in the file up to a byte."""
        while self.n_bytes < n_bytes:
            block = self._stream.read(min(_BLOCK, n_bytes - self.n_bytes))
            if not block:
                return
            self.sha256.update(block)
            self.n_bytes += len(block)
            self.n_lines += block.count(b"\n")


def _known_prefix(stream: BinaryIO, before: Progress | None) -> _Prefix:
    """Return what of a file was read before: nothing where it begins otherwise now."""
    prefix = _Prefix(stream)
    if before is not None and before.n_bytes is not None:
        prefix.grow(before.n_bytes)
        if prefix.sha256.hexdigest() == before.prefix_sha256:
            return prefix
        stream.seek(0)
    return _Prefix(stream)


def _rows(
    stream: BinaryIO, reader: Document | Table, prefix: _Prefix
) -> Iterator[SacctJob | Skipped | Fault]:
    """Yield what stands behind the prefix."""
    stream.seek(0)
    if isinstance(reader, Document):
        reader.n_bytes = prefix.n_bytes
        stream.seek(prefix.n_bytes)
        return reader.rows(stream)
    reader.header(stream.readline())
    if prefix.n_bytes:
        stream.seek(prefix.n_bytes)
        reader.n_bytes, reader.n_lines = prefix.n_bytes, prefix.n_lines
    return reader.rows(iter(stream))
