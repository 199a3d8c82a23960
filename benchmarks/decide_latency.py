"""Print what it costs to read a script and to decide on it, in process, on the acceptance cases.

    python benchmarks/decide_latency.py [--rounds N]

First the daemon's own decider on the example cluster, in enforce mode, caches of answers left out.
Each round runs every case once; the figures are over all calls but those of the first round. Then
whole decisions among 40 arms on which the server starts, with the shipped cost model, each for a
load that was never asked for before, or a server that was not either: then all is checked,
predicted and weighed anew. Where the site does not say vLLM's version, every one is in question.

The baseline in the same run is one SHA-256 of each script, so that the ratio says something on any
machine; processor time is shown beside wall time, since other work on the machine adds to the
latter. The bars are wall times of a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.local import FolderLookup
from omnipilot_slurm.cluster.snapshot_file import load_snapshot
from omnipilot_slurm.cluster_facts import FreeNodes, NodeShape, PartitionFacts, Snapshot
from omnipilot_slurm.daemon.source import decider
from omnipilot_slurm.decide import decision
from omnipilot_slurm.records import Mode, Submission
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.script import directives
from omnipilot_slurm.site_files import read_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.decide.site import Site

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "fixtures" / "scripts"
P50_BAR_MS, P99_BAR_MS = 1.5, 5.0
ARMS_P50_BAR_MS, ARMS_P99_BAR_MS = 5.0, 15.0
N_ARMS = 40
#: calls before those that count
WARM_UP_CALLS = 20
#: two partitions each of nodes with eight: 1, 2, 4 and 8 GPUs make 40 arms
GPUS = ("a100-40g", "a100-80g", "h100", "h200", "l40s")


def submissions() -> list[Submission]:
    """Return the cases as slurmctld would show them."""
    texts = [(case / "job.sh").read_bytes() for case in sorted(CASES.iterdir())]
    return [replace(directives.submission_of(text)[0], user_name="alice") for text in texts]


def example_site() -> Site:
    """Return the example cluster's site, in enforce mode."""
    path = shipped_path("etc", "cluster-example.yaml")
    return site_of(load_snapshot(path.read_bytes(), file=str(path)))


def site_of(snapshot: Snapshot) -> Site:
    """Return a site of shipped files, in enforce mode."""
    files = read_files([])
    site = files.site(snapshot, FolderLookup(roots=[]), files.experience())
    # as the daemon does: a collection through all of it takes tens of ms
    gc.freeze()
    return replace(site, policy=replace(site.policy, mode=Mode.ENFORCE))


def many_arms_site(version: str | None) -> Site:
    """Return a site with N_ARMS arms for a small model, some of them free now.

    `version` is vLLM's where the script does not say; None: all are in question.
    """
    site = site_of(
        Snapshot(
            partitions=tuple(
                PartitionFacts(
                    name=f"{gpu}-{which}",
                    is_default=(gpu, which) == (GPUS[0], "short"),
                    max_time_min=2880,
                    shapes=(_nodes(gpu, n_free=int(which == "short")),),
                )
                for gpu in GPUS
                for which in ("short", "long")
            ),
            taken_at=time.time(),
        )
    )
    return replace(site, vllm=replace(site.vllm, version=version))


def _nodes(gpu: str, *, n_free: int) -> NodeShape:
    free = FreeNodes(n_nodes=1, gpus={gpu: 8}, cpus=128, memory_mib=1_000_000)
    return NodeShape(
        n_nodes=4, gpus={gpu: 8}, cpus=128, memory_mib=1_000_000, free=(free,) * n_free
    )


def new_jobs(n: int, *, is_new_server: bool) -> list[Submission]:
    """Return as many submissions of one model, each for a load of its own, or a server as well."""
    serve = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
    head = f"#!/bin/bash\n#SBATCH --gres=gpu:{GPUS[0]}:1\n#SBATCH --time=8:00:00\n#OMNIPILOT auto"
    texts = (
        f"{head} concurrency=32 isl={800 + i} osl=256\n"
        f"{serve} --max-model-len {8192 + i * is_new_server}\n"
        for i in range(n)
    )
    return [
        replace(directives.submission_of(text.encode())[0], user_name="alice") for text in texts
    ]


def once(
    call: Callable[[Submission], object], jobs: list[Submission]
) -> tuple[list[float], list[float]]:
    """Return the wall and processor times in ms of one call for each job, sorted."""
    wall, processor = [], []
    for job in jobs:
        began, began_cpu = time.perf_counter(), time.thread_time()
        call(job)
        processor.append((time.thread_time() - began_cpu) * 1e3)
        wall.append((time.perf_counter() - began) * 1e3)
    return sorted(wall), sorted(processor)


def printed(name: str, wall: list[float], processor: list[float]) -> tuple[float, float]:
    """Print sorted times in ms, and return p50 and p99 of the wall times."""
    for clock, times in (("wall", wall), ("processor", processor)):
        p50, p99 = statistics.median(times), times[len(times) * 99 // 100]
        print(f"{name}, {clock:9} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return statistics.median(wall), wall[len(wall) * 99 // 100]


def reached(p50: float, p99: float, *, p50_bar: float, p99_bar: float) -> bool:
    """Print whether both bars are reached."""
    holds = p50 <= p50_bar and p99 <= p99_bar
    print(f"bars p50 {p50_bar} ms, p99 {p99_bar} ms: {'reached' if holds else 'MISSED'}")
    return holds


def among_many_arms(n_calls: int, *, version: str | None, is_new_server: bool) -> bool:
    """Time decisions among N_ARMS arms and print whether their bars are reached."""
    site = many_arms_site(version)

    def decide(job: Submission) -> object:
        return decision.decide(job, site, expired=lambda: False)

    first, *others = new_jobs(1 + WARM_UP_CALLS + n_calls, is_new_server=is_new_server)
    arms = decision.decide(first, site, expired=lambda: False, all_arms=True).arms
    assert len(arms) == N_ARMS
    assert all(rated.utility_usd is not None for rated in arms)
    once(decide, others[:WARM_UP_CALLS])
    wall, processor = once(decide, others[WARM_UP_CALLS:])
    what = f"{N_ARMS} arms, new {'server and load' if is_new_server else 'load'}"
    p50, p99 = printed(f"{what}, vLLM {version or 'of any version'}", wall, processor)
    return reached(p50, p99, p50_bar=ARMS_P50_BAR_MS, p99_bar=ARMS_P99_BAR_MS)


def main() -> int:
    """Print the figures; 0 when all bars are reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    jobs = submissions()
    baseline, _ = once(lambda job: hashlib.sha256(job.script).digest(), jobs * rounds)
    decide = decider(example_site())
    once(decide, jobs)
    wall, processor = once(decide, jobs * rounds)
    p50, p99 = printed("detect + decide", wall, processor)
    print(f"p50 is {p50 / statistics.median(baseline):.0f} times one SHA-256 of the script")
    usual = reached(p50, p99, p50_bar=P50_BAR_MS, p99_bar=P99_BAR_MS)
    many = [
        among_many_arms(rounds * 5, version=version, is_new_server=is_new_server)
        for version, is_new_server in (("0.11.0", False), ("0.11.0", True), (None, True))
    ]
    return 0 if usual and all(many) else 1


if __name__ == "__main__":
    sys.exit(main())
