"""The workers know when none of them is left to answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.daemon.metrics import Metrics
from omnipilot_slurm.daemon.server import Server
from omnipilot_slurm.daemon.service import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 10.0


class Blocking:
    """A service that answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.n_calls = 0

    def answer(self, _line: bytes) -> Reply:
        self.n_calls += 1
        self.may_answer.wait(PATIENCE_S)
        return Reply(b"done\n")

    def settle(self, reply: Reply, elapsed_ms: float | None) -> None:
        pass


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(8)
        yield listening


def test_a_server_is_stuck_when_every_worker_is_in_a_call_that_does_not_end(
    listening: socket.socket,
) -> None:
    service = Blocking()
    server = Server(
        listening,
        service,  # type: ignore[arg-type]  # only its two methods are called
        Metrics(),
        n_workers=2,
        timeout_s=PATIENCE_S,
        allowed_uids=frozenset({os.geteuid()}),
    )
    server.start()
    clients = []
    for n_busy in (1, 2):
        assert not server.stuck(0.0)
        client = socket.socket(socket.AF_UNIX)
        client.connect(listening.getsockname())
        client.sendall(b"x\n")
        clients.append(client)
        deadline = time.monotonic() + PATIENCE_S
        while service.n_calls < n_busy and time.monotonic() < deadline:
            time.sleep(0.005)
    assert server.stuck(0.0)
    assert not server.stuck(PATIENCE_S)
    service.may_answer.set()
    assert [client.recv(10) for client in clients] == [b"done\n"] * 2
    for client in clients:
        client.close()
    assert server.stop(PATIENCE_S)
    assert server.stuck(PATIENCE_S)
