"""A real omnipilotd starts, reloads, stops, dies and comes back without harm."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from daemon_process import PATIENCE_S, DaemonProcess, read_all, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PING = b'{"v":1,"op":"ping"}\n'
PONG = b'{"v":1,"ok":true}\n'


class Call(threading.Thread):
    """A decide call made beside the test."""

    def __init__(self, daemon: DaemonProcess, script: str) -> None:
        super().__init__()
        self.daemon_process = daemon
        self.script = script
        self.answer: dict[str, Any] | None = None
        self.start()
        wait_until(lambda: daemon.n_decided() > 0, "a call in flight")

    def run(self) -> None:
        self.answer = self.daemon_process.decide(self.script)


def exit_text(daemon: DaemonProcess) -> tuple[int, str]:
    return daemon.process.wait(PATIENCE_S), daemon.log_text()


def test_the_socket_is_closed_to_others_from_the_start(daemon: DaemonProcess) -> None:
    status = daemon.socket.stat()
    assert status.st_mode & 0o777 == 0o660
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert daemon.store.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket to any group")
def test_the_sockets_group_is_the_one_set(stopped: DaemonProcess) -> None:
    stopped.settings["group"] = "daemon"
    stopped.start()
    assert stopped.socket.group() == "daemon"
    assert stopped.socket.stat().st_mode & 0o777 == 0o660


def test_a_group_that_does_not_exist_is_refused(stopped: DaemonProcess) -> None:
    stopped.settings["group"] = "no-such-group"
    stopped.spawn(command=main_command(stopped))
    assert exit_text(stopped) == (
        1,
        (
            "omnipilotd: socket group 'no-such-group': there is no such group\n"
            "  create it or set daemon.group\n"
        ),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_the_call_in_flight_and_removes_the_socket(
    number: int, daemon: DaemonProcess
) -> None:
    call = Call(daemon, "sleep 0.5\nadvise done")
    late = daemon.connect()
    late.sendall(PING)
    daemon.send(number)
    call.join(PATIENCE_S)
    assert read_all(late) == PONG
    late.close()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert call.answer["verdict"] == "advise"
    assert not daemon.socket.exists()
    assert "stopped uptime_s=" in daemon.log_text()
    assert "Traceback" not in daemon.log_text()


def test_a_stop_does_not_wait_for_ever(stopped: DaemonProcess) -> None:
    stopped.settings["stop_timeout_s"] = 0.2
    stopped.start()
    began = time.monotonic()
    with stopped.connect() as connection:
        connection.sendall(b'{"v":1,"op":"decide","script":"sleep 60"}\n')
        wait_until(lambda: stopped.n_decided() == 1, "a call in flight")
        assert stopped.stop() == 0
    assert time.monotonic() - began < 30
    assert "calls in flight given up after_s=0.200" in stopped.log_text()


def test_a_killed_daemons_socket_is_replaced(daemon: DaemonProcess) -> None:
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.socket.exists()
    daemon.start()
    assert daemon.ask_raw(PING) == PONG


def test_a_second_daemon_is_refused_and_the_first_answers_on(daemon: DaemonProcess) -> None:
    second = subprocess.run(
        main_command(daemon), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == (
        f"omnipilotd: socket '{daemon.socket}': another daemon listens there\n"
        "  stop it first, or give this one another daemon.socket\n"
    )
    assert daemon.ask_raw(PING) == PONG


def test_another_programs_live_socket_is_refused_and_left_alone(stopped: DaemonProcess) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(stopped.socket))
        other.listen(1)
        stopped.spawn(command=main_command(stopped))
        assert exit_text(stopped) == (
            1,
            (
                f"omnipilotd: socket '{stopped.socket}': another daemon listens there\n"
                "  stop it first, or give this one another daemon.socket\n"
            ),
        )
        assert stopped.socket.is_socket()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda path: path.write_text("precious"),
            "omnipilotd: socket '{}': must be a socket or absent, was another kind of file\n"
            "  remove it or choose another daemon.socket\n",
            id="a file in its place",
        ),
        pytest.param(
            lambda path: path.parent.rmdir(),
            "omnipilotd: socket '{}': cannot be created: No such file or directory\n"
            "  create '{parent}', writable for the daemon's user\n",
            id="no folder for it",
        ),
    ],
)
def test_a_socket_cannot_be_made_of(make: Any, text: str, stopped: DaemonProcess) -> None:
    path = stopped.folder / "run" / "d.sock"
    path.parent.mkdir()
    make(path)
    stopped.settings["socket"] = str(path)
    stopped.spawn(command=main_command(stopped))
    assert exit_text(stopped) == (1, text.format(path, parent=path.parent))
    assert not path.is_socket()


def test_a_socket_path_that_is_too_long_is_refused(stopped: DaemonProcess) -> None:
    path = "/tmp/" + "x" * 103
    stopped.settings["socket"] = path
    stopped.spawn(command=main_command(stopped))
    assert exit_text(stopped) == (
        1,
        (
            f"omnipilotd: socket '{path}': must be at most 107 bytes\n"
            "  choose a shorter daemon.socket\n"
        ),
    )


def test_a_socket_that_somebody_replaced_is_not_removed_at_the_end(daemon: DaemonProcess) -> None:
    daemon.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(daemon.socket))
        assert daemon.stop() == 0
        assert daemon.socket.exists()


def test_every_job_passes_until_the_first_state_is_loaded(stopped: DaemonProcess) -> None:
    stopped.state("slow 2")
    stopped.spawn()
    wait_until(stopped.socket.exists, "the socket")
    wait_until(lambda: can_connect(stopped), "a connection")
    answer = stopped.decide("advise x")
    assert (answer["verdict"], answer["code"], answer["messages"]) == ("pass", "not_ready", [])
    assert "tag" not in answer
    wait_until(lambda: stopped.status()["state"]["ready"], "a loaded state")
    assert stopped.decide("advise x")["verdict"] == "advise"


def test_a_first_state_that_cannot_be_loaded_is_said_and_can_be_put_right(
    stopped: DaemonProcess,
) -> None:
    stopped.state("broken")
    stopped.spawn()
    wait_until(lambda: can_connect(stopped), "a connection")
    wait_until(lambda: stopped.status()["state"]["fault"], "a fault")
    assert stopped.status()["state"]["fault"] == "state:1:1: is broken"
    assert stopped.decide("advise x")["code"] == "not_ready"
    stopped.state("mended")
    stopped.send(signal.SIGHUP)
    wait_until(lambda: stopped.decide("advise x")["code"] == "mended", "the new state")


def test_a_bad_reload_keeps_the_state_and_says_so(daemon: DaemonProcess) -> None:
    daemon.state("broken")
    daemon.send(signal.SIGHUP)
    wait_until(lambda: daemon.status()["state"]["fault"], "a fault")
    assert daemon.decide("advise x")["code"] == "one"
    state = daemon.status()["state"]
    assert (state["generation"], state["fault"]) == (1, "state:1:1: is broken")
    assert 'state kept by=reload generation=1 fault="state:1:1: is broken"' in daemon.log_text()
    assert daemon.ask(op="reload") == {
        "v": 1,
        "error": {"code": "reload", "text": "state:1:1: is broken"},
    }
    daemon.state("two")
    daemon.send(signal.SIGHUP)
    wait_until(lambda: daemon.decide("advise x")["code"] == "two", "the new state")
    wait_until(lambda: daemon.status()["state"]["fault"] is None, "the fault's end")


def test_calls_are_answered_on_the_old_state_while_a_new_one_loads(daemon: DaemonProcess) -> None:
    daemon.state("slow 3")
    with daemon.connect() as connection:
        connection.sendall(b'{"v":1,"op":"reload"}\n')
        wait_until(lambda: daemon.ask(op="reload").get("error"), "a load under way")
        assert daemon.ask(op="reload")["error"] == {
            "code": "busy",
            "text": "another reload is under way; ask again when it has ended",
        }
        assert daemon.decide("advise x")["code"] == "one"
        assert read_all(connection) == PONG
    assert daemon.decide("advise x")["code"] == "slow 3"


def test_each_state_is_published_for_everybody(daemon: DaemonProcess) -> None:
    path = daemon.public / "snapshot.json"
    wait_until(path.exists, "the first publication")
    assert path.stat().st_mode & 0o777 == 0o644
    assert daemon.public.stat().st_mode & 0o777 == 0o755
    daemon.state("two")
    daemon.ask(op="reload")
    assert path.read_text() == "two"


def test_a_folder_that_cannot_be_published_to_is_said(stopped: DaemonProcess) -> None:
    stopped.settings["publish"] = "/proc/omnipilot"
    stopped.start()
    wait_until(lambda: stopped.status()["published"]["fault"], "a fault")
    assert stopped.status()["published"]["fault"] == ("/proc/omnipilot: No such file or directory")
    assert stopped.decide("advise x")["code"] == "one"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def ask_as(uid: int, path: Path) -> subprocess.CompletedProcess[str]:
    """Ping as another user who is in the socket's group, so that only SO_PEERCRED is in the way."""
    # the interpreter may lie below root's home, so that another user could not start it
    code = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({path.stat().st_gid}); os.setuid({uid})\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])\n"
        f"s.sendall({PING!r}); print(s.recv(100))\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd="/",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_peer_who_is_not_allowed_is_disconnected_without_an_answer(open_folder: Path) -> None:
    daemon = DaemonProcess(open_folder)
    daemon.start()
    try:
        for _ in range(2):
            refused = ask_as(65534, daemon.socket)
            assert (refused.stdout, refused.returncode != 0) in {("b''\n", False), ("", True)}
        assert daemon.ask_raw(PING) == PONG
        assert daemon.status()["counts"]["refused_peers"] == 2
        assert daemon.log_text().count("peer refused, said once for each uid uid=65534") == 1
    finally:
        daemon.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_peer_who_is_allowed_is_answered(open_folder: Path) -> None:
    daemon = DaemonProcess(open_folder)
    daemon.settings["allowed_users"] = ["nobody"]
    daemon.start()
    try:
        assert ask_as(65534, daemon.socket).stdout == f"{PONG!r}\n"
    finally:
        daemon.stop()


def test_an_allowed_user_that_does_not_exist_is_said_and_no_more(stopped: DaemonProcess) -> None:
    stopped.settings["allowed_users"] = ["no-such-user"]
    stopped.start()
    assert "allowed user unknown user=no-such-user" in stopped.log_text()
    assert stopped.ask_raw(PING) == PONG


def test_systemd_hears_of_each_phase(stopped: DaemonProcess) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(stopped.folder / "notify"))
        systemd.settimeout(PATIENCE_S)
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(stopped.folder / "notify"),
            "WATCHDOG_USEC": "300000",
        }
        stopped.start(env=environment)
        heard = Heard(systemd)
        heard.until("READY=1\nSTATUS=answering; the first state is being loaded")
        heard.until("STATUS=answering; generation 1")
        heard.until("WATCHDOG=1")
        heard.until("WATCHDOG=1")
        stopped.state("broken")
        stopped.send(signal.SIGHUP)
        heard.until("RELOADING=1\n")
        heard.until("READY=1\nSTATUS=answering with generation 1; not loaded: state:1:1: is broken")
        stopped.send(signal.SIGTERM)
        heard.until("STOPPING=1")
        assert stopped.process.wait(PATIENCE_S) == 0


class Heard:
    """What was sent to systemd, read in order."""

    def __init__(self, systemd: socket.socket) -> None:
        self._systemd = systemd

    def until(self, beginning: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._systemd.recv(4096).decode().startswith(beginning):
            assert time.monotonic() < deadline, f"{beginning!r} was not heard"


def can_connect(daemon: DaemonProcess) -> bool:
    try:
        return daemon.ask_raw(PING) == PONG
    except OSError:
        return False


def main_command(daemon: DaemonProcess) -> list[str]:
    """omnipilotd itself, as installed, on the daemon's folder."""
    return [sys.executable, "-m", "omnipilot_slurm.daemon.main", "--config", str(daemon.folder)]
