"""A real omnipilotd keeps its decisions through kills, and decides on when the disk refuses."""

from __future__ import annotations

import random
import resource
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from daemon_process import PATIENCE_S, DaemonProcess, wait_until

from omnipilot_slurm.store.database import open_for_reading
from omnipilot_slurm.store.decisions import StoredDecision, by_id, since

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "Zq8vT2mN5xK1pL7w"
#: a commit is due within this, however busy the machine is
COMMIT_S = 3.0


def stored(path: Path) -> list[StoredDecision]:
    with closing(open_for_reading(path)) as connection:
        return list(since(connection, 0.0))


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Submitters:
    """Threads that ask for decisions until the daemon is gone; ids and when they were answered."""

    def __init__(self, daemon: DaemonProcess, n_threads: int) -> None:
        self.answered: dict[str, float] = {}
        self._daemon = daemon
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _work(self, number: int) -> None:
        n = 0
        while True:
            n += 1
            try:
                answer = self._daemon.decide(f"advise text {number} {n % 50}", user_name="root")
            except (OSError, ValueError):
                return
            self.answered[answer["id"]] = time.monotonic()


def log_lines(daemon: DaemonProcess, event: str) -> list[str]:
    """Return what is logged of an event, without time, severity and how long it took."""
    lines = (line.partition(f" {event} ") for line in daemon.log_text().splitlines())
    return [f"{head.split()[-1]} {rest.partition(' ms=')[0]}" for head, at, rest in lines if at]


@pytest.mark.parametrize("keeps", [True, False])
def test_what_is_only_observed_is_logged_with_what_it_would_have_been(
    stopped: DaemonProcess, keeps: bool
) -> None:
    if not keeps:
        stopped.settings["store"] = None
    stopped.start()
    jobs = {"user_name": "root", "partition": "gpu"}
    ids = [stopped.decide(script, **jobs)["id"] for script in ("observe rewrite", "observe pass")]
    wait_until(lambda: len(log_lines(stopped, "decision")) == 2, "two lines")
    fields = "code=one user=root partition=gpu"
    assert log_lines(stopped, "decision") == [
        f"INFO id={ids[0]} verdict=pass would_be=rewrite {fields}",
        f"DEBUG id={ids[1]} verdict=pass {fields}",
    ]
    again = stopped.decide("observe rewrite", **jobs)["id"]
    wait_until(lambda: len(log_lines(stopped, "decision")) == 3, "a third line")
    said = f"INFO id={again} verdict=pass would_be=rewrite {fields}"
    assert log_lines(stopped, "decision")[-1] == said


def test_a_decision_is_stored_after_it_was_answered(daemon: DaemonProcess) -> None:
    answer = daemon.decide(
        f"export HF_TOKEN={SECRET}\nadvise vllm serve m --api-key {SECRET} --port 1",
        user_name="root",
        account="nlp",
        partition="gpu",
        name=f"run-hf_{SECRET}",
    )
    wait_until(lambda: daemon.status()["store"]["written"] == 1, "the row")
    with closing(open_for_reading(daemon.store)) as connection:
        kept = by_id(connection, answer["id"])
    assert (kept.verdict, kept.code, kept.user_name) == ("advise", "one", "root")
    assert (kept.account, kept.partition, kept.generation) == ("nlp", "gpu", 1)
    assert kept.job_name == "run-[redacted]"
    assert kept.answer["messages"] == [
        "vllm serve m --api-key [redacted] --port 1 (omnipilot explain {decision_id})"
    ]
    assert len(kept.script_sha256) == 64
    assert kept.elapsed_ms > 0


def test_neither_the_script_nor_a_secret_of_it_reaches_disk_or_log(daemon: DaemonProcess) -> None:
    daemon.decide(f"export HF_TOKEN={SECRET}\n# only-in-the-script\nadvise --api-key {SECRET}")
    daemon.decide(f"raise --api-key {SECRET}")
    daemon.ask_raw(b'{"v":1,"op":"decide","script":7,"x":"' + SECRET.encode() + b'"}\n')
    daemon.stop()
    files = [path for path in daemon.folder.rglob("*") if path.is_file() and path.name != "log"]
    assert daemon.store in files
    for path in files:
        assert SECRET.encode() not in path.read_bytes()
        assert b"only-in-the-script" not in path.read_bytes()
    assert "only-in-the-script" not in daemon.log_text()


def test_each_answer_has_its_row_also_when_it_was_given_before(daemon: DaemonProcess) -> None:
    first = daemon.decide("advise x")["id"]
    wait_until(lambda: daemon.status()["store"]["written"] == 1, "the first row")
    ids = {first} | {daemon.decide("advise x")["id"] for _ in range(19)}
    daemon.stop()
    rows = stored(daemon.store)
    assert {row.id for row in rows} == ids
    assert [row.repeats for row in rows] == [None] + [first] * 19
    assert {tuple(row.answer["messages"]) for row in rows} == {
        ("x (omnipilot explain {decision_id})",)
    }
    assert len({row.script_sha256 for row in rows}) == 1


def test_a_daemon_killed_at_any_moment_loses_the_last_second_at_most(
    stopped: DaemonProcess,
) -> None:
    moments = random.Random(7)
    all_answered: set[str] = set()
    for _ in range(4):
        stopped.start()
        submitters = Submitters(stopped, n_threads=2)
        time.sleep(COMMIT_S * moments.random() + 0.3)
        stopped.process.kill()
        killed_at = time.monotonic()
        stopped.process.wait()
        submitters.join()
        assert is_sound(stopped.store)
        kept = [row.id for row in stored(stopped.store)]
        assert len(set(kept)) == len(kept)
        due = {key for key, at in submitters.answered.items() if at < killed_at - COMMIT_S}
        assert due <= set(kept)
        all_answered |= set(submitters.answered)
        # at most one answer a worker was stored and never read by its client
        assert len(set(kept) - all_answered) <= 4 * 4
    stopped.start()
    answer = stopped.decide("advise after all that")
    stopped.stop()
    assert stored(stopped.store)[-1].id == answer["id"]


def test_a_full_disk_costs_rows_and_no_call_and_is_over_when_there_is_room(
    daemon: DaemonProcess,
) -> None:
    ids = [daemon.decide("advise x")["id"]]
    wait_until(lambda: daemon.status()["store"]["written"] == 1, "the first row")
    free = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (48 * 1024, free[1]))

    def fault() -> Any:
        ids.append(daemon.decide(f"advise {'y' * 2000} {time.monotonic()}")["id"])
        return daemon.status()["store"]["fault"]

    wait_until(fault, "a fault of the store")
    ids.append(daemon.decide("advise z")["id"])
    assert "store not written" in daemon.log_text()
    assert is_sound(daemon.store)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, free)
    wait_until(lambda: daemon.status()["store"]["fault"] is None, "the store's recovery")
    ids.append(daemon.decide("advise last")["id"])
    daemon.stop()
    assert is_sound(daemon.store)
    assert sorted(row.id for row in stored(daemon.store)) == sorted(ids)
    assert "store written again" in daemon.log_text()


@pytest.mark.parametrize(
    ("store", "fault"),
    [
        pytest.param("/proc/o.db", "unable to open database file", id="a read-only folder"),
        pytest.param(
            "/proc/omnipilot/o.db",
            "[Errno 2] No such file or directory: '/proc/omnipilot'",
            id="a folder that cannot be made",
        ),
    ],
)
def test_decides_on_with(store: str, fault: str, stopped: DaemonProcess) -> None:
    stopped.settings["store"] = store
    stopped.start()
    wait_until(lambda: stopped.status()["store"]["fault"], "a fault of the store")
    assert stopped.decide("advise x")["verdict"] == "advise"
    assert stopped.status()["store"]["fault"] == fault
    assert stopped.stop() == 0
    assert "decisions dropped n=1" in stopped.log_text()


def test_a_damaged_database_is_left_as_it_is_and_said(stopped: DaemonProcess) -> None:
    stopped.store.parent.mkdir()
    damaged = b"this was a database once " * 400
    stopped.store.write_bytes(damaged)
    stopped.start()
    wait_until(lambda: stopped.status()["store"]["fault"], "a fault of the store")
    assert stopped.status()["store"]["fault"] == "file is not a database"
    assert stopped.decide("advise x")["verdict"] == "advise"
    stopped.stop()
    assert stopped.store.read_bytes() == damaged


def test_without_a_store_decisions_are_made_and_not_kept(stopped: DaemonProcess) -> None:
    stopped.settings["store"] = None
    stopped.start()
    assert stopped.decide("advise x")["verdict"] == "advise"
    assert stopped.status()["store"] == {"path": None}
    assert stopped.stop() == 0
