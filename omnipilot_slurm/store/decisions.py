"""The decisions table: one row for each answer, as it is written and as it is read again.

In: a decision that was answered, or a connection of database. Out: rows, StoredDecision, Brief,
Summary. Written by the recorder; read by `omnipilot explain` and the reports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnipilot_slurm.records import Shared
from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.redact import clean, clean_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from omnipilot_slurm.records import Outcome

_OWN_COLUMNS = (
    "id, at, verdict, would_be, code, user_name, account, partition, job_name, script_sha256, "
    "script_bytes, generation, elapsed_ms, repeats"
)
#: the columns of a row, in the order in which they are written
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
class Words:
    """What is stored of an outcome besides verdict and code: JSON texts without secrets."""

    answer: str
    record: str
    would_be: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that was answered: `at` in Unix time (s), `elapsed_ms` from accept to answer sent.

    `words` is the id of an earlier decision where its answer was given again.
    """

    id: str
    at: float
    subject: Subject
    verdict: str
    would_be: str | None
    code: str | None
    generation: int
    elapsed_ms: float
    words: Words | str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A row of the table; `answer` and `record` are what their JSON held.

    `repeats` is the decision whose answer was given again; `answer` and `record` are that one's, or
    None where it is no longer stored.
    """

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
    elapsed_ms: float
    repeats: str | None
    answer: Mapping[str, Any] | None
    record: Mapping[str, Any] | None


class Brief(NamedTuple):
    """What reports count of a decision; what its record does not hold is None.

    Names are the paths in the record. `price` is $ per hour of all GPUs of an arm, `p_launch` the
    probability that its server comes up, `gain_usd` what the chosen arm is worth more.
    """

    id: str
    at: float
    verdict: str
    would_be: str | None
    code: str | None
    user_name: str | None
    mode: str | None
    reason_text: str | None
    hours: float | None
    asked_starts: str | None
    asked_n_gpus: int | None
    asked_price: float | None
    chosen_n_gpus: int | None
    chosen_price: float | None
    chosen_p_launch: float | None
    gain_usd_lo: float | None
    gain_usd_mid: float | None
    gain_usd_hi: float | None
    axes: tuple[str, ...]


_BRIEF_COLUMNS: Final = Brief._fields[:6]
#: where the other fields of a Brief stand in a record
_BRIEF_PATHS: Final = (
    "mode", "reason.text", "workload.hours", "asked.starts", "asked.n_gpus", "asked.usd_per_hour",
    "chosen.n_gpus", "chosen.usd_per_hour", "chosen.p_launch", "gain.usd.lo", "gain.usd.mid",
    "gain.usd.hi", "support.axes",
)  # fmt: skip


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


def words_of(outcome: Outcome) -> Words:
    """Return what is stored of an outcome."""
    record = outcome.record() if callable(outcome.record) else outcome.record
    edits = [
        {"start": edit.start, "end": edit.end, "old": edit.old, "new": edit.new}
        for edit in outcome.edits
    ]
    answer = {
        "messages": outcome.messages,
        "fields": outcome.fields,
        "env": outcome.env,
        "edits": edits,
    }
    return Words(
        answer=clean_json(answer),
        record=_record_text(record),
        would_be=clean(record.get("would_be")),
    )


def _record_text(record: Mapping[str, object]) -> str:
    """Return a record as JSON; arms that many decisions share are written once."""
    arms = record.get("arms")
    if (
        not isinstance(arms, list)
        or not all(isinstance(arm, Shared) for arm in arms)
        or len(record) == 1
    ):
        return clean_json(record)
    others = clean_json({name: value for name, value in record.items() if name != "arms"})
    return f'{others[:-1]}, "arms": [{", ".join(map(_shared_text, arms))}]}}'


@lru_cache(maxsize=512)
def _shared_text(part: Shared) -> str:
    return clean_json(part)


def row_of(decided: Decided) -> Row:
    """Return a decision's row, secrets taken out of every text in it."""
    subject, words = decided.subject, decided.words
    return (
        decided.id,
        decided.at,
        decided.verdict,
        decided.would_be,
        clean(decided.code),
        clean(subject.user_name),
        clean(subject.account),
        clean(subject.partition),
        clean(subject.job_name),
        subject.script_sha256,
        subject.script_bytes,
        decided.generation,
        decided.elapsed_ms,
        *((words, None, None) if isinstance(words, str) else (None, words.answer, words.record)),
    )


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Append rows in one transaction and return how many were new.

    An id that is there already is left alone: a batch may come again after a commit whose end
    was not seen. Raises: sqlite3.Error.
    """
    marks = ", ".join("?" * len(rows[0]))
    with transaction(connection):
        return connection.executemany(
            f"INSERT OR IGNORE INTO decisions ({_OWN_COLUMNS}, answer, record) VALUES ({marks})",  # noqa: S608 (constants)
            rows,
        ).rowcount


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` rows older than a Unix time and return how many went."""
    oldest = "SELECT seq FROM decisions WHERE at < ? ORDER BY seq LIMIT ?"
    return connection.execute(
        f"DELETE FROM decisions WHERE seq IN ({oldest})",  # noqa: S608 (constants)
        (at, limit),
    ).rowcount


def by_id(connection: sqlite3.Connection, decision_id: str) -> StoredDecision | None:
    """Return the decision of this id, or None."""
    return next(_select(connection, "WHERE own.id = ?", (decision_id,)), None)


def since(connection: sqlite3.Connection, at: float) -> Iterator[StoredDecision]:
    """Yield the decisions answered at a Unix time or later, in the order of their arrival."""
    return _select(connection, "WHERE own.at >= ? ORDER BY own.seq", (at,))


def briefs(connection: sqlite3.Connection, at: float) -> Iterator[Brief]:
    """Yield what reports count of the decisions answered at a Unix time or later, oldest first.

    Records are read inside the database, one at a time. Raises: StoreError.
    """
    own = ", ".join(f"own.{name}" for name in _BRIEF_COLUMNS)
    paths = ", ".join(f"'$.{path}'" for path in _BRIEF_PATHS)
    sql = (
        f"SELECT {own}, json_extract(coalesce(own.record, first.record, '{{}}'), {paths}) "  # noqa: S608 (constants)
        "FROM decisions AS own LEFT JOIN decisions AS first ON first.id = own.repeats "
        "WHERE own.at >= ? ORDER BY own.seq"
    )
    for *columns, values in fetched(connection, "decisions", sql, (at,)):
        *cells, axes = json.loads(values)
        yield Brief._make((*columns, *cells, tuple(axes or ())))


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
    names = [*_OWN_COLUMNS.split(", "), "answer", "record"]
    own = ", ".join(f"own.{name}" for name in names[:-2])
    sql = (
        f"SELECT {own}, coalesce(own.answer, first.answer), coalesce(own.record, first.record) "  # noqa: S608 (constants)
        f"FROM decisions AS own LEFT JOIN decisions AS first ON first.id = own.repeats {where}"
    )
    for row in fetched(connection, "decisions", sql, values):
        cells = dict(zip(names, row, strict=True))
        for name in ("answer", "record"):
            cells[name] = None if cells[name] is None else json.loads(cells[name])
        yield StoredDecision(**cells)


def _all(connection: sqlite3.Connection, sql: str, values: Sequence[object]) -> list[Any]:
    return list(fetched(connection, "decisions", sql, values))
