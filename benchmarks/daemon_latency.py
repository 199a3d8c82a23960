"""Print what omnipilotd costs: start, memory, and time per call against a bare echo server.

    python benchmarks/daemon_latency.py [--rounds N] [--calls N]

A call is connect, one line, one line back, close, as the Lua shim makes it. Every round measures
the echo server, a script that repeats and scripts that are new, one after the other; a ratio is
the median over rounds of a round's p50 divided by the echo's p50 of that round, with the range.
Start and memory are those of omnipilotd itself; the calls go to the same daemon with a decider that
lets everything pass at once, so that the daemon around the decision is measured.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from omnipilot_slurm import log
from omnipilot_slurm.daemon.daemon import Daemon
from omnipilot_slurm.daemon.main import SWITCH_INTERVAL_S
from omnipilot_slurm.daemon.state import Loaded
from omnipilot_slurm.records import Outcome, Verdict
from omnipilot_slurm.settings import load_settings

ECHO = """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(64)
answer = sys.argv[2].encode() + b"\\n"
while True:
    connection, _ = server.accept()
    with connection:
        line = b""
        while chunk := connection.recv(65536):
            line += chunk
            if line.endswith(b"\\n"):
                connection.sendall(answer)
                break
"""
ANSWER = '{"v":1,"id":"0123456789","verdict":"pass","messages":[],"fields":{},"env":{},"edits":[]}'
SCRIPT = """#!/bin/bash
#SBATCH --job-name=serve
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:2
#SBATCH --time=04:00:00
module load cuda
source ~/venv/bin/activate
export HF_HOME=/scratch/$USER/hf
vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --port NNNNN
"""
N_STARTS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=400, help="calls a round of each kind")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = [start_once(folder) for _ in range(N_STARTS)]
        daemon = start_daemon(folder, [sys.executable, __file__, "--serve", name])
        echo_socket = folder / "echo.sock"
        echo = subprocess.Popen([sys.executable, "-c", ECHO, str(echo_socket), ANSWER])
        try:
            wait_for(folder / "d.sock")
            wait_for(echo_socket)
            rounds = [one_round(folder, number, options.calls) for number in range(options.rounds)]
        finally:
            echo.kill()
            daemon.terminate()
            echo.wait()
            daemon.wait()
    report(starts, rounds)


class PassAll:
    """A source of state that decides nothing."""

    def load(self) -> Loaded:
        """Return the state."""
        return Loaded(decide=lambda _: Outcome(verdict=Verdict.PASS))

    def refresh(self, loaded: Loaded) -> Loaded:
        """Return the state as it was."""
        return loaded

    def close(self) -> None:
        """Have nothing to close."""


def serve(folder: Path) -> None:
    """Run a daemon that decides nothing."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = load_settings([folder]).settings.daemon
    log.set_up(settings.log_level, journal=False)
    Daemon(settings, PassAll()).run()


def start_daemon(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a daemon with a store and a folder to publish to, as on a site."""
    settings = {
        "schema": 1,
        "daemon": {
            "socket": str(folder / "d.sock"),
            "store": str(folder / "store.db"),
            "publish": str(folder / "public"),
            "log_level": "warning",
        },
    }
    (folder / "omnipilot.yaml").write_text(json.dumps(settings))
    return subprocess.Popen(command)


def start_once(folder: Path) -> tuple[float, float, float]:
    """Return the times in s from start to a first answer and to a loaded state, and MiB in use."""
    command = [sys.executable, "-m", "omnipilot_slurm.daemon.main", "--config", str(folder)]
    began = time.perf_counter()
    daemon = start_daemon(folder, command)
    wait_for(folder / "d.sock")
    ask(folder / "d.sock", b'{"v":1,"op":"ping"}\n')
    answered_s = time.perf_counter() - began
    while b"not_ready" in ask(folder / "d.sock", request("00000")):
        time.sleep(0.002)
    loaded_s = time.perf_counter() - began
    rss_mib = rss_kib(daemon.pid) / 1024
    daemon.terminate()
    daemon.wait()
    return answered_s, loaded_s, rss_mib


def one_round(folder: Path, number: int, n_calls: int) -> dict[str, float]:
    """Return the p50 in ms of each kind of call."""
    repeated = request("80000")
    new = [request(f"{number:02d}{call:03d}") for call in range(n_calls)]
    return {
        "bare echo": p50_ms(folder / "echo.sock", [repeated] * n_calls),
        "repeated script": p50_ms(folder / "d.sock", [repeated] * n_calls),
        "new script": p50_ms(folder / "d.sock", new),
    }


def p50_ms(path: Path, lines: list[bytes]) -> float:
    """Return the median time of a call in ms."""
    times_ms = []
    for line in lines:
        began = time.perf_counter()
        ask(path, line)
        times_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(times_ms)


def ask(path: Path, line: bytes) -> bytes:
    """Make one call."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(line)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def request(port: str) -> bytes:
    """Return a decide request as the shim sends it."""
    message = {
        "v": 1,
        "op": "decide",
        "script": SCRIPT.replace("NNNNN", port),
        "argv": [],
        "env": {"SLURM_GPUS_PER_NODE": "a100:2"},
        "partitions": ["gpu", "gpu-long"],
        "job": {
            "user_id": 0,
            "user_name": "root",
            "partition": "gpu",
            "tres_per_node": "gres:gpu:a100:2",
            "time_limit": 240,
            "num_tasks": 1,
        },
    }
    return json.dumps(message).encode() + b"\n"


def wait_for(path: Path) -> None:
    """Return when somebody accepts there."""
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(path))
        except OSError:
            time.sleep(0.002)
        else:
            return


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def report(starts: list[tuple[float, float, float]], rounds: list[dict[str, float]]) -> None:
    """Print one line for each figure."""
    names = ("start to first answer:", "start to loaded state:", "resident memory then:")
    for name, unit, values in zip(names, ("s", "s", "MiB"), zip(*starts, strict=True), strict=True):
        low, mid, high = min(values), statistics.median(values), max(values)
        print(f"{name:24} {mid:.2f} {unit} (median of {len(values)}, {low:.2f}-{high:.2f})")
    for kind in rounds[0]:
        p50 = statistics.median(each[kind] for each in rounds)
        ratios = [each[kind] / each["bare echo"] for each in rounds]
        print(
            f"{kind + ':':24} p50 {p50:.3f} ms, {statistics.median(ratios):.2f} x echo "
            f"({min(ratios):.2f}-{max(ratios):.2f} over {len(rounds)} rounds)"
        )


if __name__ == "__main__":
    main()
