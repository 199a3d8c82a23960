"""The SLURM_* variables that a job will see, as far as they follow from its request.

In: a submission and its GPU request. Out: values by name. Called by serving, and again after a
rewrite to see what follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.script.tres import GpuRequest

#: variables whose value moves with the number of GPUs on a node
FOLLOWS_GPUS = frozenset(
    {
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS",
        "SLURM_GPUS_PER_NODE",
        "SLURM_JOB_GPUS",
        "SLURM_STEP_GPUS",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ROCR_VISIBLE_DEVICES",
    }
)
_FROM_SBATCH = ("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK")


def slurm_variables(
    submission: Submission, request: GpuRequest, *, complete: bool
) -> dict[str, str]:
    """Return the variables that slurmd and sbatch will set.

    `complete`: the submission carries all SLURM_GPUS* that sbatch has set. SLURM_GPUS exists only
    with --gpus, SLURM_GPUS_PER_NODE only with --gpus-per-node; SLURM_GPUS_ON_NODE in every job
    that holds GPUs.
    """
    found = {
        "SLURM_NNODES": str(request.n_nodes),
        "SLURM_JOB_NUM_NODES": str(request.n_nodes),
    }
    if submission.num_tasks:
        found |= {
            "SLURM_NTASKS": str(submission.num_tasks),
            "SLURM_NPROCS": str(submission.num_tasks),
        }
    if submission.ntasks_per_node:
        found["SLURM_NTASKS_PER_NODE"] = str(submission.ntasks_per_node)
    if submission.cpus_per_task:
        found["SLURM_CPUS_PER_TASK"] = str(submission.cpus_per_task)
    if request.per_node:
        devices = ",".join(map(str, range(request.per_node)))
        found["SLURM_GPUS_ON_NODE"] = str(request.per_node)
        for name in (
            "CUDA_VISIBLE_DEVICES",
            "GPU_DEVICE_ORDINAL",
            "SLURM_JOB_GPUS",
            "SLURM_STEP_GPUS",
        ):
            found[name] = devices
    if not complete:
        found |= _set_by_sbatch(submission, request)
    found |= {
        name: submission.environment[name]
        for name in _FROM_SBATCH
        if name in submission.environment
    }
    return found


def _set_by_sbatch(submission: Submission, request: GpuRequest) -> dict[str, str]:
    per_node = submission.tres_per_node if "gpus-per-node" in request.forms else None
    values = zip(
        _FROM_SBATCH, (submission.tres_per_job, per_node, submission.tres_per_task), strict=True
    )
    return {
        name: value.removeprefix("gres:").removeprefix("gres/").removeprefix("gpu:")
        for name, value in values
        if value
    }
