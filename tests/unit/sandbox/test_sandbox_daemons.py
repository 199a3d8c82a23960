"""Processes are found again, stopped, and never confused with another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox import Folders, daemons
from omnipilot_slurm.sandbox.conf import MARK
from omnipilot_slurm.sandbox.daemons import Daemon

SLEEPER = Daemon(name="sleeper", argv=("/bin/sleep", "60"))


@pytest.fixture
def folders(tmp_path):
    made = Folders(tmp_path)
    for folder in (made.running, made.log):
        folder.mkdir()
    yield made
    for name in daemons.started(made):
        daemons.stop(made, name)


@pytest.fixture
def bystander():
    with subprocess.Popen(SLEEPER.argv) as process:
        # what starts next starts in another tick of the clock
        time.sleep(0.05)
        yield process
        process.kill()


def record(folders) -> dict:
    return json.loads((folders.running / "sleeper.json").read_text())


def test_a_daemon_is_found_until_it_is_stopped(folders):
    daemons.start(SLEEPER, folders)
    pid = daemons.find(folders, "sleeper")
    assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"/bin/sleep\x0060\x00"
    assert daemons.started(folders) == ("sleeper",)
    daemons.stop(folders, "sleeper")
    assert daemons.find(folders, "sleeper") is None
    assert daemons.started(folders) == ()


def test_a_process_with_our_number_but_another_start_is_left_alone(folders, bystander):
    daemons.start(SLEEPER, folders)
    ours = daemons.find(folders, "sleeper")
    # as if ours had died and its number, with the same command line, had gone to the bystander
    path = folders.running / "sleeper.json"
    path.write_text(json.dumps(record(folders) | {"pid": bystander.pid}))
    assert daemons.find(folders, "sleeper") is None
    daemons.stop(folders, "sleeper")
    assert bystander.poll() is None
    os.kill(ours, signal.SIGKILL)


def test_a_process_with_another_command_line_is_left_alone(folders, bystander):
    daemons.start(SLEEPER, folders)
    ours = daemons.find(folders, "sleeper")
    path = folders.running / "sleeper.json"
    path.write_text(json.dumps(record(folders) | {"argv": ["/bin/sleep", "61"]}))
    daemons.stop(folders, "sleeper")
    assert Path(f"/proc/{ours}").exists()
    os.kill(ours, signal.SIGKILL)


def test_a_zombie_is_dead(folders):
    with subprocess.Popen(["/bin/true"]) as zombie:
        deadline = time.monotonic() + 10
        while daemons._status(zombie.pid)[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.01)
        state, ticks = daemons._status(zombie.pid)
        assert state == "Z"
        # a zombie has no command line left either
        stale = {"pid": zombie.pid, "start_ticks": ticks, "argv": []}
        (folders.running / "sleeper.json").write_text(json.dumps(stale))
        assert daemons.find(folders, "sleeper") is None


def test_a_daemon_that_ignores_sigterm_is_killed(folders, monkeypatch):
    monkeypatch.setattr(daemons, "_STOP_S", 0.1)
    deaf = 'trap "" TERM; echo 1; while :; do sleep 0.1; done'
    daemons.start(Daemon(name="deaf", argv=("/bin/sh", "-c", deaf)), folders)
    daemons.wait_until(
        lambda: (folders.log / "deaf.out").read_text() == "1\n",
        folders,
        "deaf",
        timeout_s=20,
        log=None,
    )
    daemons.stop(folders, "deaf")
    assert daemons.started(folders) == ()


def test_a_daemon_that_dies_while_it_starts_is_reported_with_its_last_words(folders):
    broken = Daemon(name="broken", argv=("/bin/sh", "-c", "echo no such option >&2; exit 1"))
    daemons.start(broken, folders)
    with pytest.raises(SandboxError) as caught:
        daemons.wait_until(lambda: False, folders, "broken", timeout_s=20, log=None)
    assert str(caught.value) == "broken died while it started: no such option"


def test_a_program_that_is_missing_is_reported(folders):
    daemons.start(Daemon(name="missing", argv=("/nonexistent/slurmd",)), folders)
    with pytest.raises(SandboxError) as caught:
        daemons.wait_until(lambda: False, folders, "missing", timeout_s=20, log=None)
    assert "/nonexistent/slurmd" in str(caught.value)


def test_a_daemon_that_never_answers_is_given_up(folders):
    daemons.start(SLEEPER, folders)
    with pytest.raises(SandboxError) as caught:
        daemons.wait_until(lambda: False, folders, "sleeper", timeout_s=0.1, log=None)
    assert str(caught.value) == "sleeper did not answer within 0.1 s: it logged nothing"


def test_what_a_daemon_leaves_behind_is_ended_and_nothing_else(folders, bystander):
    orphan = "sleep 60 & echo $!"
    daemons.start(Daemon(name="parent", argv=("/bin/sh", "-c", orphan)), folders)
    daemons.gone(folders, "parent", timeout_s=10)
    pid = int((folders.log / "parent.out").read_text())
    with subprocess.Popen(SLEEPER.argv, env={MARK: f"{folders.root}-other"}) as other:
        daemons.kill_marked(folders)
        deadline = time.monotonic() + 10
        while (daemons._status(pid) or ("X", 0))[0] not in "ZX" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (daemons._status(pid) or ("X", 0))[0] in "ZX"
        assert (other.poll(), bystander.poll()) == (None, None)
        other.kill()


def test_a_daemon_does_not_inherit_the_callers_environment(folders, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SECRET", "x")
    daemons.start(Daemon(name="env", argv=("/usr/bin/env",), environment={"A": "1"}), folders)
    daemons.gone(folders, "env", timeout_s=10)
    names = dict(line.split("=", 1) for line in (folders.log / "env.out").read_text().splitlines())
    assert names["SLURM_CONF"] == str(folders.slurm_conf)
    assert names["A"] == "1"
    assert "SECRET" not in names
