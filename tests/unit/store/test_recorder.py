"""Decisions reach the disk beside the calls; a disk that refuses costs rows, said, and no call."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.records import Outcome, Verdict
from omnipilot_slurm.store import recorder
from omnipilot_slurm.store.database import open_for_reading, open_for_writing, schema
from omnipilot_slurm.store.decisions import (
    Decided,
    Row,
    Subject,
    insert,
    row_of,
    since,
    words_of,
)
from omnipilot_slurm.store.recorder import NoRecorder, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_S = 20.0
NOW = 1_800_000_000.0
DAY_S = 86_400.0


def decided(decision_id: str, *, at: float = NOW) -> Decided:
    return Decided(
        id=decision_id,
        at=at,
        subject=Subject(
            user_name="alice",
            account=None,
            partition=None,
            job_name=None,
            script_sha256="ab" * 32,
            script_bytes=1,
        ),
        verdict="pass",
        would_be=None,
        code=None,
        generation=1,
        elapsed_ms=0.1,
        words=words_of(Outcome(verdict=Verdict.PASS)),
    )


def row(decision_id: str, *, at: float = NOW) -> Row:
    return row_of(decided(decision_id, at=at))


def stored(path: Path) -> list[str]:
    with closing(open_for_reading(path)) as connection:
        return [each.id for each in since(connection, 0.0)]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FLUSH_S", 0.02)
    monkeypatch.setattr(recorder, "RETRY_S", 0.05)


def test_what_was_put_is_stored_in_order_without_being_asked(tmp_path: Path) -> None:
    writer = Recorder(tmp_path / "o.db", retention_days=1, clock=lambda: NOW)
    ids = [f"d{n}" for n in range(250)]
    for each in ids:
        writer.put(decided(each))
    wait_until(lambda: writer.status()["written"] == 250)
    assert stored(tmp_path / "o.db") == ids
    assert writer.status() == {
        "path": str(tmp_path / "o.db"),
        "written": 250,
        "dropped": 0,
        "waiting": 0,
        "fault": None,
    }
    writer.close(PATIENCE_S)


def test_closing_writes_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FLUSH_S", 3600.0)
    writer = Recorder(tmp_path / "o.db", retention_days=1, clock=lambda: NOW)
    writer.put(decided("a"))
    writer.close(PATIENCE_S)
    assert stored(tmp_path / "o.db") == ["a"]
    assert not writer.alive


def test_a_database_that_another_locks_is_written_when_it_is_free_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o.db"
    open_for_writing(path).close()
    monkeypatch.setattr("omnipilot_slurm.store.database.BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with caplog.at_level(logging.INFO):
            writer = Recorder(path, retention_days=1, clock=lambda: NOW)
            writer.put(decided("a"))
            wait_until(lambda: writer.status()["fault"] == "database is locked")
            other.execute("ROLLBACK")
            wait_until(lambda: writer.status()["fault"] is None)
    writer.close(PATIENCE_S)
    assert stored(path) == ["a"]
    assert [record.getMessage() for record in caplog.records] == [
        f'store not written path={path} fault="database is locked"',
        f"store written again path={path} dropped=0",
    ]


def test_a_folder_that_cannot_be_made_costs_the_rows_that_no_longer_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "WAITING_ROWS", 3)
    monkeypatch.setattr(recorder, "RETRY_S", 3600.0)
    (tmp_path / "file").write_text("")
    writer = Recorder(tmp_path / "file" / "o.db", retention_days=1, clock=lambda: NOW)
    wait_until(lambda: writer.status()["fault"] is not None)
    for n in range(5):
        writer.put(decided(f"d{n}"))
    status = writer.status()
    assert (status["dropped"], status["waiting"]) == (2, 3)
    writer.close(PATIENCE_S)
    assert writer.status()["dropped"] == 5
    fault = f"[Errno 17] File exists: '{tmp_path}/file'"
    assert [record.getMessage() for record in caplog.records] == [
        f'store not written path={tmp_path}/file/o.db fault="{fault}"',
        f'decisions dropped n=1 fault="{fault}"',
        f'decisions dropped n=5 fault="{fault}"',
    ]


def test_a_newer_database_is_not_written_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    connection = open_for_writing(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    writer = Recorder(path, retention_days=1, clock=lambda: NOW)
    wait_until(lambda: writer.status()["fault"] is not None)
    assert (
        writer.status()["fault"]
        == f"{path}: has schema 99, this release knows up to {max(schema())}"
    )
    writer.close(PATIENCE_S)


def test_decisions_older_than_the_retention_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    connection = open_for_writing(path)
    insert(connection, [row("old", at=NOW - 31 * DAY_S), row("new")])
    connection.close()
    writer = Recorder(path, retention_days=30, clock=lambda: NOW)
    wait_until(lambda: stored(path) == ["new"])
    writer.close(PATIENCE_S)


def test_a_clock_that_goes_back_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    writer = Recorder(path, retention_days=30, clock=lambda: 0.0)
    writer.put(decided("a", at=NOW))
    writer.put(decided("b", at=NOW - 400 * DAY_S))
    writer.put(decided("c", at=-5.0))
    writer.close(PATIENCE_S)
    with closing(open_for_reading(path)) as connection:
        assert [each.id for each in since(connection, -10.0)] == ["a", "b", "c"]


def test_a_clock_that_jumps_ahead_for_a_moment_does_not_empty_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PRUNE_ROWS", 2)
    path = tmp_path / "o.db"
    connection = open_for_writing(path)
    insert(connection, [row(str(n)) for n in range(5)])
    connection.close()
    writer = Recorder(path, retention_days=30, clock=lambda: NOW + 10_000 * DAY_S)
    wait_until(lambda: len(stored(path)) == 3)
    writer.close(PATIENCE_S)
    assert stored(path) == ["2", "3", "4"]


def test_without_a_store_nothing_is_kept_and_nothing_fails() -> None:
    nothing = NoRecorder()
    nothing.put(decided("a"))
    nothing.close(0.0)
    assert (nothing.status(), nothing.alive, nothing.keeps) == ({"path": None}, True, False)
