"""`omnipilot status` and `reload` tell how a real omnipilotd is doing, or that none is."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from daemon_process import DaemonProcess, wait_until

from omnipilot_slurm.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_status_shows_state_store_and_counts(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.decide("advise x", user_name="root")
    wait_until(lambda: daemon.status()["store"]["written"] == 1, "the row")
    code, out, said = run(capsys, "status", "--config", str(daemon.folder))
    assert (code, said) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert shown["socket"] == str(daemon.socket)
    assert shown["store.written"] == shown["counts.verdict_advise"] == "1"
    assert (shown["state.ready"], shown["state.fault"]) == ("yes", "-")
    assert shown["state.loaded_at"].startswith("20")
    assert not any("up_to" in name for name in shown)


def test_status_as_json_is_the_daemons_own(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "status", "--socket", str(daemon.socket), "--json")
    assert code == 0
    assert json.loads(out)["state"]["generation"] == 1


def test_a_reload_with_faults_lists_them_and_status_keeps_saying_so(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--socket", str(daemon.socket))
    daemon.state("broken")
    assert run(capsys, "reload", *where) == (
        1, "state:1:1: is broken\n", "not loaded: what was in force stays so\n",
    )  # fmt: skip
    code, _, said = run(capsys, "status", *where)
    assert (code, said) == (1, "fault: state.fault: state:1:1: is broken\n")
    daemon.state("mended")
    assert run(capsys, "reload", *where) == (0, "", "the files are read and in force\n")
    assert run(capsys, "status", *where)[0] == 0


def test_a_daemon_that_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.sock"
    code, _, said = run(capsys, "status", "--socket", str(path))
    assert code == 1
    hint = "is it running? `systemctl status omnipilotd` tells; daemon.socket names the path"
    said_so = f"error: {path}: omnipilotd does not answer: No such file or directory\n"
    assert said == f"{said_so}hint: {hint}\n"


def test_a_user_whom_the_daemon_does_not_answer_is_told_who_may_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.sock"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        code, _, said = run(capsys, "reload", "--socket", str(path))
        thread.join()
    assert code == 1
    hint = "run this as root or the daemon's user; it answers nobody else"
    assert said == f"error: {path}: omnipilotd hung up without an answer\nhint: {hint}\n"


def test_beside_a_broken_configuration_the_socket_can_still_be_named(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    path = daemon.folder / "omnipilot.yaml"
    path.write_text("schema: 1\npolicy: {mode: on}\n")
    code, _, said = run(capsys, "status", "--config", str(daemon.folder))
    assert code == 1
    fault = "must be one of observe, advise, enforce, was 'on'"
    assert said.startswith(f"error: {path}:2:16: policy.mode: {fault}")
    hint = "omnipilotd runs on with what it had; --socket PATH asks it all the same"
    assert said.endswith(f"hint: {hint}\n")
    assert run(capsys, "status", "--socket", str(daemon.socket))[0] == 0
