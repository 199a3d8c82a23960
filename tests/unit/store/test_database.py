"""A database is created, brought up to date or refused; never misread."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.store import database
from omnipilot_slurm.store.database import open_for_reading, open_for_writing, schema

if TYPE_CHECKING:
    from pathlib import Path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def test_a_new_database_has_the_newest_schema(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "o.db"
    open_for_writing(path).close()
    assert version(path) == max(schema())
    assert {"decisions", "decisions_at", "decisions_stay"} <= tables(path)
    open_for_writing(path).close()


def test_an_older_database_is_brought_up_to_date_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o.db"
    sections = {1: "CREATE TABLE a (x);", 2: "ALTER TABLE a ADD y;"}
    monkeypatch.setattr(database, "schema", lambda: {1: sections[1]})
    first = open_for_writing(path)
    first.execute("INSERT INTO a VALUES (7)")
    first.close()
    monkeypatch.setattr(database, "schema", lambda: sections)
    with pytest.raises(StoreError) as caught:
        open_for_reading(path)
    assert str(caught.value) == f"{path}: has schema 1, this release reads 2"
    assert caught.value.hint == "restart omnipilotd, which brings the database up to date"
    second = open_for_writing(path)
    assert second.execute("SELECT x, y FROM a").fetchall() == [(7, None)]
    second.close()
    assert version(path) == 2


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o.db"
    monkeypatch.setattr(database, "schema", lambda: {1: "CREATE TABLE a (x);"})
    open_for_writing(path).close()
    bad = {1: "CREATE TABLE a (x);", 2: "CREATE TABLE b (x);\nCREATE TABLE a (x);"}
    monkeypatch.setattr(database, "schema", lambda: bad)
    with pytest.raises(sqlite3.OperationalError, match="table a already exists"):
        open_for_writing(path)
    assert (version(path), tables(path)) == (1, {"a"})


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    open_for_writing(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    for opens in (open_for_writing, open_for_reading):
        with pytest.raises(StoreError) as caught:
            opens(path)
        assert (
            str(caught.value) == f"{path}: has schema 99, this release knows up to {max(schema())}"
        )
        assert caught.value.hint == ("upgrade omnipilot_slurm, or set daemon.store to a new file")


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError) as caught:
        open_for_writing(path)
    assert str(caught.value) == f"{path}: is another program's database"
    assert tables(path) == {"mine"}


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    path.write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        open_for_writing(path)
    with pytest.raises(StoreError) as caught:
        open_for_reading(path)
    assert str(caught.value) == f"{path}: cannot be read: file is not a database"


def test_a_database_that_is_not_there_is_not_created_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    with pytest.raises(StoreError) as caught:
        open_for_reading(path)
    assert str(caught.value) == f"{path}: there is no database"
    assert not path.exists()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    open_for_writing(path).close()
    reader = open_for_reading(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM decisions")
    reader.close()


def test_two_that_open_a_new_database_at_once_both_get_it(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    versions: list[int] = []

    def work() -> None:
        connection = open_for_writing(path)
        versions.append(connection.execute("PRAGMA user_version").fetchone()[0])
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions == [max(schema())] * 4
