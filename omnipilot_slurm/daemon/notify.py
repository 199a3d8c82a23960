"""What systemd is told about this daemon: sd_notify(3) without its library.

In: the environment that systemd sets. Out: datagrams to its socket; nothing without one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Tells systemd of this daemon's phases; silent where no NOTIFY_SOCKET is set."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environment)

    def ready(self, status: str) -> None:
        """Say that calls are answered from now on, also after a reload."""
        self._send(f"READY=1\nSTATUS={_first_line(status)}")

    def status(self, status: str) -> None:
        """Say in one line what `systemctl status` shows."""
        self._send(f"STATUS={_first_line(status)}")

    def reloading(self) -> None:
        """Say that configuration is being read again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that no more calls are accepted."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            # systemd being away must not stop a daemon that works
            with contextlib.suppress(OSError):
                channel.sendto(text.encode(), self._address)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return the longest silence that systemd allows, in s; None when it does not watch us."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    usec = environment.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isdigit() and int(usec) > 0 else None
