"""omnipilotd as a process of its own, and the client that tests talk to it with."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
PATIENCE_S = 20.0


def wait_until(holds: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to hold"
        time.sleep(0.01)


class DaemonProcess:
    """omnipilotd in a folder: its configuration, store and log are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "d.sock"
        self.store = folder / "store" / "o.db"
        self.public = folder / "public"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, Any] = {
            "socket": str(self.socket),
            "store": str(self.store),
            "publish": str(self.public),
            "log_level": "debug",
        }
        self.state("one")

    def state(self, text: str) -> None:
        (self.folder / "state").write_text(text)

    def start(self, *, command: list[str] | None = None, **options: Any) -> None:
        """Start it and wait until it has loaded a state."""
        self.spawn(command=command, **options)
        wait_until(self._has_loaded, "a loaded state")

    def spawn(self, *, command: list[str] | None = None, **options: Any) -> None:
        """Start it and do not wait."""
        text = json.dumps({"schema": 1, "daemon": self.settings})
        (self.folder / "omnipilot.yaml").write_text(text)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command or [sys.executable, str(HERE / "run_daemon.py"), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **options,
            )

    def _has_loaded(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_text()
        try:
            return self.status()["state"]["ready"]
        except OSError:
            return False

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(self.socket))
        except BaseException:
            connection.close()
            raise
        return connection

    def ask_raw(self, *parts: bytes) -> bytes:
        """Send bytes, say that there are no more, and return all that comes back."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def ask(self, **message: Any) -> dict[str, Any]:
        return json.loads(self.ask_raw(json.dumps({"v": 1, **message}).encode() + b"\n"))

    def decide(self, script: str, **job: Any) -> dict[str, Any]:
        return self.ask(op="decide", script=f"#!/bin/bash\n{script}\n", job=job)

    def status(self) -> dict[str, Any]:
        return self.ask(op="status")["status"]

    def n_decided(self) -> int:
        path = self.folder / "decided"
        return path.stat().st_size if path.exists() else 0

    def log_text(self) -> str:
        return self.log.read_text()

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    return answer
