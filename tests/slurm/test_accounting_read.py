"""A real slurmdbd's accounting, read live: demand, waits, outcomes, scripts; and replayed."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.sandbox.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnipilot_slurm.sandbox import Sandbox

pytestmark = pytest.mark.slurm

SERVER = "vllm serve Qwen/Qwen2.5-7B-Instruct"
OOM = "echo 'torch.OutOfMemoryError: CUDA out of memory'\nexit 1"
TOO_BIG = "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192"


@pytest.fixture(scope="module")
def site(make_sandbox: Callable[..., Sandbox]) -> Sandbox:
    sandbox = make_sandbox(pilot=Pilot())
    sandbox.up()
    return sandbox


@pytest.fixture(scope="module")
def ended(site: Sandbox) -> dict[str, int]:
    """Jobs of several kinds, all ended and known to slurmdbd: their ids by kind."""
    asked = {
        "plain": (["-p", "h100", "--gres=gpu:h100:2", "-J", "two\nlines|and"], "sleep 1"),
        "server": (["-p", "h100", "--gres=gpu:h100:1"], SERVER),
        "oom": (["-p", "h100", "--gres=gpu:h100:1"], f"{SERVER}\n{OOM}"),
        "moved": (["--gres=gpu:a100:1"], TOO_BIG),
        "array": (["-p", "h100", "--gres=gpu:h100:1", "--array=0-2"], "sleep 1"),
        "cpu": ([], "true"),
    }
    jobs = {}
    for kind, (args, body) in asked.items():
        answer = site.submit(args, script=f"#!/bin/bash\n{body}\n")
        assert answer.job_id is not None, answer.stderr
        jobs[kind] = answer.job_id
    words = ("sacct", "-nXP", "-j", ",".join(map(str, jobs.values())), "-o", "state,end")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told = site.run(*words)
        if told.count("\n") >= len(jobs) + 2 and "Unknown" not in told:
            break
        time.sleep(0.2)
    return jobs


@pytest.fixture
def slurm_env(site: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in site.env().items():
        monkeypatch.setenv(name, value)


def ingest(site: Sandbox, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["ingest", "sacct", "--config", str(site.folders.pilot), "--json", *words])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    told: dict[str, Any] = json.loads(printed.out)
    return told


def rows(store: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute(sql).fetchall()


def store_of(site: Sandbox) -> Path:
    (found,) = site.folders.pilot.glob("**/*.db")
    return found


@pytest.mark.usefixtures("slurm_env")
def test_accounting_is_read_once_with_outcomes_and_launches(
    site: Sandbox, ended: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    first = ingest(site, capsys, "--since", "1d")
    store = store_of(site)
    states = dict(rows(store, "SELECT job_id, state FROM jobs"))
    assert {states[str(ended[kind])] for kind in ("plain", "server", "moved")} == {"COMPLETED"}
    assert states[str(ended["oom"])] == "FAILED"
    assert {f"{ended['array']}_{i}" for i in range(3)} <= states.keys()
    assert str(ended["cpu"]) not in states
    assert first["bad_rows"] == 0
    assert first["skipped_no_gpus"] >= 1

    serves = dict(rows(store, "SELECT job_id, serves FROM jobs"))
    assert serves[str(ended["server"])] == serves[str(ended["oom"])] == "script"
    assert serves[str(ended["plain"])] == serves[f"{ended['array']}_1"] == "no"

    outcomes = {
        row[0]: row[1:] for row in rows(store, "SELECT job_id, outcome, linked_by FROM outcomes")
    }
    assert outcomes[str(ended["oom"])][0] == "oom"
    assert outcomes[str(ended["moved"])] == ("ok", "tag")
    launches = {
        row[0]: row[1:]
        for row in rows(store, "SELECT job_id, outcome, gpu, n_gpus, checked FROM launches")
    }
    assert launches[str(ended["oom"])][0] == "oom"
    outcome, gpu, _, checked = launches[str(ended["moved"])]
    assert (outcome, checked) == ("ok", 1)
    assert gpu != "a100-40g"

    (held,) = rows(store, "SELECT sum(held_gpu_s) FROM demand WHERE partition = 'h100'")
    assert held[0] > 0
    assert rows(store, "SELECT count(*) FROM waits")[0][0] >= len(ended) - 1
    user = rows(store, "SELECT DISTINCT user_key FROM jobs")
    assert user != [("nobody",)]

    again = ingest(site, capsys)
    assert (again["new_or_changed"], again["scripts"]) == (0, 0)


@pytest.mark.usefixtures("slurm_env", "ended")
def test_a_dump_of_the_same_accounting_says_nothing_new(
    site: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest(site, capsys, "--since", "1d")
    dump = tmp_path / "sacct.json"
    dump.write_text(site.run("sacct", "-aD", "--json", "-S", "now-1hour"))
    told = ingest(site, capsys, "--file", str(dump))
    assert (told["bad_rows"], told["new_or_changed"]) == (0, 0)
    assert told["jobs"] > 0


@pytest.mark.usefixtures("slurm_env")
def test_past_jobs_are_replayed_and_held_against_how_they_ended(
    site: Sandbox, ended: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--since", "1d", "--json", "--config", str(site.folders.pilot)]) == 0
    found = json.loads(capsys.readouterr().out)
    by_id = {job["id"]: job for job in found["jobs"]}
    assert by_id[str(ended["oom"])]["ended"] == "oom"
    assert by_id[str(ended["oom"])]["starts"] == "starts"
    assert found["others"]["not_serving"] >= 2


def test_accounting_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none.conf"))
    assert main(["ingest", "sacct", "--store", str(tmp_path / "o.db")]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("error: `sacct --helpformat ...` failed (1): sacct: ")
    assert told[-1] == "hint: is slurmdbd up, and may this user see all users' jobs?"
