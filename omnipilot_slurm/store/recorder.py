"""Writing decisions beside the calls: a bounded queue and the one thread that empties it.

In: decisions that were answered. Out: rows in the database, twice a second, in commits of at most
a hundred rows; a daemon that is killed loses what came since. A disk that is full, a database that
is locked or a folder that cannot be written costs rows once too many wait, and is said in `status`
and in the log; it never costs a call.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.log import line
from omnipilot_slurm.store import choices, decisions, jobs, outcomes, site_tables
from omnipilot_slurm.store.database import open_for_writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnipilot_slurm.store.decisions import Decided

_log = logging.getLogger(__name__)
#: rows that may wait for a disk that refuses them; one takes some tens of KiB
WAITING_ROWS = 2000
BATCH_ROWS = 100
FLUSH_S = 0.5
RETRY_S = 5.0
PRUNE_EVERY_S = 3600.0
#: so that neither a lock lasts long nor a clock that is wrong for a moment empties the table
PRUNE_ROWS = 5000
_DAY_S = 86_400.0


class Recorder:
    """Keeps decisions at `path`; `clock` gives Unix time in s for the retention."""

    keeps = True

    def __init__(
        self, path: Path, *, retention_days: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._retention_s = retention_days * _DAY_S
        self._clock = clock
        self._waiting: deque[Decided] = deque()
        self._batch: list[Decided] = []
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._fault: str | None = None
        self._written = 0
        self._dropped = 0
        self._prune_at = self._retry_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def put(self, decided: Decided) -> None:
        """Hand a decision over; one more than may wait is counted and dropped."""
        if len(self._waiting) >= WAITING_ROWS:
            self._drop(1)
            return
        self._waiting.append(decided)
        # waking the thread for each row would slow down the next call
        if len(self._waiting) % BATCH_ROWS == 0:
            self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Write what waits, unless the database refuses, and end."""
        self._ending.set()
        self._wake.set()
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread that writes is running."""
        return self._thread.is_alive()

    def status(self) -> dict[str, object]:
        """Return what `status` shows of the store."""
        return {
            "path": str(self._path),
            "written": self._written,
            "dropped": self._dropped,
            "waiting": len(self._waiting) + len(self._batch),
            "fault": self._fault,
        }

    def _work(self) -> None:
        # a store that cannot be written is said at the start, not with the first decision
        self._write()
        while not self._ending.is_set():
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            if time.monotonic() >= self._retry_at:
                self._flush()
        self._flush()
        lost = len(self._batch) + len(self._waiting)
        if lost:
            self._drop(lost)
        self._disconnect()

    def _flush(self) -> None:
        """Write all that waits, and delete what is too old when it is time for that."""
        while self._batch or self._waiting or time.monotonic() >= self._prune_at:
            while self._waiting and len(self._batch) < BATCH_ROWS:
                self._batch.append(self._waiting.popleft())
            if not self._write():
                return

    def _write(self) -> bool:
        """Commit the batch and empty it; False when the database refused."""
        try:
            if self._connection is None:
                self._connection = open_for_writing(self._path)
            if self._batch:
                self._written += decisions.insert(
                    self._connection, [decisions.row_of(each) for each in self._batch]
                )
                self._batch.clear()
            self._prune(self._connection)
        except (sqlite3.Error, StoreError, OSError) as error:
            self._disconnect()
            self._retry_at = time.monotonic() + RETRY_S
            self._failed(str(error))
            return False
        if self._fault is not None:
            _log.info(line("store written again", path=self._path, dropped=self._dropped))
        self._fault = None
        return True

    def _prune(self, connection: sqlite3.Connection) -> None:
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_EVERY_S
        oldest = self._clock() - self._retention_s
        gone = sum(
            table.delete_before(connection, oldest, limit=PRUNE_ROWS)
            for table in (decisions, site_tables, jobs, outcomes, choices)
        )
        if gone:
            _log.info(line("old rows deleted", n=gone, path=self._path))

    def _failed(self, fault: str) -> None:
        if fault != self._fault:
            _log.error(line("store not written", path=self._path, fault=fault))
        self._fault = fault

    def _drop(self, n: int) -> None:
        with self._lock:
            is_first = self._dropped == 0
            self._dropped += n
        if is_first or self._ending.is_set():
            _log.error(line("decisions dropped", n=self._dropped, fault=self._fault))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class NoRecorder:
    """Keeps nothing, where the site set no daemon.store."""

    alive = True
    keeps = False

    def put(self, decided: Decided) -> None:
        """Forget a decision."""

    def close(self, timeout_s: float) -> None:
        """End at once."""

    def status(self) -> dict[str, object]:
        """Return what `status` shows of the store."""
        return {"path": None}
