"""Where the daemon's state comes from: the site's files and its Slurm.

In: the folders with the site's configuration. Out: Loaded. Called by the loading thread only, so
that it may take its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.daemon.publish import effective
from omnipilot_slurm.daemon.state import Loaded
from omnipilot_slurm.records import Outcome, Submission, Verdict
from omnipilot_slurm.settings import FILE, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from omnipilot_slurm.settings import DaemonSettings


class SiteSource:
    """Reads the configuration in `folders`; `running` is the daemon section in use."""

    def __init__(self, folders: Sequence[Path], *, running: DaemonSettings) -> None:
        self._folders = folders
        self._running = running

    def load(self) -> Loaded:
        """Read everything anew.

        Raises: ConfigError.
        """
        settings, file = load_settings(self._folders)
        return Loaded(
            decide=pass_all,
            summary={"restart_needed": settings.daemon != self._running},
            documents={FILE: effective(file)},
            poll_s=settings.cluster.poll_s,
        )

    def refresh(self, loaded: Loaded) -> Loaded:
        """Return what was loaded: nothing is read of a cluster yet."""
        return loaded


def pass_all(_submission: Submission) -> Outcome:
    """Let every job pass."""
    return Outcome(verdict=Verdict.PASS)
