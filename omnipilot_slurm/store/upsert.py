"""Writing rows that may be there already: new ones are added, changed ones replaced, others left.

In: a connection, rows of one table. Out: how many are new or say something new, in the caller's
transaction. Called by the modules of the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence


def upsert(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    n_key: int,
    silent: Sequence[str] = (),
) -> int:
    """Write rows over those of the same key, the first `n_key` columns; return how many changed.

    A row that differs in `silent` columns alone (when it was read) is left as it is.
    Raises: sqlite3.Error.
    """
    others = columns[n_key:]
    said = [name for name in others if name not in silent]
    marks = ", ".join("?" * len(columns))
    sql = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) "  # noqa: S608 (constants)
        f"ON CONFLICT ({', '.join(columns[:n_key])}) DO UPDATE "
        f"SET ({', '.join(others)}) = ({_theirs(others)}) "
        f"WHERE ({', '.join(said)}) IS NOT ({_theirs(said)})"
    )
    return connection.executemany(sql, rows).rowcount


def _theirs(names: Sequence[str]) -> str:
    return ", ".join(f"excluded.{name}" for name in names)
