"""A sacct that answers from a list of jobs, as the real one does to our questions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """#!{python}
import json, sys
state = json.load(open({state!r}))
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if state.get("fails"):
    sys.exit("sacct: error: slurm_persist_conn_open: Connection refused")
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if "--helpformat" in sys.argv:
    print("Account AdminComment", "StdErr StdIn StdOut" if state.get("stdout") else "")
elif "--batch-script" in sys.argv:
    for job_id in options["--jobs"].split(","):
        if job_id in state["scripts"]:
            print("Batch Script for " + job_id + "\\n" + "-" * 80)
            print(state["scripts"][job_id])
else:
    names = options["--format"].split(",")
    start, end = (int(options[key].removeprefix("uts")) for key in ("--starttime", "--endtime"))
    print("\\x1f".join(names))
    for job in state["jobs"]:
        if int(job["Submit"]) <= end and (job["End"] == "Unknown" or int(job["End"]) >= start):
            print("\\x1f".join(str(job.get(name, "")) for name in names))
"""


class StandIn:
    """A folder with a `sacct`, to be put in front of the PATH."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self._state = folder / "state.json"
        self._log = folder / "asked"
        self.say(jobs=[])
        program = folder / "sacct"
        program.write_text(
            PROGRAM.replace("{python}", python)
            .replace("{state!r}", repr(str(self._state)))
            .replace("{log!r}", repr(str(self._log)))
        )
        program.chmod(0o755)

    def say(self, **state: Any) -> None:
        """Answer from these jobs and scripts from now on."""
        self._state.write_text(json.dumps({"scripts": {}, **state}))

    def asked(self, option: str) -> list[str]:
        """Return the values of an option in the questions so far, in order."""
        words = [word for line in self._log.read_text().splitlines() for word in json.loads(line)]
        return [word.partition("=")[2] for word in words if word.startswith(option)]
