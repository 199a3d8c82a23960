"""systemd hears of each phase, and its absence disturbs nobody."""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.daemon.notify import Notifier

if TYPE_CHECKING:
    from pathlib import Path


def heard(systemd: socket.socket) -> str:
    return systemd.recv(4096).decode()


@pytest.mark.parametrize("kind", ["a path", "an abstract name"])
def test_each_phase_is_told(kind: str, tmp_path: Path) -> None:
    name = f"@omnipilot-test-{os.getpid()}" if kind == "an abstract name" else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready("answering; two\nlines")
        assert heard(systemd) == "READY=1\nSTATUS=answering; two"
        notifier.status("generation 2")
        assert heard(systemd) == "STATUS=generation 2"
        notifier.reloading()
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", heard(systemd))
        notifier.alive()
        assert heard(systemd) == "WATCHDOG=1"
        notifier.stopping()
        assert heard(systemd) == "STOPPING=1"


def test_without_systemd_nothing_is_sent(tmp_path: Path) -> None:
    Notifier({}).ready("x")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody-there")}).ready("x")


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        pytest.param({}, None, id="not watched"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, 30.0, id="watched"),
        pytest.param(
            {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0, id="by pid"
        ),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None, id="another pid"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="no number"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="zero"),
    ],
)
def test_the_watchdog_is_read(environment: dict[str, str], watchdog_s: float | None) -> None:
    assert Notifier(environment).watchdog_s == watchdog_s
