"""The workers: each accepts a connection, reads one line, sends one line, closes.

In: a listening socket and the service that answers lines. Out: answers on the wire. A worker
serves one connection at a time, within a deadline, and outlives whatever the line makes happen.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from omnipilot_slurm.daemon import protocol
from omnipilot_slurm.errors import ProtocolError
from omnipilot_slurm.log import line as log_line

if TYPE_CHECKING:
    from omnipilot_slurm.daemon.metrics import Metrics
    from omnipilot_slurm.daemon.service import Service

_log = logging.getLogger(__name__)
_PEER = struct.Struct("iii")
_TIMEVAL = struct.Struct("ll")
_CHUNK = 65536
#: how much of a line that is too long is read to the end, so that its sender sees the refusal
_DRAINED_BYTES = 4 * 1024 * 1024
#: pause after accept failed for want of descriptors or memory
_ACCEPT_PAUSE_S = 0.1


class Server:
    """`n_workers` threads that share one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        service: Service,
        metrics: Metrics,
        *,
        n_workers: int,
        timeout_s: float,
        allowed_uids: frozenset[int],
    ) -> None:
        self._listening = listening
        self._service = service
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._allowed_uids = allowed_uids
        self._refused_uids: set[int] = set()
        self._stopping = threading.Event()
        self._busy_since: list[float | None] = [None] * n_workers
        self._workers = [
            threading.Thread(target=self._work, args=(number,), name=f"worker-{number}")
            for number in range(n_workers)
        ]

    def start(self) -> None:
        """Begin to accept."""
        for worker in self._workers:
            worker.daemon = True
            worker.start()

    def stop(self, timeout_s: float) -> bool:
        """Accept no more, finish the calls in flight; False when some did not end in time."""
        self._stopping.set()
        # wakes every accept; connections already waiting are still served
        self._listening.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + timeout_s
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def stuck(self, longer_than_s: float) -> bool:
        """Whether no worker is left to answer: each has ended, or is in one call for so long."""
        now = time.monotonic()
        return all(
            not worker.is_alive() or (since is not None and now - since > longer_than_s)
            for worker, since in zip(self._workers, self._busy_since, strict=True)
        )

    def handle(self, connection: socket.socket, line: bytes, began: float) -> None:
        """Answer a line, whatever it is and whatever happens, and then note what was decided."""
        try:
            reply = self._service.answer(line)
            sent = self._send(connection, reply.line)
            connection.close()
            elapsed_ms = (time.monotonic() - began) * 1000.0 if sent else None
            self._service.settle(reply, elapsed_ms)
        except ProtocolError as error:
            self._metrics.count(f"refused_{error.code}")
            self._send(connection, protocol.encode_error(error.code, str(error)))
        except Exception:  # noqa: BLE001 (the daemon's one catch-all: slurmctld gets an answer)
            self._metrics.count("internal_errors")
            _log.exception(log_line("call failed"))
            text = "the daemon's log says what happened"
            self._send(connection, protocol.encode_error("internal", text))

    def _send(self, connection: socket.socket, line: bytes) -> bool:
        """Send a line; False when the client is gone, or the connection was closed before."""
        try:
            connection.sendall(line)
        except OSError:
            self._metrics.count("lost_clients")
            return False
        return True

    def _work(self, number: int) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                self._metrics.count("accept_errors")
                _log.error(log_line("accept failed", error=error))
                self._stopping.wait(_ACCEPT_PAUSE_S)
                continue
            self._busy_since[number] = time.monotonic()
            with connection:
                self._serve(connection)
            self._busy_since[number] = None

    def _serve(self, connection: socket.socket) -> None:
        began = time.monotonic()
        try:
            if not self._may_ask(connection):
                return
            _set_timeout(connection, socket.SO_RCVTIMEO, self._timeout_s)
            _set_timeout(connection, socket.SO_SNDTIMEO, self._timeout_s)
            line = _read_line(connection, began + self._timeout_s)
        except (BlockingIOError, TimeoutError):
            self._metrics.count("slow_clients")
        except OSError:
            self._metrics.count("lost_clients")
        else:
            if line:
                self.handle(connection, line, began)

    def _may_ask(self, connection: socket.socket) -> bool:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, uid, _ = _PEER.unpack(peer)
        if uid in self._allowed_uids:
            return True
        self._metrics.count("refused_peers")
        if uid not in self._refused_uids:
            self._refused_uids.add(uid)
            _log.warning(log_line("peer refused, said once for each uid", uid=uid, pid=pid))
        return False


def _set_timeout(connection: socket.socket, option: int, timeout_s: float) -> None:
    """Let the kernel keep the time: Python's own timeouts poll before each read and write."""
    whole_s = int(timeout_s)
    timeval = _TIMEVAL.pack(whole_s, max(1, int((timeout_s - whole_s) * 1e6)))
    connection.setsockopt(socket.SOL_SOCKET, option, timeval)


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Return the first line, newline included, or what came before the client stopped sending.

    Of a line that is too long, the first bytes that make it so. Raises: TimeoutError, OSError.
    """
    line = bytearray()
    n_read = 0
    while n_read < _DRAINED_BYTES:
        chunk = connection.recv(_CHUNK)
        n_read += len(chunk)
        end = chunk.find(b"\n") + 1
        if len(line) <= protocol.MAX_REQUEST_BYTES:
            line += chunk[:end] if end else chunk
        if end or not chunk:
            break
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        _set_timeout(connection, socket.SO_RCVTIMEO, left_s)
    return bytes(line)
