"""One running daemon: its parts put together, and the loop of its main thread.

In: settings, a source of state, signals. Out: none; it runs until SIGTERM or SIGINT. Called by
main.
"""

from __future__ import annotations

import logging
import os
import pwd
import signal
import time
from typing import TYPE_CHECKING

from omnipilot_slurm import __version__
from omnipilot_slurm.daemon.groups import Groups
from omnipilot_slurm.daemon.listener import listen
from omnipilot_slurm.daemon.metrics import Metrics
from omnipilot_slurm.daemon.notify import Notifier
from omnipilot_slurm.daemon.publish import publish
from omnipilot_slurm.daemon.server import Server
from omnipilot_slurm.daemon.service import Service
from omnipilot_slurm.daemon.signals import Signals
from omnipilot_slurm.daemon.state import States
from omnipilot_slurm.log import line
from omnipilot_slurm.store.recorder import NoRecorder, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.daemon.state import Source, State
    from omnipilot_slurm.settings import DaemonSettings

_log = logging.getLogger(__name__)
#: a call that takes longer is stuck; when every worker is, systemd restarts the daemon
STUCK_S = 60.0
RECORDER_TIMEOUT_S = 2.0
_STOP = {signal.SIGTERM, signal.SIGINT}


class Daemon:
    """All parts of a daemon that listens from its creation on and answers from `run` on."""

    def __init__(self, settings: DaemonSettings, source: Source) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._publish_fault: str | None = None
        self._notifier = Notifier(os.environ)
        self._metrics = Metrics()
        self._listener = listen(settings.socket, group=settings.group)
        self._recorder = _recorder(settings)
        self._states = States(source, swapped=self._swapped)
        self._service = Service(
            states=self._states,
            groups=Groups(),
            metrics=self._metrics,
            recorder=self._recorder,
            status=self._status,
            n_cached_answers=settings.n_cached_answers,
        )
        self._server = Server(
            self._listener.socket,
            self._service,
            self._metrics,
            n_workers=settings.n_workers,
            timeout_s=settings.call_timeout_s,
            allowed_uids=_uids(settings.allowed_users),
        )

    def run(self) -> None:
        """Answer calls until a signal says stop; then finish those in flight."""
        signals = Signals({*_STOP, signal.SIGHUP})
        self._server.start()
        self._notifier.ready("answering; the first state is being loaded")
        self._states.reload()
        _log.info(line("listening", socket=self._listener.path, version=__version__))
        refresh_at = time.monotonic() + self._states.current.loaded.poll_s
        while not (got := signals.wait(self._patience_s(refresh_at))) & _STOP:
            if signal.SIGHUP in got:
                self._reload()
            if time.monotonic() >= refresh_at:
                refresh_at = time.monotonic() + self._states.current.loaded.poll_s
                self._refresh()
            if self._healthy():
                self._notifier.alive()
        self._stop()

    def _patience_s(self, refresh_at: float) -> float:
        """Return how long the loop may wait for a signal."""
        watchdog_s = self._notifier.watchdog_s
        until_refresh_s = max(0.0, refresh_at - time.monotonic())
        return until_refresh_s if watchdog_s is None else min(until_refresh_s, watchdog_s / 3)

    def _reload(self) -> None:
        self._notifier.reloading()
        self._states.reload().add_done_callback(lambda _: self._notifier.ready(self._summary()))

    def _refresh(self) -> None:
        # a load that takes longer than the interval is not asked for twice
        if not self._states.busy:
            self._states.refresh()

    def _healthy(self) -> bool:
        return self._recorder.alive and not self._server.stuck(STUCK_S)

    def _swapped(self, state: State) -> None:
        """Make a new state seen: no answers of the old one, the published files, systemd's line."""
        self._service.forget()
        self._notifier.status(self._summary())
        if self._settings.publish is None:
            return
        try:
            publish(self._settings.publish, state.loaded.documents)
        except OSError as error:
            fault = f"{self._settings.publish}: {error.strerror}"
            if fault != self._publish_fault:
                _log.error(line("not published", fault=fault))
            self._publish_fault = fault
        else:
            self._publish_fault = None

    def _summary(self) -> str:
        status = self._states.status()
        if status["fault"] is None:
            return f"answering; generation {status['generation']}"
        return f"answering with generation {status['generation']}; not loaded: {status['fault']}"

    def _status(self) -> dict[str, object]:
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._began, 3),
            "socket": str(self._listener.path),
            "state": self._states.status(),
            "store": self._recorder.status(),
            "published": {
                "folder": None if self._settings.publish is None else str(self._settings.publish),
                "fault": self._publish_fault,
            },
            **self._metrics.snapshot(),
        }

    def _stop(self) -> None:
        self._notifier.stopping()
        if not self._server.stop(self._settings.stop_timeout_s):
            _log.error(line("calls in flight given up", after_s=self._settings.stop_timeout_s))
        self._listener.close()
        self._states.close()
        self._recorder.close(RECORDER_TIMEOUT_S)
        _log.info(line("stopped", uptime_s=time.monotonic() - self._began))


def _recorder(settings: DaemonSettings) -> Recorder | NoRecorder:
    if settings.store is None:
        return NoRecorder()
    return Recorder(settings.store, retention_days=settings.retention_days)


def _uids(users: Iterable[str]) -> frozenset[int]:
    """Return who may ask: root, the daemon's own user, and these users as far as they exist."""
    uids = {0, os.geteuid()}
    for user in users:
        try:
            uids.add(pwd.getpwnam(user).pw_uid)
        except KeyError:
            _log.warning(line("allowed user unknown", user=user))
    return frozenset(uids)
