"""How long reading a year of accounting takes, and how much memory: `make bench-ingest`.

Writes dumps as sacct makes them (arrays, heterogeneous jobs, requeues, steps, jobs without GPUs or
that never started, odd states, UTF-8, delimiters and line ends in names), reads them with the
command as users run it, and prints seconds and the peak of resident memory of each run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_S = 86_400
HEADER = (
    "JobID|JobIDRaw|User|Partition|ReqTRES|AllocTRES|NNodes|Submit|Eligible|Start|End|TimelimitRaw|"
    "State|ExitCode|NodeList|AdminComment|WorkDir|SubmitLine|JobName\n"
)
PARTITIONS = [
    ("gpu", "a100"),
    ("gpu-long", "a100"),
    ("h100", "h100"),
    ("h200", "h200"),
    ("v100", "v100"),
]
NAMES = ["train", "vllm-serve", "größe-é漢", "a|b", "two\nlines", "eval", "llama_serve", "x" * 40]
STATES = (
    ["COMPLETED"] * 60
    + ["FAILED"] * 14
    + ["TIMEOUT"] * 6
    + ["CANCELLED by 1000", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE"]
)
ROOT = Path(__file__).parents[1]
PROGRAM = "import sys; from omnipilot_slurm.cli.main import main; sys.exit(main())"


class Run(NamedTuple):
    """One run of the command: seconds, of them of a processor, peak memory, what it printed."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float
    told: dict[str, object]


def write_dump(path: Path, n_jobs: int, *, seed: int, first_id: int, start: float) -> None:
    """Write a dump of `n_jobs` jobs, submitted over a year from a Unix time on."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(HEADER)
        stream.writelines(rows(rng, n_jobs, first_id, start))


def rows(rng: random.Random, n_jobs: int, job_id: int, start: float) -> Iterator[str]:
    """Yield rows of jobs and their steps, in the order of submission."""
    step_s = 365 * DAY_S / 500_000
    done = 0
    while done < n_jobs:
        kind = rng.random()
        n = min(n_jobs - done, rng.randint(2, 40) if kind < 0.03 else 2 if kind < 0.05 else 1)
        submit = int(start + done * step_s)
        for i in range(n):
            if kind < 0.03:
                yield from job_rows(rng, f"{job_id}_{i}", job_id + i, submit)
            elif kind < 0.05:
                yield from job_rows(rng, f"{job_id}+{i}", job_id + i, submit)
            elif kind < 0.06:
                yield from job_rows(rng, str(job_id), job_id, submit, state="REQUEUED")
                yield from job_rows(rng, str(job_id), job_id, submit + 9000)
            else:
                yield from job_rows(rng, str(job_id), job_id, submit)
        job_id += n
        done += n


def job_rows(
    rng: random.Random, job_id: str, raw_id: int, submit: int, *, state: str = ""
) -> Iterator[str]:
    """Yield the row of one job and those of its steps."""
    partition, kind = rng.choice(PARTITIONS)
    n_gpus = rng.choice([1, 1, 1, 2, 4, 8])
    eligible = submit + rng.choice([0, 0, 0, 30, 4000])
    begun = eligible + int(rng.expovariate(1 / 3000))
    ended = begun + int(rng.lognormvariate(7.5, 1.5))
    state = state or rng.choice(STATES)
    gpus = "" if rng.random() < 0.1 else f",gres/gpu:{kind}={n_gpus},gres/gpu={n_gpus}"
    tres = f"billing={n_gpus * 8},cpu={n_gpus * 8}{gpus},mem={n_gpus * 64}G,node=1"
    never_ran = state.startswith("CANCELLED") and rng.random() < 0.4
    times = f"{submit}|{eligible}|{'None' if never_ran else begun}|{ended}"
    name = rng.choice(NAMES)
    user = f"user{rng.randint(1, 400)}"
    code = "0:0" if state == "COMPLETED" else "0:9" if "CANC" in state else f"{rng.randint(1, 3)}:0"
    yield (
        f"{job_id}|{raw_id}|{user}|{partition}|{tres}|{'' if never_ran else tres}|1|{times}|"
        f"{rng.choice([60, 240, 1440])}|{state}|{code}|"
        f"{'None assigned' if never_ran else f'{partition}n{rng.randint(1, 60)}'}||"
        f"/home/{user}/project|sbatch --gres=gpu:{n_gpus} job.sh|{name}\n"
    )
    if never_ran:
        return
    for step in ("batch", "extern"):
        yield (
            f"{job_id}.{step}|{raw_id}.{step}||||{tres}|1|{begun}|{begun}|{begun}|{ended}||"
            f"{state.split()[0]}|{code}|n1||||{step}\n"
        )


def write_json(path: Path, n_jobs: int, template: Path, start: float) -> None:
    """Write what `sacct --json` would of so many jobs, from one that it really printed."""
    job = json.loads(template.read_text(encoding="utf-8"))["jobs"][1]
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"jobs": [')
        for i in range(n_jobs):
            submit = int(start + i * 60)
            job["job_id"] = 1 + i
            job["time"].update(
                submission=submit, eligible=submit, start=submit + 9, end=submit + 900
            )
            stream.write(("," if i else "") + json.dumps(job, indent=2))
        stream.write("]}\n")


def run(store: Path, dump: Path) -> Run:
    """Read a dump with the command, in a process of its own."""
    words = [sys.executable, "-c", PROGRAM, "ingest", "sacct", "--json"]
    began = time.monotonic()
    process = subprocess.Popen(
        [*words, "--store", str(store), "--file", str(dump)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, told
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(time.monotonic() - began, cpu_s, usage.ru_maxrss / 1024, told)


def show(what: str, done: Run) -> None:
    """Print a line of the table."""
    told = done.told
    print(
        f"{what:28} {done.elapsed_s:6.2f} s, {done.cpu_s:6.2f} s of a processor, "
        f"{done.peak_mib:4.0f} MiB: {told['jobs']} jobs with GPUs, {told['new_or_changed']} new, "
        f"{told['bad_rows']} bad rows"
    )


def main() -> None:
    """Measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, default=500_000)
    arguments.add_argument("--json-jobs", type=int, default=20_000)
    options = arguments.parse_args()
    start = time.time() - 364 * DAY_S
    template = ROOT / "tests" / "fixtures" / "slurm" / "24.11" / "sacct.json"
    with tempfile.TemporaryDirectory() as folder:
        store, dump, listed = (Path(folder, name) for name in ("o.db", "sacct.txt", "sacct.json"))
        write_dump(dump, options.jobs, seed=1, first_id=1, start=start)
        print(f"{options.jobs} jobs with their steps, {dump.stat().st_size / 1e6:.0f} MB")
        show("the first time", run(store, dump))
        show("again", run(store, dump))
        day = Path(folder, "day.txt")
        write_dump(day, 1400, seed=2, first_id=10_000_000, start=start + 363 * DAY_S)
        with dump.open("ab") as stream:
            stream.write(day.read_bytes().partition(b"\n")[2])
        show("with a day more in it", run(store, dump))
        dump.rename(dump.with_suffix(".copy"))
        show("all of it under another name", run(store, dump.with_suffix(".copy")))
        with sqlite3.connect(store) as connection:
            for table in ("jobs", "demand"):
                (n,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                print(f"{n} rows in {table}")
        print(f"database {store.stat().st_size / 1e6:.0f} MB")
        write_json(listed, options.json_jobs, template, start)
        print(f"{options.json_jobs} jobs as JSON, {listed.stat().st_size / 1e6:.0f} MB")
        show("the first time", run(Path(folder, "json.db"), listed))


if __name__ == "__main__":
    main()
