"""omnipilotd: start, serve until told to stop, reload when told to.

In: the command line, omnipilot.yaml, signals. Out: a process that answers on its socket. The
main thread waits for signals, feeds systemd's watchdog and starts the polls; it answers nothing.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm import __version__, log
from omnipilot_slurm.daemon.daemon import Daemon
from omnipilot_slurm.daemon.memory import share_one_heap
from omnipilot_slurm.errors import OmnipilotError
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.daemon.source import SiteSource
    from omnipilot_slurm.daemon.state import Loaded
    from omnipilot_slurm.settings import DaemonSettings

#: what the daemon creates is for its user and group; the published files say otherwise themselves
UMASK = 0o027
#: a worker that wants to run waits no longer than this for a thread that loads or stores
SWITCH_INTERVAL_S = 0.0005
#: a decision makes thousands of objects and no cycles: looking for some at the usual 700 would take
#: up to 18 ms of a call; from some 10,000 on, what waits to be found takes more than the daemon may
GC_THRESHOLDS = (5_000, 20, 50)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon and return its exit code: 0 when it was told to stop, 1 when it cannot run."""
    options = _parser().parse_args(arguments)
    folders = options.config or [SITE_FOLDER]
    os.umask(UMASK)
    # products this small gain nothing from threads of their own on a controller
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    share_one_heap()
    try:
        settings = load_settings(folders).settings.daemon
        source = Deferred(folders, running=settings)
        if options.socket is not None:
            settings = replace(settings, socket=options.socket)
        log.set_up(settings.log_level, journal="JOURNAL_STREAM" in os.environ)
        Daemon(settings, source).run()
    except OmnipilotError as error:
        sys.stderr.write(f"omnipilotd: {error}\n" + (f"  {error.hint}\n" if error.hint else ""))
        return 1
    return 0


class Deferred:
    """The site's source, whose modules the loading thread imports: no call waits for numpy."""

    def __init__(self, folders: Sequence[Path], *, running: DaemonSettings) -> None:
        self._folders = folders
        self._running = running

    def load(self) -> Loaded:
        """Read everything anew."""
        return self._source.load()

    def refresh(self, loaded: Loaded) -> Loaded:
        """Read the cluster anew."""
        return self._source.refresh(loaded)

    def close(self) -> None:
        """End what the source started."""
        if "_source" in vars(self):
            self._source.close()

    @cached_property
    def _source(self) -> SiteSource:
        from omnipilot_slurm.daemon.source import SiteSource  # noqa: PLC0415 (what the class is for)

        return SiteSource(self._folders, running=self._running)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="omnipilotd",
        description="Answers the omnipilot.lua plugin of slurmctld over a Unix socket.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        metavar="DIR",
        help=f"folder with the site's omnipilot.yaml; later ones win (default: {SITE_FOLDER})",
    )
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen here instead of at daemon.socket"
    )
    parser.add_argument("--version", action="version", version=f"omnipilotd {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
