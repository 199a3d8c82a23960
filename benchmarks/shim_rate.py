"""Print what the shim costs a real slurmctld: rates against a baseline, and time inside the call.

    python benchmarks/shim_rate.py [--rounds N] [--jobs N] [--submitters N] [--only NAME ...]

Needs root, Slurm, a C compiler and libslurm-dev (sbatch is too slow to tell, so a C program submits
jobs that begin tomorrow), and lua-posix for the clock inside. Every arm has a Slurm of its own, all
up at once. A round times every arm once, in an order shuffled anew; a ratio is taken within a
round, and its line gives the median over the rounds with the interval between two of the ordered
ratios that covers the true median with at least 95 %. Many short rounds beat few long ones where
others use the machine. Before a slurmctld holds more than 200 jobs it starts anew without any:
job_submit/lua makes a table of all jobs at each submission, so any Lua plugin, the trivial one too,
costs more with each job. Then each plugin runs once more, alone, with a clock around its
slurm_job_submit.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.sandbox import DEFAULT_NODES, Sandbox, daemons, startup
from omnipilot_slurm.sandbox.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
NOBODY_UID = 65534
TRIVIAL_PLUGIN = """
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
#: submitted before each timed run: enough to open the breaker where nobody answers
WARM_UP_JOBS = 8
MAX_HELD_JOBS = 200
#: put behind a plugin: writes the microseconds of each call to a file
CLOCK = """
do
  local time, submit = require("posix.time"), slurm_job_submit
  local function now_us()
    local now = time.clock_gettime(time.CLOCK_MONOTONIC)
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3
  end
  local timings = io.open("TIMINGS", "a")
  timings:setvbuf("line")
  function slurm_job_submit(...)
    local began_us = now_us()
    local code = submit(...)
    timings:write(string.format("%.1f\\n", now_us() - began_us))
    return code
  end
end
"""
ECHO_ANSWER = b'{"v":1,"id":"0","verdict":"pass","messages":[]}\n'
_SETUP = """module load cuda/12.4
source "$HOME/venv/bin/activate"
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
for step in 1 2 3; do echo "step $step of $SLURM_JOB_ID on $(hostname)"; done
"""
OTHER_SCRIPT = f"#!/bin/bash\n#SBATCH --time=60\n{_SETUP * 8}srun ./simulate --input run.nml\n"
#: as long as three in four of the acceptance cases are at most
VLLM_SCRIPT = """#!/bin/bash
#SBATCH --job-name=serve
#SBATCH --time=60
module load cuda/12.4
source "$HOME/venv/bin/activate"
export HF_HOME=/scratch/$USER/hf
echo "serving on $SLURM_JOB_NODELIST"
vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --port 8000
"""


def listen(path: Path) -> socket.socket:
    """Return a socket that listens where the shim of a slurmctld may connect."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(128)
    return listener


def serve_echo(path: Path) -> None:
    """Answer every line with the same one: what a daemon costs that decides nothing."""
    with listen(path) as listener:
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the shim may have given up
                line = b""
                while chunk := connection.recv(65536):
                    line += chunk
                    if line.endswith(b"\n"):
                        connection.sendall(ECHO_ANSWER)
                        break


def serve_nothing(path: Path) -> None:
    """Listen and never accept, as a hung daemon does."""
    with listen(path):
        multiprocessing.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to run a slurmctld: a plugin, what stands behind its socket, and what is submitted.

    `daemon` serves the socket in a process of its own; None: nobody listens. `pilot`: OmniPilot as
    it is, the shim and omnipilotd in enforce mode. `is_new`: no script comes twice; `is_new_load`:
    no load either. `n_nodes` of the sandbox's nodes are there, each of another GPU.
    """

    plugin: str | None
    script: str
    daemon: Callable[[Path], None] | None = None
    pilot: Pilot | None = None
    is_new: bool = False
    is_new_load: bool = False
    n_nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A ratio of two arms and the number it is held against: its median, or its interval's end."""

    arm: str
    baseline: str
    at_least: float
    by_interval: bool = False


ARMS = {
    "other, no plugin": Arm(plugin=None, script=OTHER_SCRIPT),
    "other, trivial": Arm(plugin="trivial", script=OTHER_SCRIPT),
    "other, shim": Arm(plugin="shim", script=OTHER_SCRIPT),
    "vllm, no plugin": Arm(plugin=None, script=VLLM_SCRIPT),
    "vllm, dead": Arm(plugin="shim", script=VLLM_SCRIPT),
    "vllm, hung": Arm(plugin="shim", script=VLLM_SCRIPT, daemon=serve_nothing),
    "vllm, echo": Arm(plugin="shim", script=VLLM_SCRIPT, daemon=serve_echo),
    "vllm, omnipilotd": Arm(plugin=None, script=VLLM_SCRIPT, pilot=Pilot()),
    "new, echo": Arm(plugin="shim", script=VLLM_SCRIPT, daemon=serve_echo, is_new=True),
    "new, omnipilotd": Arm(plugin=None, script=VLLM_SCRIPT, pilot=Pilot(), is_new=True),
}
CLAIMS = (
    Claim(arm="other, shim", baseline="other, trivial", at_least=0.97, by_interval=True),
    Claim(arm="other, trivial", baseline="other, no plugin", at_least=0.0),
    Claim(arm="vllm, dead", baseline="vllm, no plugin", at_least=0.95),
    Claim(arm="vllm, hung", baseline="vllm, no plugin", at_least=0.9),
    Claim(arm="vllm, echo", baseline="vllm, no plugin", at_least=0.0),
    Claim(arm="vllm, omnipilotd", baseline="vllm, echo", at_least=0.9),
    Claim(arm="new, omnipilotd", baseline="new, echo", at_least=0.65),
)


def plugin_text(name: str, etc: Path, socket_path: Path) -> str:
    """Return the job_submit.lua of an arm."""
    if name == "trivial":
        return TRIVIAL_PLUGIN
    example = (ROOT / "lua" / "job_submit.lua").read_text()
    example = example.replace("/etc/slurm/omnipilot.lua", str(etc / "omnipilot.lua"))
    return example.replace("/run/omnipilot/omnipilotd.sock", str(socket_path))


@contextmanager
def running(arm: Arm, folder: Path, *, timings: Path | None = None) -> Iterator[Sandbox]:
    """Run a Slurm, and what stands behind its shim, as the arm describes.

    `timings` is a file that gets the microseconds of each call of the plugin.
    """
    folder.chmod(0o755)
    plugin, socket_path = folder / "plugin", folder / "daemon.sock"
    sandbox = Sandbox(
        folder / "slurm",
        accounting=False,
        nodes=DEFAULT_NODES[: arm.n_nodes],
        plugin=plugin if arm.plugin else None,
        pilot=arm.pilot,
    )
    if arm.plugin:
        plugin.mkdir()
        text = plugin_text(arm.plugin, sandbox.folders.etc, socket_path)
        if timings:
            text += CLOCK.replace("TIMINGS", str(timings))
        (plugin / "job_submit.lua").write_text(text)
        (plugin / "omnipilot.lua").write_text((ROOT / "lua" / "omnipilot.lua").read_text())
    server = None
    if arm.daemon:
        server = multiprocessing.Process(target=arm.daemon, args=(socket_path,), daemon=True)
        server.start()
    try:
        sandbox.up()
        yield sandbox
    finally:
        sandbox.down()
        if server:
            server.terminate()
            server.join()


class Submitter:
    """The compiled C program and how it is run."""

    def __init__(self, folder: Path, *, n_processes: int) -> None:
        self.program = folder / "submit_jobs"
        self.folder = folder
        self.n_processes = n_processes
        source = ROOT / "benchmarks" / "submit_jobs.c"
        subprocess.run(["cc", "-O2", "-o", self.program, source, "-lslurm"], check=True)

    def rate(self, arm: Arm, sandbox: Sandbox, n_jobs: int) -> float:
        """Submit n_jobs and return submissions per second."""
        script = self.folder / "job.sh"
        script.write_text(arm.script)
        n_each = n_jobs // self.n_processes
        new = 2 if arm.is_new_load else int(arm.is_new)
        words = [self.program, script, self.n_processes, n_each, NOBODY_UID, new]
        done = subprocess.run(
            [str(word) for word in words],
            env={"PATH": os.environ["PATH"], **user_environment(), **sandbox.env()},
            stdout=subprocess.PIPE,
            check=True,
        )
        return n_each * self.n_processes / float(done.stdout)


def user_environment() -> dict[str, str]:
    """Return as many variables as a login on a cluster has."""
    return {f"MODULE_{i}_HOME": f"/opt/software/module/{i}" for i in range(60)}


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return two of the ordered ratios that cover the true median with at least 95 %, if any do.

    The number of ratios below the true median is binomial(n, 1/2).
    """
    ordered, n = sorted(ratios), len(ratios)
    tail, k = 0.5**n, 0
    while k + 1 < n / 2 and 2 * (tail + math.comb(n, k + 1) * 0.5**n) <= 0.05:
        k += 1
        tail += math.comb(n, k) * 0.5**n
    return ordered[k], ordered[-1 - k]


def forget_jobs(sandbox: Sandbox) -> None:
    """Start slurmctld anew, without any job."""
    daemons.stop(sandbox.folders, "slurmctld")
    state = sandbox.folders.state / "ctld"
    owner = state.owner()
    shutil.rmtree(state)
    state.mkdir()
    shutil.chown(state, owner)
    startup.start_slurmctld(sandbox.folders, sandbox.run)


def measure_rates(
    arms: Mapping[str, Arm],
    options: argparse.Namespace,
    folder: Path,
    submitter: Submitter,
    *,
    ended: Callable[[str, Sandbox], None] = lambda _name, _sandbox: None,
) -> dict[str, list[float]]:
    """Return the submissions per second of each arm, by round; `ended` sees each before it goes."""
    names = list(arms)
    rates: dict[str, list[float]] = {name: [] for name in names}
    rounds_until_full = max(1, MAX_HELD_JOBS // (options.jobs + WARM_UP_JOBS))
    with ExitStack() as stack:
        sandboxes = {}
        for index, name in enumerate(names):
            place = folder / str(index)
            place.mkdir()
            sandboxes[name] = stack.enter_context(running(arms[name], place))
        shuffled = random.Random(1)
        for round_ in range(options.rounds):
            if round_ % rounds_until_full == 0:
                for sandbox in sandboxes.values():
                    forget_jobs(sandbox)
            for name in shuffled.sample(names, len(names)):
                arm, sandbox = arms[name], sandboxes[name]
                submitter.rate(arm, sandbox, WARM_UP_JOBS)
                rates[name].append(submitter.rate(arm, sandbox, options.jobs))
        for name, sandbox in sandboxes.items():
            ended(name, sandbox)
    return rates


def measure_inside_us(arm: Arm, place: Path, submitter: Submitter, n_jobs: int) -> list[float]:
    """Return the microseconds inside slurm_job_submit, of each job after the warm-up, in order."""
    place.mkdir()
    timings = place / "timings"
    timings.touch()
    timings.chmod(0o666)
    with running(arm, place, timings=timings) as sandbox:
        submitter.rate(arm, sandbox, WARM_UP_JOBS)
        submitter.rate(arm, sandbox, n_jobs)
    return sorted(map(float, timings.read_text().split()[WARM_UP_JOBS:]))


def report(rates: dict[str, list[float]], claims: Sequence[Claim] = CLAIMS) -> bool:
    """Print rates and ratios; True when every ratio reaches what it is held against."""
    for name, values in rates.items():
        print(f"{name:17} {statistics.median(values):5.0f} submissions/s")
    holds = True
    for claim in claims:
        if not {claim.arm, claim.baseline} <= rates.keys():
            continue
        pairs = zip(rates[claim.arm], rates[claim.baseline], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        low, high = interval(ratios)
        verdict = ""
        median = statistics.median(ratios)
        if claim.at_least:
            reaches = (high if claim.by_interval else median) >= claim.at_least
            holds = holds and reaches
            doubt = " (the interval reaches it)" if high >= claim.at_least else ""
            verdict = f"  at least {claim.at_least}: {'reached' if reaches else f'MISSED{doubt}'}"
        print(f"{claim.arm} / {claim.baseline}: {median:.3f} [{low:.3f}, {high:.3f}]{verdict}")
    return holds


def main() -> int:
    """Run the arms asked for, print, and return 0 when every claim holds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds (default 9)")
    parser.add_argument("--jobs", type=int, default=400, help="jobs of a round and arm")
    parser.add_argument("--submitters", type=int, default=4, help="processes that submit")
    parser.add_argument("--only", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shim-rate-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        submitter = Submitter(folder, n_processes=options.submitters)
        arms = {name: ARMS[name] for name in options.only}
        holds = report(measure_rates(arms, options, folder, submitter))
        for name in options.only:
            arm, place = ARMS[name], folder / name.replace(", ", "-")
            if arm.plugin:
                times = measure_inside_us(arm, place, submitter, MAX_HELD_JOBS)
                p50, p90 = times[len(times) // 2], times[len(times) * 9 // 10]
                print(f"{name:17} {p50:5.0f} us inside at the median, {p90:5.0f} us at p90")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
