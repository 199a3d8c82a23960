"""A daemon for each test, in a folder of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose sockets' paths are short enough."""
    assert len(os.fsencode(tmp_path)) < 90
    return tmp_path


@pytest.fixture
def stopped(folder: Path) -> Iterator[DaemonProcess]:
    """A daemon that has not been started."""
    daemon = DaemonProcess(folder)
    yield daemon
    if daemon.process is not None and daemon.process.poll() is None:
        daemon.process.kill()
        daemon.process.wait()


@pytest.fixture
def daemon(stopped: DaemonProcess) -> DaemonProcess:
    """A daemon that answers."""
    stopped.start()
    return stopped
