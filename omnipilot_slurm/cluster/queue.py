"""What `squeue` prints, read into how long each partition's queue is.

In: text in the form of FORMAT. Out: QueueFacts by partition. Called by commands.py; pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster.nodes import count_gpus
from omnipilot_slurm.cluster_facts import QueueFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = ",".join(
    f"{column}:|"
    for column in (
        "Partition", "StateCompact", "NumNodes", "NumTasks", "tres-alloc", "tres-per-job",
        "tres-per-node", "tres-per-task", "Reason",
    )
)  # fmt: skip
_N_COLUMNS = FORMAT.count(":|")
_ALL_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
#: reasons for which a job waits whatever is free
_NOT_QUEUED = ("JobHeld", "Dependency", "BeginTime", "PartitionDown", "PartitionInactive")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One line of squeue; an array that waits is one."""

    partitions: tuple[str, ...]
    is_running: bool
    n_gpus: int


def parse_queue(text: str) -> dict[str, QueueFacts]:
    """Read `squeue --Format` output; jobs that are held or wait for other jobs do not count."""
    jobs = list(_jobs(text.splitlines()))
    names = dict.fromkeys(name for job in jobs for name in job.partitions)
    return {name: _facts([job for job in jobs if name in job.partitions]) for name in names}


def _facts(jobs: list[QueuedJob]) -> QueueFacts:
    pending = [job for job in jobs if not job.is_running]
    return QueueFacts(
        n_running_jobs=len(jobs) - len(pending),
        n_pending_jobs=len(pending),
        n_pending_gpus=sum(job.n_gpus for job in pending),
    )


def _jobs(lines: Iterable[str]) -> Iterator[QueuedJob]:
    for line in lines:
        cells = line.split("|")
        # a job's free text is not among the columns, so a line with others is not a job's
        if len(cells) < _N_COLUMNS:
            continue
        partition, state, nodes, tasks, tres, per_job, per_node, per_task, reason = cells[:9]
        if state not in ("PD", "R") or (state == "PD" and reason.startswith(_NOT_QUEUED)):
            continue
        tracked = _ALL_GPUS.search(tres)
        yield QueuedJob(
            partitions=tuple(partition.split(",")),
            is_running=state == "R",
            n_gpus=int(tracked[1])
            if tracked
            else _gpus(per_job) + _gpus(per_node) * _count(nodes) + _gpus(per_task) * _count(tasks),
        )


def _gpus(tres: str) -> int:
    return sum(count_gpus(tres).values())


def _count(text: str) -> int:
    """Return the least of a count or range: `2`, `1-4`."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 1
