"""A daemon that tests play: it speaks docs/protocol.md and answers what a test tells it to."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PONG = b'{"v":1,"ok":true}\n'
PASS = {"v": 1, "id": "k3f9", "verdict": "pass", "messages": []}


class ScriptedDaemon:
    """One listening socket; `behave` gets each connection and its request.

    `behave` is an answer, the bytes of one, or a function that handles the connection itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behave: object = PASS
        self.requests: list[dict] = []
        self._is_over = threading.Event()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._is_over.clear()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._loop, args=(self._listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is None:
            return
        self._is_over.set()
        with socket.socket(socket.AF_UNIX) as last, suppress(OSError):
            last.connect(str(self.path))
        self._thread.join()
        self._listener.close()
        self.path.unlink()
        self._thread = None

    @property
    def asked(self) -> list[dict]:
        return [request for request in self.requests if request["op"] == "decide"]

    def _loop(self, listener: socket.socket) -> None:
        while True:
            conn, _ = listener.accept()
            with conn, suppress(OSError):
                if self._is_over.is_set():
                    return
                self._serve(conn)

    def _serve(self, conn: socket.socket) -> None:
        if self.behave is hang_up:
            return
        line = read_line(conn)
        request = json.loads(line.decode("utf-8", "surrogateescape"))
        self.requests.append(request)
        if callable(self.behave):
            self.behave(conn, request)
        elif request["op"] == "ping":
            conn.sendall(PONG)
        elif isinstance(self.behave, bytes):
            conn.sendall(self.behave)
        else:
            conn.sendall(json.dumps(self.behave).encode() + b"\n")


def read_line(conn: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = conn.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


def hang(conn: socket.socket, request: dict) -> None:
    """Answer nothing, pings neither, until the other side gives up."""
    conn.recv(1)


def hang_up(conn: socket.socket, request: dict) -> None:
    """Close at once, before anything was read."""


def answer_late(pause_s: float, answer: bytes) -> Callable[[socket.socket, dict], None]:
    """Answer only pings in time."""

    def behave(conn: socket.socket, request: dict) -> None:
        if request["op"] == "ping":
            conn.sendall(PONG)
            return
        threading.Event().wait(pause_s)
        conn.sendall(answer)

    return behave
