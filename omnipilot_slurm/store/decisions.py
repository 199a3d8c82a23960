"""The decisions table: one row for each answer, as it is written and as it is read again.

In: a decision that was answered, or a connection of database. Out: rows, StoredDecision, Summary.
Written by the recorder; read by `omnipilot explain` and the reports.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store.redact import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnipilot_slurm.records import Outcome

_COLUMNS = (
    "id, at, verdict, would_be, code, user_name, account, partition, job_name, script_sha256, "
    "script_bytes, generation, cached, elapsed_ms, answer, record"
)
#: the columns of a row, in the order of the table
Row = tuple[str | float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose job a decision was about and which script; the script itself is not kept."""

    user_name: str | None
    account: str | None
    partition: str | None
    job_name: str | None
    script_sha256: str
    script_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that was answered; `at` is Unix time in s, `elapsed_ms` accept to answer sent."""

    id: str
    at: float
    subject: Subject
    outcome: Outcome
    generation: int
    cached: bool
    elapsed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A row of the table; `answer` and `record` are what their JSON held."""

    id: str
    at: float
    verdict: str
    would_be: str | None
    code: str | None
    user_name: str | None
    account: str | None
    partition: str | None
    job_name: str | None
    script_sha256: str
    script_bytes: int
    generation: int
    cached: bool
    elapsed_ms: float
    answer: Mapping[str, Any]
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How many decisions there are since a time, and of which kinds; "" where none was said."""

    n: int
    first_at: float | None
    last_at: float | None
    by_verdict: Mapping[str, int]
    by_would_be: Mapping[str, int]
    by_code: Mapping[str, int]
    by_partition: Mapping[str, int]


def texts_of(outcome: Outcome) -> tuple[str, str]:
    """Return `answer` and `record` of a row as JSON, secrets taken out of every text in them."""
    answer = {
        "messages": outcome.messages,
        "fields": outcome.fields,
        "env": outcome.env,
        "edits": [
            {"start": edit.start, "end": edit.end, "old": edit.old, "new": edit.new}
            for edit in outcome.edits
        ],
    }
    return json.dumps(clean(answer)), json.dumps(clean(outcome.record))


def row_of(decided: Decided, texts: tuple[str, str]) -> Row:
    """Return a decision's row; `texts` are those of its outcome."""
    subject, outcome = decided.subject, decided.outcome
    return (
        decided.id,
        decided.at,
        str(outcome.verdict),
        clean(outcome.record.get("would_be")),
        clean(outcome.code),
        clean(subject.user_name),
        clean(subject.account),
        clean(subject.partition),
        clean(subject.job_name),
        subject.script_sha256,
        subject.script_bytes,
        decided.generation,
        int(decided.cached),
        decided.elapsed_ms,
        *texts,
    )


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Append rows in one transaction and return how many were new.

    An id that is there already is left alone: a batch may come again after a commit whose end
    was not seen. Raises: sqlite3.Error.
    """
    marks = ", ".join("?" * len(rows[0]))
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = connection.executemany(
            f"INSERT OR IGNORE INTO decisions ({_COLUMNS}) VALUES ({marks})",  # noqa: S608 (constants)
            rows,
        ).rowcount
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` rows older than a Unix time and return how many went."""
    oldest = "SELECT seq FROM decisions WHERE at < ? ORDER BY seq LIMIT ?"
    return connection.execute(
        f"DELETE FROM decisions WHERE seq IN ({oldest})",  # noqa: S608 (constants)
        (at, limit),
    ).rowcount


def by_id(connection: sqlite3.Connection, decision_id: str) -> StoredDecision | None:
    """Return the decision of this id, or None."""
    return next(_select(connection, "WHERE id = ?", (decision_id,)), None)


def since(connection: sqlite3.Connection, at: float) -> Iterator[StoredDecision]:
    """Yield the decisions answered at a Unix time or later, in the order of their arrival."""
    return _select(connection, "WHERE at >= ? ORDER BY seq", (at,))


def summary(connection: sqlite3.Connection, at: float = 0.0) -> Summary:
    """Count the decisions answered at a Unix time or later."""
    n, first_at, last_at = _all(
        connection, "SELECT count(*), min(at), max(at) FROM decisions WHERE at >= ?", (at,)
    )[0]
    counts = {
        column: dict(
            _all(
                connection,
                f"SELECT coalesce({column}, ''), count(*) FROM decisions WHERE at >= ? "  # noqa: S608
                f"GROUP BY {column} ORDER BY count(*) DESC, {column}",
                (at,),
            )
        )
        for column in ("verdict", "would_be", "code", "partition")
    }
    return Summary(
        n=n,
        first_at=first_at,
        last_at=last_at,
        by_verdict=counts["verdict"],
        by_would_be=counts["would_be"],
        by_code=counts["code"],
        by_partition=counts["partition"],
    )


def _select(
    connection: sqlite3.Connection, where: str, values: Sequence[object]
) -> Iterator[StoredDecision]:
    names = _COLUMNS.split(", ")
    for row in _all(connection, f"SELECT {_COLUMNS} FROM decisions {where}", values):  # noqa: S608
        cells = dict(zip(names, row, strict=True))
        cells["cached"] = bool(cells["cached"])
        cells |= {name: json.loads(cells[name]) for name in ("answer", "record")}
        yield StoredDecision(**cells)


def _all(connection: sqlite3.Connection, sql: str, values: Sequence[object]) -> Any:
    try:
        return connection.execute(sql, tuple(values)).fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"decisions cannot be read: {error}", hint="try again") from error
