"""The throwaway Slurm itself, on the Slurm of this machine."""

from __future__ import annotations

import pytest

from omnipilot_slurm.sandbox import DEFAULT_NODES

pytestmark = pytest.mark.slurm

SERVE_AND_STEP = """#!/bin/bash
vllm serve org/model --tensor-parallel-size 2
srun python -m vllm.entrypoints.openai.api_server --model org/model
"""


@pytest.mark.parametrize("node", DEFAULT_NODES, ids=lambda node: node.name)
def test_a_job_of_each_partition_sees_its_gpus_and_so_does_its_srun_step(slurm, node):
    answer = slurm.submit(
        [f"--partition={node.gres_type}", f"--gres=gpu:{node.gres_type}:2"], script=SERVE_AND_STEP
    )
    assert slurm.wait(answer.job_id).state == "COMPLETED", answer
    batch, step = slurm.records(answer.job_id)
    assert batch.argv == ("vllm", "serve", "org/model", "--tensor-parallel-size", "2")
    assert step.argv == ("vllm.entrypoints.openai.api_server", "--model", "org/model")
    assert (batch.step_id, step.step_id) == (None, "0")
    for start in (batch, step):
        assert start.cuda_visible_devices == "0,1"
        assert start.node == node.name
        assert start.user == "nobody"
        assert start.slurm["SLURM_JOB_PARTITION"] == node.gres_type


def test_the_stand_in_is_found_whatever_the_submitters_environment(slurm):
    args = ["--export=NONE", "--gpus=1"]
    answer = slurm.submit(args, script=SERVE_AND_STEP, env={"PATH": "/usr/bin:/bin"})
    slurm.wait(answer.job_id)
    assert [start.argv[0] for start in slurm.records(answer.job_id)] == [
        "vllm",
        "vllm.entrypoints.openai.api_server",
    ]
