"""Print what it costs to read a script and to decide on it, in process, on the acceptance cases.

    python benchmarks/decide_latency.py [--rounds N]

The daemon's own decider on the example cluster, in enforce mode, caches of answers left out. Each
round runs every case once; the figures are over all calls but those of the first round. The
baseline in the same run is one SHA-256 of each script, so that the ratio says something on any
machine; processor time is shown beside wall time, since other work on the machine adds to the
latter.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from omnipilot_slurm.catalog.local import FolderLookup  # noqa: E402 (found by the line above)
from omnipilot_slurm.cluster.snapshot_file import load_snapshot  # noqa: E402 (as above)
from omnipilot_slurm.daemon.source import decider  # noqa: E402 (as above)
from omnipilot_slurm.records import Mode, Submission  # noqa: E402 (as above)
from omnipilot_slurm.resources import shipped_path  # noqa: E402 (as above)
from omnipilot_slurm.script import directives  # noqa: E402 (as above)
from omnipilot_slurm.site_files import read_files  # noqa: E402 (as above)

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = ROOT / "tests" / "fixtures" / "scripts"
P50_BAR_MS, P99_BAR_MS = 1.5, 5.0


def submissions() -> list[Submission]:
    """Return the cases as slurmctld would show them."""
    texts = [(case / "job.sh").read_bytes() for case in sorted(CASES.iterdir())]
    return [replace(directives.submission_of(text)[0], user_name="alice") for text in texts]


def decide() -> Callable[[Submission], object]:
    """Return the daemon's decider on the example cluster, in enforce mode."""
    path = shipped_path("etc", "cluster-example.yaml")
    snapshot = load_snapshot(path.read_bytes(), file=str(path))
    files = read_files([])
    site = files.site(snapshot, FolderLookup(roots=[]), files.experience())
    return decider(replace(site, policy=replace(site.policy, mode=Mode.ENFORCE)))


def timed(
    call: Callable[[Submission], object], jobs: list[Submission], rounds: int
) -> tuple[list[float], list[float]]:
    """Return each call's wall and processor times in ms, sorted; the first round does not count."""
    wall, processor = [], []
    for round_ in range(rounds + 1):
        for job in jobs:
            began, began_cpu = time.perf_counter(), time.thread_time()
            call(job)
            if round_:
                processor.append((time.thread_time() - began_cpu) * 1e3)
                wall.append((time.perf_counter() - began) * 1e3)
    return sorted(wall), sorted(processor)


def main() -> int:
    """Print the figures; 0 when both bars are reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    jobs = submissions()
    baseline, _ = timed(lambda job: hashlib.sha256(job.script).digest(), jobs, rounds)
    wall, processor = timed(decide(), jobs, rounds)
    for name, times in (("wall", wall), ("processor", processor)):
        p50, p99 = statistics.median(times), times[len(times) * 99 // 100]
        print(f"detect + decide, {name:9} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    p50, p99 = statistics.median(wall), wall[len(wall) * 99 // 100]
    print(f"p50 is {p50 / statistics.median(baseline):.0f} times one SHA-256 of the script")
    reached = p50 <= P50_BAR_MS and p99 <= P99_BAR_MS
    print(f"bars p50 {P50_BAR_MS} ms, p99 {P99_BAR_MS} ms: {'reached' if reached else 'MISSED'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
