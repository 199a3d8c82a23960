"""The SLURM_* variables that a job will see, as far as they follow from its request.

In: a submission and its GPU request. Out: values by name. Called by serving, and again after a
rewrite to see what follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.script.tres import GpuRequest

#: variables whose value moves with the number of GPUs on a node
FOLLOWS_GPUS: Final = frozenset(
    "SLURM_GPUS_ON_NODE SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_JOB_GPUS"
    " SLURM_STEP_GPUS CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES".split()
)
#: devices of one node that are worth listing
_MOST_DEVICES: Final = 64
#: variables that list the job's devices on a node
DEVICE_LISTS: Final = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)
_FROM_SBATCH: Final = ("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK")
_ALWAYS: Final = (
    "SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_NODELIST SLURM_NODE_ALIASES"
    " SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT SLURM_JOB_QOS"
    " SLURM_JOB_USER SLURM_JOB_UID SLURM_JOB_GID SLURM_JOB_CPUS_PER_NODE SLURM_CPUS_ON_NODE"
    " SLURM_TASKS_PER_NODE SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_CLUSTER_NAME SLURM_CONF"
    " SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_TASK_PID SLURM_JOB_START_TIME"
    " SLURM_JOB_END_TIME SLURM_JOB_GPUS SLURM_GPUS_ON_NODE SLURM_RESTART_COUNT SLURM_TMPDIR"
    " SLURM_EXPORT_ENV SLURM_GET_USER_ENV SLURM_PRIO_PROCESS SLURM_WORKING_CLUSTER"
).split()
_PREFIXES: Final = ("SLURM_ARRAY_", "SLURM_STEP_", "SLURM_HET_", "SLURM_TOPOLOGY_", "SLURMD_")


def is_output_variable(name: str) -> bool:
    """Return whether Slurm sets a variable in every job (of its kind), whatever was asked.

    SLURM_GPUS, SLURM_NTASKS and kin exist only where the option of that name was given.
    """
    return name in _ALWAYS or name.startswith(_PREFIXES)


def slurm_variables(
    submission: Submission, request: GpuRequest, *, complete: bool
) -> dict[str, str]:
    """Return the variables that slurmd and sbatch will set.

    `complete`: the submission carries all SLURM_GPUS* that sbatch has set. SLURM_GPUS exists only
    with --gpus, SLURM_GPUS_PER_NODE only with --gpus-per-node; SLURM_GPUS_ON_NODE in every job
    that holds GPUs.
    """
    nodes = str(request.n_nodes)
    found = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    counts = {
        "SLURM_NTASKS": submission.num_tasks,
        "SLURM_NPROCS": submission.num_tasks,
        "SLURM_NTASKS_PER_NODE": submission.ntasks_per_node,
        "SLURM_CPUS_PER_TASK": submission.cpus_per_task,
    }
    found |= {name: str(count) for name, count in counts.items() if count}
    if request.per_node:
        found["SLURM_GPUS_ON_NODE"] = str(request.per_node)
        if request.per_node <= _MOST_DEVICES:
            found |= dict.fromkeys(DEVICE_LISTS, ",".join(map(str, range(request.per_node))))
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
