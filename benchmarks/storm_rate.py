"""Print what a storm of vLLM submissions costs a real slurmctld with everything switched on.

    python benchmarks/storm_rate.py [--rounds N] [--jobs N] [--submitters N]

As benchmarks/shim_rate.py, whose arms and ratios these are, and needs the same. Every job of the
storm starts a server, and is checked, predicted with the shipped cost model and weighed for all
GPUs of the sandbox, told of a better place, and stored. slurmctld waits 50 ms, as it is shipped.
`repeats`: the same job again and again; `new texts`: the same load in scripts that are all
different; `new loads`: no load comes twice. `moved`: jobs that say `auto` beside it, so that each
is also rewritten, with its script read again to be sure: the most that a job can cost.

A breaker that opens, for all or for the user, makes jobs pass unasked and a rate look good:
slurmctld's log is searched for it, and the daemon is asked how many it answered, which must be all
but one in a hundred.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shim_rate import (
    VLLM_SCRIPT,
    WARM_UP_JOBS,
    Arm,
    Claim,
    Submitter,
    measure_rates,
    report,
)

from omnipilot_slurm.sandbox import DEFAULT_NODES
from omnipilot_slurm.sandbox.pilot import Pilot

if TYPE_CHECKING:
    from omnipilot_slurm.sandbox import Sandbox

SHIPPED_DEADLINE_MS = 50
SCRIPT = VLLM_SCRIPT.replace("#SBATCH --time=60", "#SBATCH --time=480\n#OMNIPILOT concurrency=32")
MOVED = SCRIPT.replace("#OMNIPILOT", "#OMNIPILOT auto")
_PILOT = Arm(
    plugin=None,
    script=SCRIPT,
    pilot=Pilot(deadline_ms=SHIPPED_DEADLINE_MS),
    n_nodes=len(DEFAULT_NODES),
)
ARMS = {
    "no plugin": replace(_PILOT, pilot=None),
    "repeats": _PILOT,
    "new texts": replace(_PILOT, is_new=True),
    "new loads": replace(_PILOT, is_new_load=True),
    "moved, repeats": replace(_PILOT, script=MOVED),
    "moved, new loads": replace(_PILOT, script=MOVED, is_new_load=True),
}
CLAIMS = (
    Claim(arm="repeats", baseline="no plugin", at_least=0.7),
    Claim(arm="new texts", baseline="no plugin", at_least=0.0),
    Claim(arm="new loads", baseline="no plugin", at_least=0.25),
    Claim(arm="moved, repeats", baseline="no plugin", at_least=0.0),
    Claim(arm="moved, new loads", baseline="no plugin", at_least=0.0),
)
#: what the shim logs when it opens its breaker
OPENED = "jobs pass unasked for"
#: how many of the jobs must have been answered
ANSWERED = 0.99


def n_answered(sandbox: Sandbox) -> int:
    """Return how many jobs omnipilotd has decided on."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(sandbox.pilot_socket))
        connection.sendall(b'{"v":1,"op":"status"}\n')
        counts = json.loads(connection.makefile().readline())["status"]["counts"]
    return sum(n for name, n in counts.items() if name.startswith("verdict_"))


def main() -> int:
    """Run the storm, print, and return 0 when both bars are reached and no breaker opened."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds (default 15)")
    parser.add_argument("--jobs", type=int, default=80, help="jobs of a round and arm")
    parser.add_argument("--submitters", type=int, default=4, help="processes that submit")
    options = parser.parse_args()
    n_submitted = options.rounds * (WARM_UP_JOBS + options.jobs)
    seen: dict[str, tuple[int, float]] = {}

    def ended(name: str, sandbox: Sandbox) -> None:
        if ARMS[name].pilot:
            seen[name] = (sandbox.log().count(OPENED), n_answered(sandbox) / n_submitted)

    with tempfile.TemporaryDirectory(prefix="storm-rate-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        submitter = Submitter(folder, n_processes=options.submitters)
        holds = report(measure_rates(ARMS, options, folder, submitter, ended=ended), CLAIMS)
    for name, (n_opened, frac) in seen.items():
        print(f"{name}: breaker opened {n_opened} times, {100 * frac:.1f} % of the jobs answered")
    stayed = all(not n_opened and frac >= ANSWERED for n_opened, frac in seen.values())
    return 0 if holds and stayed else 1


if __name__ == "__main__":
    sys.exit(main())
