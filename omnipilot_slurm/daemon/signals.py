"""Signals as something to wait for, so that no code runs in the middle of other code.

In: signal numbers. Out: those that came. Called by the main thread only.
"""

from __future__ import annotations

import select
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


class Signals:
    """Collects signals from its creation on; children of this process get the default ones."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def wait(self, timeout_s: float) -> set[int]:
        """Return the numbers that came, none when the time is over."""
        readable, _, _ = select.select([self._woken], [], [], timeout_s)
        return set(self._woken.recv(64)) if readable else set()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number went to the socket already."""
