"""`make demo`: a throwaway Slurm, a few jobs as users write them, and what sbatch answers each.

Everything that is started is stopped again, also after Ctrl-C.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox import Sandbox
from omnipilot_slurm.sandbox.pilot import Pilot


@dataclass(frozen=True)
class Sample:
    """One job: what its user thinks, sbatch's options, the line that matters."""

    title: str
    options: tuple[str, ...]
    line: str


SAMPLES = (
    Sample("a job without vLLM is not even looked at", ("--gres=gpu:a100:1",), "hostname"),
    Sample(
        "70B in bf16 on one A100 of 40 GB: it cannot start there",
        ("--gres=gpu:a100:1",),
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192",
    ),
    Sample(
        "two GPUs, but vLLM is not told to use both",
        ("--gres=gpu:a100:2",),
        "vllm serve Qwen/Qwen2.5-7B-Instruct",
    ),
    Sample(
        "three GPUs for 32 attention heads",
        ("--gres=gpu:a100:3",),
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 3",
    ),
    Sample(
        "a model that nobody has described",
        ("-p", "h100", "--gres=gpu:h100:1"),
        "vllm serve my-lab/secret-13b",
    ),
    Sample(
        "a user who wants to be left alone",
        ("--gres=gpu:a100:1", "--comment", "omnipilot=off"),
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192",
    ),
)


def main() -> int:
    """Run the samples; 0 if every sbatch came back, 1 where Slurm does not start here."""
    # not below /tmp/<user>: jobs run as another account, which must be able to enter
    folder = Path(tempfile.mkdtemp(prefix="omnipilot-demo-"))
    folder.chmod(0o755)
    sandbox = Sandbox(folder, pilot=Pilot())
    try:
        print(f"bringing up a throwaway Slurm in {folder} ...", flush=True)
        print(f"up after {sandbox.up():.1f} s\n")
        for sample in SAMPLES:
            show(sandbox, sample)
    except SandboxError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    finally:
        sandbox.down()
        shutil.rmtree(folder)
    print("everything is shut down again")
    return 0


def show(sandbox: Sandbox, sample: Sample) -> None:
    """Submit one sample as an ordinary user, show the answer and what ran."""
    print(f"== {sample.title}\n$ sbatch {' '.join(sample.options)} job.sh    # {sample.line}")
    answer = sandbox.submit(sample.options, script=f"#!/bin/bash\n{sample.line}\n")
    print((answer.stderr + answer.stdout).rstrip())
    if answer.job_id is not None:
        job = sandbox.wait(answer.job_id)
        for start in sandbox.records(answer.job_id):
            print(
                f"-> ran in partition {job.partition} with GPUs {start.cuda_visible_devices}:"
                f" {' '.join(start.argv)}"
            )
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
