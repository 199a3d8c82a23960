"""Print what omnipilotd costs: start, memory, and time per call against a bare echo server.

    python benchmarks/daemon_latency.py [--rounds N] [--calls N]

A call is connect, one line, one line back, close, as the Lua shim makes it. Every round measures
the echo server, a script that repeats and scripts that are new, one after the other; a ratio is
the median over rounds of a round's p50 divided by the echo's p50 of that round, with the range.
The calls come in root's name, whose jobs are exempt: what is measured is the daemon around the
decision, not the decision.
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts_s = [start_once(folder) for _ in range(N_STARTS)]
        daemon = start_daemon(folder)
        echo_socket = folder / "echo.sock"
        echo = subprocess.Popen([sys.executable, "-c", ECHO, str(echo_socket), ANSWER])
        try:
            wait_for(folder / "d.sock")
            wait_for(echo_socket)
            rounds = [one_round(folder, number, options.calls) for number in range(options.rounds)]
            rss_mib = rss_kib(daemon.pid) / 1024
        finally:
            echo.kill()
            daemon.terminate()
            echo.wait()
            daemon.wait()
    report(starts_s, rss_mib, rounds)


def start_daemon(folder: Path) -> subprocess.Popen[bytes]:
    """Start omnipilotd with a store and a folder to publish to, as on a site."""
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
    command = [sys.executable, "-m", "omnipilot_slurm.daemon.main", "--config", str(folder)]
    return subprocess.Popen(command)


def start_once(folder: Path) -> tuple[float, float]:
    """Return the times in s from start to the first answer, and to a loaded state."""
    began = time.perf_counter()
    daemon = start_daemon(folder)
    wait_for(folder / "d.sock")
    ask(folder / "d.sock", b'{"v":1,"op":"ping"}\n')
    answered_s = time.perf_counter() - began
    while b"not_ready" in ask(folder / "d.sock", request("00000")):
        time.sleep(0.002)
    loaded_s = time.perf_counter() - began
    daemon.terminate()
    daemon.wait()
    return answered_s, loaded_s


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


def report(
    starts_s: list[tuple[float, float]], rss_mib: float, rounds: list[dict[str, float]]
) -> None:
    """Print one line for each figure."""
    for name, times_s in zip(
        ("start to first answer:", "start to loaded state:"),
        zip(*starts_s, strict=True),
        strict=True,
    ):
        low, mid, high = min(times_s), statistics.median(times_s), max(times_s)
        print(f"{name:24} {mid:.2f} s (median of {len(times_s)}, {low:.2f}-{high:.2f})")
    print(f"{'resident memory:':24} {rss_mib:.1f} MiB")
    for kind in rounds[0]:
        p50 = statistics.median(each[kind] for each in rounds)
        ratios = [each[kind] / each["bare echo"] for each in rounds]
        print(
            f"{kind + ':':24} p50 {p50:.3f} ms, {statistics.median(ratios):.2f} x echo "
            f"({min(ratios):.2f}-{max(ratios):.2f} over {len(rounds)} rounds)"
        )


if __name__ == "__main__":
    main()
