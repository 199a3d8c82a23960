"""What decisions rest on, loaded beside the calls and swapped by one reference.

In: a Source that reads configuration, catalogs, the cluster and the cost model. Out: the State in
force. One thread loads; a load that fails leaves the state as it is and says so. Called by main
(signals, polls) and by the service (every call reads `current` once).
"""

from __future__ import annotations

import gc
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.daemon.memory import give_back
from omnipilot_slurm.errors import OmnipilotError
from omnipilot_slurm.log import line
from omnipilot_slurm.records import Outcome, Submission, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)


class Decider(Protocol):
    """Turns a submission into what is done with it; pure, called by several threads at once."""

    def __call__(self, submission: Submission, /) -> Outcome:
        """Return the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a source has read: the decider bound to it, and what is shown of it.

    `summary` goes into `status`, each of `documents` is published under its file name, and
    `poll_s` is how long the cluster's part of it is good for.
    """

    decide: Decider
    summary: Mapping[str, object] = field(default_factory=dict)
    documents: Mapping[str, str | None] = field(default_factory=dict)
    poll_s: float = 60.0


class Source(Protocol):
    """Reads the world for the loading thread, which expects OmnipilotError and OSError of it."""

    def load(self) -> Loaded:
        """Read everything anew."""

    def refresh(self, loaded: Loaded, /) -> Loaded:
        """Read the cluster anew, keep the rest; returns `loaded` itself when nothing changed."""

    def close(self) -> None:
        """Let go of processes and threads that what was loaded makes use of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One consistent set; `generation` rises with each new decider, 0 is before the first load."""

    generation: int
    loaded: Loaded
    at: float


def not_ready(_submission: Submission) -> Outcome:
    """Let a job pass that came before the first state was loaded."""
    return Outcome(verdict=Verdict.PASS, code="not_ready", record={"reason": {"code": "not_ready"}})


class States:
    """The state in force and the one thread that may replace it."""

    def __init__(self, source: Source, *, swapped: Callable[[State], None]) -> None:
        self._source = source
        self._swapped = swapped
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._pending: Future[str | None] | None = None
        self._fault: str | None = None
        self.current = State(generation=0, loaded=Loaded(decide=not_ready), at=time.time())

    @property
    def ready(self) -> bool:
        """Whether a first state has been loaded."""
        return self.current.generation > 0

    @property
    def busy(self) -> bool:
        """Whether a load is under way or waiting."""
        return self._pending is not None and not self._pending.done()

    def reload(self) -> Future[str | None]:
        """Read everything anew, beside the calls; ends in the fault's text, None if all is well."""
        return self._submit("reload", self._load)

    def refresh(self) -> Future[str | None]:
        """Read the cluster anew, beside the calls; everything where nothing was loaded yet."""
        if not self.ready:
            return self.reload()
        return self._submit("refresh", lambda: self._source.refresh(self.current.loaded))

    def status(self) -> dict[str, object]:
        """Return what `status` shows of the state, the last fault included."""
        return {
            "ready": self.ready,
            "generation": self.current.generation,
            "loaded_at": round(self.current.at, 3),
            "fault": self._fault,
            **self.current.loaded.summary,
        }

    def close(self) -> None:
        """Load nothing more."""
        self._loader.shutdown(wait=False, cancel_futures=True)
        self._source.close()

    def _submit(self, what: str, read: Callable[[], Loaded]) -> Future[str | None]:
        ended: Future[str | None] = Future()
        self._pending = ended
        job = self._loader.submit(self._swap, read)
        job.add_done_callback(lambda done: ended.set_result(self._note(what, done)))
        return ended

    def _load(self) -> Loaded:
        """Read everything, and keep what was read out of the garbage collector's way.

        It holds no cycles, and a collection that goes through all of it keeps every call waiting
        for tens of ms. Reading leaves memory that is free; it does not stay with the daemon.
        """
        gc.disable()
        try:
            loaded = self._source.load()
            gc.freeze()
        finally:
            gc.enable()
            give_back()
        return loaded

    def _swap(self, read: Callable[[], Loaded]) -> None:
        loaded = read()
        if loaded is not self.current.loaded:
            # a cluster on which nothing moved leaves the decider and the cached answers in force
            moved = loaded.decide is not self.current.loaded.decide
            generation = self.current.generation + moved
            self.current = State(generation=generation, loaded=loaded, at=time.time())
            self._swapped(self.current)

    def _note(self, what: str, job: Future[None]) -> str | None:
        """Log how a load ended. The executor keeps whatever it raised, so its thread lives on."""
        if job.cancelled():
            return "the daemon is stopping"
        raised = job.exception()
        expected = isinstance(raised, OmnipilotError | OSError)
        fault = None if raised is None else str(raised) if expected else repr(raised)
        if fault is None and (what == "reload" or self._fault):
            _log.info(line("state loaded", by=what, generation=self.current.generation))
        elif fault is not None and (what == "reload" or fault != self._fault):
            _log.error(
                line("state kept", by=what, generation=self.current.generation, fault=fault),
                exc_info=None if expected else raised,
            )
        self._fault = fault
        return fault
