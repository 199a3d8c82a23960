"""A past job with its script, as the submission that it was and the server that it started. Pure.

In: a script, and what the accounting says of its job. Out: Submissions for decide(). Called by
replay and by recognition. What was exported at submission is not kept by Slurm: variables count as
not set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import directives

if TYPE_CHECKING:
    from omnipilot_slurm.ingest.sacct_job import SacctJob
    from omnipilot_slurm.records import Submission

_ASKED: Final = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A script, under the id of its job or the name of its file."""

    id: str
    script: bytes
    accounted: SacctJob | None = None


def as_submitted(past: PastJob) -> Submission:
    """Return the submission: the script's own words, else what its job asked for or got."""
    submission, _ = directives.submission_of(past.script)
    job = past.accounted
    if job is None:
        return submission
    asks = any(getattr(submission, name) for name in _ASKED)
    return replace(
        submission if asks else _as_granted(submission, job),
        partition=submission.partition or job.partition,
        time_limit_min=_minutes(job),
        user_name=job.user or None,
        name=job.name or None,
    )


def as_run(past: PastJob, job: SacctJob) -> Submission:
    """Return the submission that asks for exactly what the job got."""
    return replace(
        _as_granted(as_submitted(past), job), partition=job.partition, min_nodes=job.n_nodes
    )


def _as_granted(submission: Submission, job: SacctJob) -> Submission:
    per_node = max(1, job.n_gpus // max(1, job.n_nodes))
    kind = f"{job.gres_type}:" if job.gres_type else ""
    return replace(
        submission,
        tres_per_node=f"gres/gpu:{kind}{per_node}",
        tres_per_job=None,
        tres_per_task=None,
        tres_per_socket=None,
        ntasks_per_gpu=None,
    )


def _minutes(job: SacctJob) -> int | None:
    return None if job.time_limit_min is None else max(1, int(job.time_limit_min))
