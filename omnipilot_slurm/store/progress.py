"""The progress table: how far each source was read, so that the next reading goes on there.

In: the name of a source and a Progress. Out: the last one. Written in the transaction that writes
what was read, so that neither is there without the other. Called by ingest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3


class Progress(NamedTuple):
    """How far a source was read, written at a Unix time `at`.

    Accounting up to the Unix time `read_to`; of a dump, `n_bytes` whose SHA-256 is
    `prefix_sha256`.
    """

    at: float
    read_to: float | None = None
    n_bytes: int | None = None
    prefix_sha256: str | None = None


def progress(connection: sqlite3.Connection, source: str) -> Progress | None:
    """Return how far a source was read, None where it never was."""
    row = connection.execute(
        "SELECT at, read_to, n_bytes, prefix_sha256 FROM progress WHERE source = ?", (source,)
    ).fetchone()
    return None if row is None else Progress(*row)


def set_progress(connection: sqlite3.Connection, source: str, now: Progress) -> None:
    """Write how far a source was read, in the caller's transaction."""
    connection.execute(
        "INSERT OR REPLACE INTO progress (source, at, read_to, n_bytes, prefix_sha256) "
        "VALUES (?, ?, ?, ?, ?)",
        (source, *now),
    )
