"""Keeping what users made of proposals: read from the store once an hour, written into it.

In: the store's path and the time. Out: rows of choices. Called by the loading thread between two
polls of the cluster, never in a call.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.log import line
from omnipilot_slurm.store.choices import record_choices
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.following import WINDOW_S, choices_since

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)
EVERY_S: Final = 3600.0
#: a submission may answer a proposal of a day before, and a job waits before it runs
_WINDOW_S: Final = 3 * WINDOW_S
_FIRST_WINDOW_S: Final = 7 * WINDOW_S


class Follower:
    """Follows decided jobs; the first time those of a week, in which no daemon may have run."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._window_s = _FIRST_WINDOW_S
        self._fault: str | None = None

    def follow(self, store: Path | None, now: float) -> None:
        """Record the choices that show by now, if an hour has passed since the last time.

        A store that cannot be read or written is tried again an hour later.
        """
        if store is None or not store.exists() or now < self._next_at:
            return
        self._next_at = now + EVERY_S
        try:
            with closing(open_for_writing(store)) as connection:
                n_new = record_choices(connection, choices_since(connection, now - self._window_s))
        except (sqlite3.Error, StoreError, OSError) as error:
            if str(error) != self._fault:
                _log.error(line("choices not recorded", path=store, fault=error))
            self._fault = str(error)
            return
        self._fault = None
        self._window_s = _WINDOW_S
        if n_new:
            _log.info(line("choices recorded", n=n_new, path=store))
