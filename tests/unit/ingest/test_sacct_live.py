"""The accounting is read a day at a time, goes on where it ended, and says what is wrong."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stand_in_sacct import StandIn

from omnipilot_slurm.catalog.local import FolderLookup
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.decide.success import LaunchGroup, Outcomes
from omnipilot_slurm.errors import SlurmError, StoreError
from omnipilot_slurm.ingest.accounting import Keeping
from omnipilot_slurm.ingest.recent_jobs import past_jobs
from omnipilot_slurm.ingest.recognition import recognise
from omnipilot_slurm.ingest.sacct_live import OVERLAP_S, SOURCE, first_time, ingest_live
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.site_files import read_files
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.progress import Progress, progress, set_progress
from omnipilot_slurm.store.site_tables import launch_counts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from omnipilot_slurm.decide.site import Site

NOW = 1_800_000_000.0
DAY_S = 86_400.0
KEEPING = Keeping(user_key=lambda name: name, oldest=NOW - 3 * DAY_S, at=NOW, seen_at=NOW)


def job(job_id: str, submitted: float, **changes: object) -> dict[str, object]:
    tres = "cpu=8,gres/gpu:h100=1,gres/gpu=1,node=1"
    return {
        "JobID": job_id,
        "JobIDRaw": job_id.partition("_")[0],
        "User": "alice",
        "Partition": "h100",
        "ReqTRES": tres,
        "AllocTRES": tres,
        "NNodes": "1",
        "Submit": int(submitted),
        "Eligible": int(submitted),
        "Start": int(submitted) + 60,
        "End": str(int(submitted) + 600),
        "TimelimitRaw": "60",
        "State": "FAILED",
        "ExitCode": "1:0",
        "NodeList": "n1",
        "JobName": "serve",
    } | changes


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return StandIn(folder, sys.executable)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def test_days_are_read_one_by_one_and_a_job_in_two_of_them_counts_once(
    connection: sqlite3.Connection, sacct: StandIn
) -> None:
    long = job("2", NOW - 2 * DAY_S, End=str(int(NOW) - 100))
    sacct.say(jobs=[job("1", NOW - 2 * DAY_S), long])
    tally = ingest_live(connection, NOW - 2.5 * DAY_S, KEEPING)
    assert (tally.n_jobs, tally.n_changed) == (4, 2)
    assert sacct.asked("--starttime") == [
        f"uts{int(NOW - days * DAY_S)}" for days in (2.5, 1.5, 0.5)
    ]
    assert progress(connection, SOURCE) == Progress(at=NOW, read_to=NOW)
    assert connection.execute("SELECT sum(n_jobs) FROM demand").fetchone() == (2,)


def test_the_next_reading_begins_before_the_last_one_ended(connection: sqlite3.Connection) -> None:
    assert first_time(connection, None, KEEPING) == KEEPING.oldest
    set_progress(connection, SOURCE, Progress(at=NOW, read_to=NOW - 100.0))
    assert first_time(connection, None, KEEPING) == NOW - 100.0 - OVERLAP_S
    assert first_time(connection, 5.0, KEEPING) == 5.0


def test_days_that_were_left_out_are_read_the_next_time(
    connection: sqlite3.Connection, sacct: StandIn
) -> None:
    sacct.say(jobs=[job("1", NOW - 2 * DAY_S)])
    set_progress(connection, SOURCE, Progress(at=1.0, read_to=NOW - 2.5 * DAY_S))
    assert ingest_live(connection, NOW - DAY_S, KEEPING).n_jobs == 0
    start = first_time(connection, None, KEEPING)
    assert start == NOW - 2.5 * DAY_S - OVERLAP_S
    assert ingest_live(connection, start, KEEPING).n_changed == 1
    assert progress(connection, SOURCE) == Progress(at=NOW, read_to=NOW)


def test_a_clock_that_went_back_is_said_and_can_be_overruled(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    set_progress(connection, SOURCE, Progress(at=NOW, read_to=NOW + DAY_S))
    with pytest.raises(StoreError) as caught:
        first_time(connection, None, KEEPING)
    assert str(caught.value) == (
        "accounting was read up to 2027-01-16 08:00:00, which this machine's clock has not "
        "reached, it shows 2027-01-15 08:00:00"
    )
    assert caught.value.hint == (
        "set the clock right, or say with --since from when on to read again"
    )
    assert first_time(connection, NOW - 60.0, KEEPING) == NOW - 60.0


def test_a_slurmdbd_that_is_down_keeps_the_days_before(
    connection: sqlite3.Connection, sacct: StandIn
) -> None:
    sacct.say(jobs=[job("1", NOW - DAY_S)])
    ingest_live(connection, NOW - DAY_S, KEEPING)
    sacct.say(fails=True)
    with pytest.raises(SlurmError) as caught:
        ingest_live(connection, NOW - DAY_S, replace(KEEPING, at=NOW + DAY_S))
    assert str(caught.value) == (
        "`sacct --helpformat ...` failed (1): sacct: error: slurm_persist_conn_open: Connection "
        "refused"
    )
    assert progress(connection, SOURCE) == Progress(at=NOW, read_to=NOW)


def test_stdout_is_asked_for_where_sacct_has_it(
    connection: sqlite3.Connection, sacct: StandIn
) -> None:
    sacct.say(jobs=[])
    ingest_live(connection, NOW - 60.0, KEEPING)
    sacct.say(jobs=[], stdout=True)
    ingest_live(connection, NOW - 60.0, KEEPING)
    assert ["StdOut" in fields.split(",") for fields in sacct.asked("--format")] == [False, True]


# servers among them


@pytest.fixture(scope="module")
def site() -> Site:
    path = shipped_path("etc", "cluster-example.yaml")
    snapshot = load_snapshot(path.read_bytes(), file=str(path))
    files = read_files([])
    return files.site(snapshot, FolderLookup(roots=[]), files.experience())


SERVER = "#!/bin/bash\nvllm serve Qwen/Qwen2.5-7B-Instruct\n"


def read(
    connection: sqlite3.Connection, sacct: StandIn, site: Site, *, again: bool = False
) -> tuple[int, int, int]:
    tally = ingest_live(connection, NOW - DAY_S, KEEPING, n_latest=100)
    found = recognise(connection, tally.latest, site, again=again)
    return found.n_scripts, found.n_servers, found.n_launches


def serves(connection: sqlite3.Connection) -> dict[str, str | None]:
    return dict(connection.execute("SELECT job_id, serves FROM jobs"))


def test_servers_are_told_by_their_scripts_once(
    connection: sqlite3.Connection, sacct: StandIn, site: Site
) -> None:
    jobs = [
        job("1", NOW - 7000.0),
        job("2", NOW - 7000.0, JobName="vllm-notes"),
        job("3_0", NOW - 7000.0, JobIDRaw="4"),
        job("3_1", NOW - 7000.0, JobIDRaw="3"),
        job("5", NOW - 7000.0, State="RUNNING", End="Unknown"),
        job("6+0", NOW - 7000.0),
    ]
    scripts = {"1": SERVER, "2": "#!/bin/bash\n# about vllm\n", "3_0": SERVER, "6+0": SERVER}
    sacct.say(jobs=jobs, scripts=scripts)
    assert read(connection, sacct, site) == (3, 2, 3)
    assert serves(connection) == {
        "1": "script", "2": "no", "3_0": "script", "3_1": "script", "5": None, "6+0": None,
    }  # fmt: skip
    assert read(connection, sacct, site) == (0, 0, 0)
    assert serves(connection)["2"] == "no", "what was read in a script counts before a name"
    assert sacct.asked("--jobs") == ["1,2,3_0"]
    assert launch_counts(connection, 0.0).by_group == {
        LaunchGroup(1, "h100", 1, "bf16", None): Outcomes(0, 3)
    }
    assert read(connection, sacct, site, again=True) == (3, 2, 3)
    assert connection.execute("SELECT count(*) FROM launches").fetchone() == (3,)


def test_a_launch_that_was_decided_on_is_left_to_its_decision(
    connection: sqlite3.Connection, sacct: StandIn, site: Site
) -> None:
    sacct.say(jobs=[job("1", NOW - 7000.0)], scripts={"1": SERVER})
    connection.execute(
        "INSERT INTO outcomes VALUES ('1', ?, 'k3f9', 'tag', NULL, 1.0, 'FAILED', 'oom', 'x')",
        (NOW - 7000.0,),
    )
    assert read(connection, sacct, site) == (1, 1, 0)


def test_where_no_scripts_are_kept_one_batch_is_asked_for(
    connection: sqlite3.Connection, sacct: StandIn, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnipilot_slurm.ingest.recognition.BATCH_IDS", 2)
    sacct.say(jobs=[job(str(i), NOW - 7000.0) for i in range(1, 8)])
    assert read(connection, sacct, site) == (0, 0, 0)
    assert sacct.asked("--jobs") == ["1,2"]
    assert set(serves(connection).values()) == {None}


def test_past_jobs_come_with_their_scripts_the_newest_first(sacct: StandIn) -> None:
    jobs = [job(str(i), NOW - 7000.0 + i) for i in range(1, 5)]
    sacct.say(jobs=jobs, scripts={str(i): SERVER for i in range(1, 4)})
    found = list(past_jobs(NOW - DAY_S, NOW, limit=3))
    assert [past.id for past in found] == ["3", "2"]
    assert found[0].script.decode().startswith(SERVER)
    assert found[0].accounted is not None
    assert found[0].accounted.user == "alice"
