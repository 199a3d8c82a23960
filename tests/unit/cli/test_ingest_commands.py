"""`omnipilot ingest`: what is told of a reading, and that a bad store is said and costs nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from omnipilot_slurm.cli.main import main

DUMPS = Path(__file__).parents[2] / "fixtures" / "slurm" / "24.11"
RUN = {
    "model_id": "Qwen/Qwen2.5-7B-Instruct",
    "request_rate": "inf",
    "max_concurrency": 32,
    "duration": 10.0,
    "completed": 98,
    "total_input_tokens": 100352,
    "total_output_tokens": 25088,
    "request_throughput": 9.8,
    "output_throughput": 2508.8,
    "total_token_throughput": 12544.0,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "o.db"


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN))
    return path


def sacct(store: Path, *words: str) -> int:
    """Read into a store that keeps everything, whatever day it is."""
    config = store.parent / "etc"
    config.mkdir(exist_ok=True)
    (config / "omnipilot.yaml").write_text("schema: 1\ndaemon: {retention_days: 36500}\n")
    return main(["ingest", "sacct", "--store", str(store), "--config", str(config), *words])


def rows(store: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute(sql).fetchall()


def test_a_dump_is_read_once_and_users_are_hashed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt"), "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["jobs"] == first["new_or_changed"] == len(rows(store, "SELECT 1 FROM jobs"))
    assert first["skipped_step"] > 0
    assert sacct(store, "--file", str(DUMPS / "sacct.txt"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 0
    assert sacct(store, "--file", str(DUMPS / "sacct.json"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["new_or_changed"] == 0
    (key,) = {row[0] for row in rows(store, "SELECT DISTINCT user_key FROM jobs")}
    assert len(key) == 16
    assert b"nobody" not in store.read_bytes()
    assert (store.parent / "o.db.key").stat().st_mode & 0o777 == 0o600


def test_user_names_are_kept_where_that_is_wanted(store: Path) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt"), "--user-names", "keep") == 0
    assert rows(store, "SELECT DISTINCT user_key FROM jobs") == [("nobody",)]
    assert not (store.parent / "o.db.key").exists()


def test_people_are_told_in_a_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt")) == 0
    told = capsys.readouterr().out
    n = len(rows(store, "SELECT 1 FROM jobs"))
    assert told.startswith(f"{n} jobs with GPUs, {n} of them new or changed; 0 outcomes of decided")


def test_bad_rows_are_told_with_file_and_line(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.txt"
    dump.write_text(
        "JobID|Partition|Submit|Start|End|State|ReqTRES\n4|gpu|x|x|x|FAILED|gres/gpu=1\n"
    )
    assert sacct(store, "--file", str(dump)) == 1
    assert capsys.readouterr().err == (
        f"{dump}:2: job 4: a time must be as 2026-01-31T14:05:00 or Unix seconds, was 'x'\n"
    )


def test_a_cluster_that_counts_no_gpus_is_told_why(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.txt"
    dump.write_text(
        "JobID|Partition|Submit|Start|End|State|ReqTRES\n"
        "4|gpu|1795973450|1795973450|1795973459|COMPLETED|cpu=1\n"
    )
    assert sacct(store, "--file", str(dump)) == 0
    assert capsys.readouterr().err == (
        "hint: no job has GPUs; is gres/gpu in AccountingStorageTRES of slurm.conf?\n"
    )


def test_jobs_older_than_the_store_keeps_are_counted_only(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt"), "--since", "2100-01-01", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["jobs"], told["too_old"] > 0, rows(store, "SELECT 1 FROM jobs")) == (0, True, [])
    assert sacct(store, "--file", str(DUMPS / "sacct.txt"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == told["too_old"]


def test_a_file_that_is_no_dump_is_refused(
    store: Path, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sacct(store, "--file", str(result)) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {result}: must be what `sacct --json` prints, has no list `jobs`",
        "hint: rows of `sacct -P` are read too, with their header line",
    ]


def test_a_key_that_is_not_whole_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.parent / "o.db.key").write_bytes(b"short")
    assert sacct(store, "--file", str(DUMPS / "sacct.txt")) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {store}.key: must hold 32 bytes, has 5",
        "hint: bring it back from a backup; with a new one, users of old rows are strangers",
    ]


def test_a_locked_database_is_said_and_what_was_there_stays(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt")) == 0
    before = rows(store, "SELECT * FROM jobs")
    capsys.readouterr()
    monkeypatch.setattr("omnipilot_slurm.store.database.BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert sacct(store, "--file", str(DUMPS / "sacct.json")) == 1
    assert capsys.readouterr().err == (
        f"error: {store}: cannot be written: database is locked\n"
        "hint: what was written before is kept; run this again, as root or the daemon's user, when "
        "there is room and nobody holds the database\n"
    )
    assert rows(store, "SELECT * FROM jobs") == before


def test_a_run_is_stored_once_and_its_arm_can_be_mended(
    store: Path, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ingest", "bench", "--store", str(store), str(result)]
    assert main([*words, "--gpu", "h100"]) == 0
    assert capsys.readouterr().out == f"{result}: 1 runs, 1 new or changed\n"
    assert main([*words, "--gpu", "h100", "--json"]) == 0
    told = {"file": str(result), "runs": 1, "new_or_changed": 0, "fault": None}
    assert json.loads(capsys.readouterr().out) == {"files": [told]}
    assert main([*words, "--gpu", "h200", "--tensor-parallel", "2"]) == 0
    kept = rows(store, "SELECT gpu, n_gpus, output_tok_s, file FROM benchmarks")
    assert kept == [("h200", 2, 2508.8, "run.json")]


def test_a_bad_file_is_told_and_the_others_are_stored(
    store: Path, result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("model,gpu,isl,osl,ttft_ms\nm,h100,8,8,1\nm,h100,8,8,x\n")
    words = ["ingest", "bench", "--store", str(store), str(bad), str(result), "--gpu", "h100"]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        f"{bad}: line 3: ttft_ms: must be a number not below 0, was 'x'\n"
    )
    assert rows(store, "SELECT file FROM benchmarks") == [("run.json",)]


def test_a_result_finds_the_arm_of_its_job(store: Path, result: Path) -> None:
    assert sacct(store, "--file", str(DUMPS / "sacct.txt")) == 0
    record = {"launch": {"model": "x/y", "kv_cache_dtype": "fp8", "data_parallel": 2}}
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "INSERT INTO decisions (id, at, verdict, script_sha256, script_bytes, generation, "
            "elapsed_ms, answer, record) VALUES ('k3f9', 1.0, 'pass', '', 0, 1, 0.1, '{}', ?)",
            (json.dumps(record),),
        )
        connection.execute(
            "INSERT INTO launches VALUES ('2', 1.0, 'k3f9', 'h100', 4, 2, 'fp8', '0.11.0', 'ok', 1)"
        )
    assert main(["ingest", "bench", "--store", str(store), str(result), "--job", "2"]) == 0
    columns = "model, gpu, n_gpus, tensor_parallel, data_parallel, precision, kv_cache_dtype"
    kept = rows(store, f"SELECT {columns}, vllm_version, job_id FROM benchmarks")
    model = "Qwen/Qwen2.5-7B-Instruct"
    assert kept == [(model, "h100", 4, 2, 2, "fp8", "fp8", "0.11.0", "2")]
