"""Readings that are killed, refused or raced lose nothing and count nothing twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.ingest import accounting
from omnipilot_slurm.ingest.accounting import Keeping
from omnipilot_slurm.ingest.decided import DecidedJobs
from omnipilot_slurm.ingest.sacct_file import ingest_file
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.decisions import Decided, Subject, Words
from omnipilot_slurm.store.progress import progress
from omnipilot_slurm.store.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
NOW = 1_800_000_000
HEADER = "JobID|Partition|Submit|Eligible|Start|End|State|AllocTRES|JobName\n"
N_JOBS = 1000
#: reads a dump in batches of 10 rows and takes its time in each transaction and between them
PROGRAM = """
import sys, time
from pathlib import Path
from omnipilot_slurm.ingest import accounting
from omnipilot_slurm.ingest.sacct_file import ingest_file
from omnipilot_slurm.store.database import open_for_writing

def slow(connection, jobs):
    n = quick(connection, jobs)
    time.sleep(0.005)
    return n

quick, accounting.record_jobs, accounting.BATCH_ROWS = accounting.record_jobs, slow, 10
now = float(sys.argv[3])
keeping = accounting.Keeping(user_key=lambda name: name, oldest=0.0, at=now, seen_at=now)
ingest_file(open_for_writing(Path(sys.argv[1])), Path(sys.argv[2]), keeping)
"""
KEEPING = Keeping(
    user_key=lambda name: name, oldest=0.0, at=NOW, seen_at=NOW, decided=DecidedJobs()
)


def row(i: int, *, state: str = "COMPLETED") -> str:
    submit = NOW - 90_000 + 60 * i
    end = "Unknown" if state == "RUNNING" else str(submit + 4000 + i)
    name = "two\nlines" if i % 7 == 0 else "serve"
    return f"{i}|gpu|{submit}|{submit}|{submit + 30}|{end}|{state}|gres/gpu=2|{name}\n"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.txt"
    path.write_text(HEADER + "".join(row(i) for i in range(1, N_JOBS + 1)))
    return path


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def contents(store: Path) -> dict[str, list[tuple[object, ...]]]:
    queries = {
        "jobs": "SELECT * FROM jobs ORDER BY 1, 2",
        "demand": "SELECT * FROM demand ORDER BY 1, 2, 3",
        "progress": "SELECT source, n_bytes, prefix_sha256 FROM progress",
    }
    with closing(sqlite3.connect(store)) as connection:
        return {name: connection.execute(sql).fetchall() for name, sql in queries.items()}


def test_a_reading_killed_at_random_points_ends_as_one_that_was_not(
    dump: Path, tmp_path: Path
) -> None:
    def start(store: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", PROGRAM, str(store), str(dump), str(NOW)]
        return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)

    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    assert start(whole).wait() == 0
    rng = random.Random(6)
    n_amid = 0
    for _ in range(200):
        process = start(broken)
        enough = n_jobs(broken) + rng.randint(1, N_JOBS // 5)
        while process.poll() is None and n_jobs(broken) < enough:
            time.sleep(rng.uniform(0.0, 0.005))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        n_amid += n_jobs(broken) < N_JOBS
    else:
        pytest.fail("the reading never came to its end")
    assert n_amid >= 3
    expected = contents(whole)
    found = contents(broken)
    assert len(found["jobs"]) == N_JOBS
    assert found == expected


def n_jobs(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(store)) as connection:
            return int(connection.execute("SELECT count(*) FROM jobs").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_a_dump_that_grew_is_read_on_and_one_that_changed_anew(
    connection: sqlite3.Connection, dump: Path
) -> None:
    assert ingest_file(connection, dump, KEEPING).n_jobs == N_JOBS
    with dump.open("a") as stream:
        stream.write(row(N_JOBS + 1) + "bad\n" + row(N_JOBS + 2, state="RUNNING"))
    tally = ingest_file(connection, dump, KEEPING)
    assert (tally.n_jobs, tally.n_changed) == (2, 2)
    text = dump.read_text()
    dump.write_text(text.replace("|gpu|", "|long|", 1))
    tally = ingest_file(connection, dump, KEEPING)
    assert (tally.n_jobs, tally.n_changed) == (N_JOBS + 2, 1)


def test_a_fault_behind_what_was_read_before_is_told_by_its_line(
    connection: sqlite3.Connection, dump: Path
) -> None:
    dump.write_text(HEADER + row(7) + row(8))
    ingest_file(connection, dump, KEEPING)
    with dump.open("a") as stream:
        stream.write(row(9).replace("COMPLETED", "??"))
    # the name of job 7 takes two lines
    assert ingest_file(connection, dump, KEEPING).faults == [
        "5: job 9: State must be one of Slurm's, was '??'"
    ]


def test_a_dump_that_is_still_written_is_read_to_its_last_whole_row(
    connection: sqlite3.Connection, dump: Path
) -> None:
    dump.write_text(HEADER + row(1) + row(2)[:-30])
    tally = ingest_file(connection, dump, KEEPING)
    assert (tally.n_jobs, tally.faults) == (1, ["3: is cut off in the middle of a row"])
    dump.write_text(HEADER + row(1) + row(2))
    assert ingest_file(connection, dump, KEEPING).n_jobs == 1
    reached = progress(connection, f"file:{dump.resolve()}")
    assert reached is not None
    assert reached.n_bytes == dump.stat().st_size


def test_a_full_disk_keeps_what_was_committed_and_the_next_reading_goes_on(
    connection: sqlite3.Connection, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "BATCH_ROWS", 50)
    (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {n_pages + 10}")
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        ingest_file(connection, dump, KEEPING)
    (n_kept,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    assert 0 < n_kept < N_JOBS
    connection.execute("PRAGMA max_page_count = 100000")
    assert ingest_file(connection, dump, KEEPING).n_jobs == N_JOBS - n_kept
    (n_now,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    assert n_now == N_JOBS


def test_the_daemon_writes_its_decisions_while_accounting_is_read(
    connection: sqlite3.Connection, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "BATCH_ROWS", 20)
    subject = Subject(
        user_name="a", account=None, partition=None, job_name=None, script_sha256="", script_bytes=0
    )
    recorder = Recorder(tmp_path / "o.db", retention_days=36_500)
    for i in range(300):
        recorder.put(
            Decided(
                id=str(i),
                at=float(NOW),
                subject=subject,
                verdict="pass",
                would_be=None,
                code=None,
                generation=1,
                elapsed_ms=1.0,
                words=Words(answer="{}", record="{}", would_be=None),
            )
        )
    ingest_file(connection, dump, KEEPING)
    recorder.close(60.0)
    status = recorder.status()
    assert (status["written"], status["dropped"]) == (300, 0)
    assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (N_JOBS,)
