"""Print what the shim costs a real slurmctld, in submissions per second against a baseline.

    python benchmarks/shim_rate.py [--rounds N] [--jobs N] [--submitters N] [--only NAME ...]

Needs root, Slurm, a C compiler and libslurm-dev: sbatch is too slow to tell, so a C program submits
held jobs. Every arm has a Slurm of its own, all up at once. A round times every arm once, in an
order shuffled anew; a ratio is taken within a round, and its line gives the median over the rounds
with the interval between two of the ordered ratios that covers the true median with at least 95 %.
Beside the rates stands slurmctld's own processor time per submission, over all timed runs, which a
busy machine disturbs less. Many short rounds beat few long ones where others use the machine.
Before a slurmctld holds more than 200 jobs it starts anew without any: job_submit/lua makes a table
of all jobs at each submission, so any Lua plugin, the trivial one too, costs more with each job.
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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from omnipilot_slurm.sandbox import DEFAULT_NODES, Sandbox, daemons, startup  # noqa: E402 (found by the line above)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Rates = dict[str, list[float]]

NOBODY_UID = 65534
TRIVIAL_PLUGIN = """
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
#: submitted before each timed run: enough to open the breaker where nobody answers
WARM_UP_JOBS = 8
MAX_HELD_JOBS = 200
ECHO_ANSWER = b'{"v":1,"id":"0","verdict":"pass","messages":[]}\n'
_SETUP = """module load cuda/12.4
source "$HOME/venv/bin/activate"
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
for step in 1 2 3; do echo "step $step of $SLURM_JOB_ID on $(hostname)"; done
"""
OTHER_SCRIPT = f"#!/bin/bash\n#SBATCH --time=60\n{_SETUP * 8}srun ./simulate --input run.nml\n"
VLLM_SCRIPT = f"#!/bin/bash\n#SBATCH --time=60\n{_SETUP * 8}vllm serve org/model --port 8000\n"


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

    `daemon` serves the socket in a process of its own; None: nobody listens. `is_new`: no script
    comes twice.
    """

    plugin: str | None
    script: str
    daemon: Callable[[Path], None] | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A ratio of two arms and the number it is held against."""

    arm: str
    baseline: str
    at_least: float


ARMS = {
    "other, no plugin": Arm(plugin=None, script=OTHER_SCRIPT),
    "other, trivial": Arm(plugin="trivial", script=OTHER_SCRIPT),
    "other, shim": Arm(plugin="shim", script=OTHER_SCRIPT),
    "vllm, no plugin": Arm(plugin=None, script=VLLM_SCRIPT),
    "vllm, dead": Arm(plugin="shim", script=VLLM_SCRIPT),
    "vllm, hung": Arm(plugin="shim", script=VLLM_SCRIPT, daemon=serve_nothing),
    "vllm, echo": Arm(plugin="shim", script=VLLM_SCRIPT, daemon=serve_echo),
}
CLAIMS = (
    Claim(arm="other, shim", baseline="other, trivial", at_least=0.97),
    Claim(arm="other, trivial", baseline="other, no plugin", at_least=0.0),
    Claim(arm="vllm, dead", baseline="vllm, no plugin", at_least=0.95),
    Claim(arm="vllm, hung", baseline="vllm, no plugin", at_least=0.9),
    Claim(arm="vllm, echo", baseline="vllm, no plugin", at_least=0.0),
)


def plugin_text(name: str, etc: Path, socket_path: Path) -> str:
    """Return the job_submit.lua of an arm."""
    if name == "trivial":
        return TRIVIAL_PLUGIN
    example = (ROOT / "lua" / "job_submit.lua").read_text()
    example = example.replace("/etc/slurm/omnipilot.lua", str(etc / "omnipilot.lua"))
    return example.replace("/run/omnipilot/omnipilotd.sock", str(socket_path))


@contextmanager
def running(arm: Arm, folder: Path) -> Iterator[Sandbox]:
    """Run a Slurm, and what stands behind its shim, as the arm describes."""
    folder.chmod(0o755)
    plugin, socket_path = folder / "plugin", folder / "daemon.sock"
    sandbox = Sandbox(
        folder / "slurm",
        accounting=False,
        nodes=DEFAULT_NODES[:1],
        plugin=plugin if arm.plugin else None,
    )
    if arm.plugin:
        plugin.mkdir()
        text = plugin_text(arm.plugin, sandbox.folders.etc, socket_path)
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
        words = [self.program, script, self.n_processes, n_each, NOBODY_UID, int(arm.is_new)]
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


def cpu_s(sandbox: Sandbox) -> float:
    """Return the processor time that a slurmctld has used, its ended threads included."""
    (pid,) = [up.pid for up in sandbox.status() if up.name == "slurmctld"]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_jobs(sandbox: Sandbox) -> None:
    """Start slurmctld anew, without any job."""
    daemons.stop(sandbox.folders, "slurmctld")
    state = sandbox.folders.state / "ctld"
    owner = state.owner()
    shutil.rmtree(state)
    state.mkdir()
    shutil.chown(state, owner)
    startup.start_slurmctld(sandbox.folders, sandbox.run)


def run_arms(names: list[str], options: argparse.Namespace) -> tuple[Rates, Rates]:
    """Return, of each arm and by round, submissions per second and processor s of slurmctld."""
    rates: Rates = {name: [] for name in names}
    times: Rates = {name: [] for name in names}
    rounds_until_full = max(1, MAX_HELD_JOBS // (options.jobs + WARM_UP_JOBS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shim-rate-")))
        folder.chmod(0o755)
        submitter = Submitter(folder, n_processes=options.submitters)
        sandboxes = {}
        for index, name in enumerate(names):
            place = folder / str(index)
            place.mkdir()
            sandboxes[name] = stack.enter_context(running(ARMS[name], place))
        shuffled = random.Random(1)
        for round_ in range(options.rounds):
            if round_ % rounds_until_full == 0:
                for sandbox in sandboxes.values():
                    forget_jobs(sandbox)
            for name in shuffled.sample(names, len(names)):
                arm, sandbox = ARMS[name], sandboxes[name]
                submitter.rate(arm, sandbox, WARM_UP_JOBS)
                before_s = cpu_s(sandbox)
                rates[name].append(submitter.rate(arm, sandbox, options.jobs))
                times[name].append(cpu_s(sandbox) - before_s)
    return rates, times


def report(rates: Rates, times: Rates, *, n_jobs: int) -> bool:
    """Print rates, times and ratios; True when every ratio reaches what it is held against."""
    for name, values in rates.items():
        cpu_ms = 1e3 * statistics.mean(times[name]) / n_jobs
        print(f"{name:17} {statistics.median(values):5.0f} submissions/s  {cpu_ms:.3f} ms of CPU")
    holds = True
    for claim in CLAIMS:
        if not {claim.arm, claim.baseline} <= rates.keys():
            continue
        pairs = zip(rates[claim.arm], rates[claim.baseline], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        low, high = interval(ratios)
        verdict = ""
        if claim.at_least:
            reaches = high >= claim.at_least
            holds = holds and reaches
            verdict = f"  at least {claim.at_least}: {'reached' if reaches else 'MISSED'}"
        median = statistics.median(ratios)
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
    rates, times = run_arms(options.only, options)
    return 0 if report(rates, times, n_jobs=options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
