"""Opening the site's database: for its one writer, brought up to date, or for readers.

In: a path. Out: an sqlite3 connection, and how each table's module writes and reads with it. Called
by the recorder and by the commands that read.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from omnipilot_slurm.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: how long a statement waits for another process's lock
BUSY_TIMEOUT_S = 1.0
_HEADING = re.compile(r"^-- version (\d+)$", re.MULTILINE)


@cache
def schema() -> dict[int, str]:
    """Return the SQL that leads to each schema version, ascending."""
    text = files("omnipilot_slurm.store").joinpath("schema.sql").read_text(encoding="utf-8")
    parts = _HEADING.split(text)[1:]
    return {int(version): sql for version, sql in zip(parts[::2], parts[1::2], strict=True)}


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Return a connection to the database at `path`, created and brought up to date if need be.

    Raises: StoreError when it is of a newer release or another program's; sqlite3.Error and
    OSError as they come, since the recorder tries again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # a killed process loses nothing committed; a lost machine at most the last commits
        connection.execute("PRAGMA synchronous = NORMAL")
        _bring_up_to_date(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write.

    Raises: StoreError when there is no database, it cannot be read, or it is of another schema.
    """
    if not path.exists():
        raise StoreError(
            f"{path}: there is no database",
            hint="omnipilotd creates it with the first decision; daemon.store names it",
        )
    uri = f"file:{quote(str(path))}?mode=ro"
    with ExitStack() as on_failure:
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)
            on_failure.callback(connection.close)
            version = _version(connection, path)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: cannot be read: {error}", hint="run this as root or the daemon's user"
            ) from error
        if version < max(schema()):
            raise StoreError(
                f"{path}: has schema {version}, this release reads {max(schema())}",
                hint="restart omnipilotd, which brings the database up to date",
            )
        on_failure.pop_all()
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock; all that is written inside is there afterwards, or nothing of it.

    Inside another transaction it is a part of that one.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def fetched(
    connection: sqlite3.Connection, what: str, sql: str, values: Sequence[object] = ()
) -> Iterator[Any]:
    """Yield the rows of a query; `what` names them in the error.

    Raises: StoreError.
    """
    try:
        yield from connection.execute(sql, tuple(values))
    except sqlite3.Error as error:
        raise StoreError(f"{what} cannot be read: {error}", hint="try again") from error


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) == max(schema()):
        return
    with transaction(connection):
        # read again: another process may have done it while this one waited for the lock
        done = _version(connection, path)
        if done == 0:
            _check_empty(connection, path)
        for version, sql in schema().items():
            if version > done:
                for statement in _statements(sql):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version}")


def _check_empty(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreError(
            f"{path}: is another program's database", hint="set daemon.store to a new file"
        )


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > max(schema()):
        raise StoreError(
            f"{path}: has schema {version}, this release knows up to {max(schema())}",
            hint="upgrade omnipilot_slurm, or set daemon.store to a new file",
        )
    return version


def _statements(sql: str) -> Iterator[str]:
    """Split SQL at its statements' ends; a trigger's inner semicolons are not ends."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
