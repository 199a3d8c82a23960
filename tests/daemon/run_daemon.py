"""A real daemon whose decider does what a script says: `sleep 0.5`, `advise TEXT`, `observe pass`.

    python run_daemon.py FOLDER

Everything else is omnipilotd's own: FOLDER holds its omnipilot.yaml, and the file `state`, read on
each load, becomes the code of every decision; when it says `broken` the load fails.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

from omnipilot_slurm import log
from omnipilot_slurm.daemon.daemon import Daemon
from omnipilot_slurm.daemon.state import Loaded
from omnipilot_slurm.errors import ConfigError, Fault
from omnipilot_slurm.records import DECISION_ID, Outcome, Submission, Verdict
from omnipilot_slurm.settings import load_settings


class FileSource:
    """Loads the file `state`; counts how often the decider ran in the file `decided`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> Loaded:
        state = (self._folder / "state").read_text().strip()
        if state == "broken":
            raise ConfigError([Fault(file="state", line=1, column=1, message="is broken")])
        if state.startswith("slow"):
            time.sleep(float(state.split()[1]))
        return Loaded(
            decide=partial(decide, self._folder, state),
            summary={"state": state},
            documents={"snapshot.json": state},
            poll_s=3600.0,
        )

    def refresh(self, loaded: Loaded) -> Loaded:
        return loaded

    def close(self) -> None:
        pass


def decide(folder: Path, state: str, submission: Submission) -> Outcome:
    with (folder / "decided").open("ab") as stream:
        stream.write(b".")
    script = submission.script.decode("utf-8", "surrogateescape")
    word, _, rest = script.strip().rpartition("\n")[2].partition(" ")
    if word == "sleep":
        time.sleep(float(rest))
    if word == "raise":
        raise ZeroDivisionError(rest)
    if word == "break":
        return Outcome(verdict=Verdict.ADVISE, fields={"gres": "gpu:2"})
    if word == "pending":
        return Outcome(verdict=Verdict.ABSTAIN, lasting=False)
    if word == "advise":
        message = f"{rest} (omnipilot explain {DECISION_ID})"
        record = {"script": rest, "groups": submission.groups}
        return Outcome(
            verdict=Verdict.ADVISE, messages=(message,), tag=True, code=state, record=record
        )
    if word == "observe":
        return Outcome(verdict=Verdict.PASS, code=state, record={"would_be": rest})
    return Outcome(verdict=Verdict.PASS, code=state)


def main() -> None:
    folder = Path(sys.argv[1])
    os.umask(0o027)
    settings = load_settings([folder]).settings.daemon
    log.set_up(settings.log_level, journal=False)
    Daemon(settings, FileSource(folder)).run()


if __name__ == "__main__":
    main()
