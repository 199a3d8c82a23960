"""Models in folders, looked up beside the call: an answer at once, facts when they are there.

In: the path of a folder. Out: its ModelFacts, Pending while the worker reads it, or Failure with
the reason. Called by the daemon's decide call, which never waits, and by advise and fit, which
may. The worker is a process of its own with a deadline: a mount that hangs costs one killed
process, not the daemon.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.catalog.folder_process import WORKER, Failure, FolderProcess
from omnipilot_slurm.catalog.lookup import Match
from omnipilot_slurm.catalog.names import parse_name
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import ModelFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from omnipilot_slurm.catalog.lookup import Catalog

_MAX_WAITING = 64


@dataclass(frozen=True, slots=True)
class Pending:
    """A folder that is being looked up; ask again."""

    path: str


Answer = ModelFacts | Pending | Failure


class FolderLookup:
    """Facts of model folders, read by a worker process and kept for a while.

    `roots` are the only folders below which anything is read; empty: nothing is. With
    `public_only`, what not everybody may read counts as unreadable (the daemon may see more than
    the user who asks).
    """

    def __init__(
        self,
        *,
        roots: Sequence[Path],
        public_only: bool = True,
        deadline_s: float = 2.0,
        ttl_s: float = 3600.0,
        failure_ttl_s: float = 60.0,
        max_entries: int = 512,
        clock: Callable[[], float] = time.monotonic,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._request = {"roots": [str(root) for root in roots], "public_only": public_only}
        self._worker = FolderProcess(command, deadline_s)
        self._ttl_s, self._failure_ttl_s, self._clock = ttl_s, failure_ttl_s, clock
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._closing = False

    def lookup(self, path: str) -> Answer:
        """Return what is known of a folder now, and have it read where that is nothing."""
        if not self._request["roots"]:
            return Failure(f"{path} is not read: no folder is allowed (catalog.model_roots)")
        with self._lock:
            expires, answer = self._known.get(path, (0.0, None))
            if answer is not None and (isinstance(answer, Pending) or self._clock() < expires):
                self._known.move_to_end(path)
                return answer
            try:
                self._waiting.put_nowait(path)
            except queue.Full:
                return Failure(f"{path} is not read: too many folders are being looked up")
            self._keep(path, Pending(path))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="folders", daemon=True)
                self._thread.start()
        return Pending(path)

    def wait(self, path: str, timeout_s: float) -> Answer:
        """Return what a folder says, waiting for it up to a timeout; for commands only."""
        end = time.monotonic() + timeout_s
        while True:
            answer = self.lookup(path)
            if not isinstance(answer, Pending) or time.monotonic() >= end:
                return answer
            time.sleep(0.01)

    def close(self) -> None:
        """Stop the thread, at the latest when the deadline of its folder passes, and the worker."""
        self._closing = True
        if self._thread is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join()
        self._worker.stop()

    def _run(self) -> None:
        while (path := self._waiting.get()) is not None and not self._closing:
            answer = self._worker.ask(self._request | {"path": path})
            with self._lock:
                self._keep(path, answer)

    def _keep(self, path: str, answer: Answer) -> None:
        """Remember an answer; the one not asked for longest makes room (the lock is held)."""
        ttl_s = self._ttl_s if isinstance(answer, ModelFacts) else self._failure_ttl_s
        self._known[path] = (self._clock() + ttl_s, answer)
        self._known.move_to_end(path)
        while len(self._known) > self._max_entries:
            self._known.popitem(last=False)


class Folders(Protocol):
    """Whoever knows what a folder says."""

    def lookup(self, path: str) -> Answer:
        """Return what is known of a folder."""


class PatientFolders:
    """Waits for each folder up to `timeout_s`; for commands, that ask once and end."""

    def __init__(self, folders: FolderLookup, timeout_s: float) -> None:
        self._folders = folders
        self._timeout_s = timeout_s

    def lookup(self, path: str) -> Answer:
        """Return what a folder says."""
        return self._folders.wait(path, self._timeout_s)


def find_model(catalog: Catalog, folders: Folders, name: str) -> Match | Pending:
    """Return the model that a name or a folder means; a folder's own config.json comes first.

    Raises: CatalogError, with what the folder said beside what its name said.
    """
    answer = folders.lookup(name) if parse_name(name).folder else None
    if isinstance(answer, ModelFacts):
        return Match(facts=answer, how="folder", said=f"{name} is read from its config.json")
    try:
        return catalog.model(name)
    except CatalogError as error:
        if isinstance(answer, Pending):
            return answer
        if isinstance(answer, Failure):
            raise CatalogError(
                f"{error}; {answer.reason}", near=error.near, hint=error.hint
            ) from error
        raise
