"""Whether Slurm would take a job in a partition, with so many GPUs: every rule that refuses one.

In: a submission, a pool, a number of GPUs. Out: None, or the Reason that forbids it. Called for
each arm before it is proposed: a rewrite that Slurm then refuses is a defect.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnipilot_slurm.cluster_facts import PartitionFacts, QosLimits, Snapshot
    from omnipilot_slurm.decide.pools import GpuPool
    from omnipilot_slurm.records import Submission

from omnipilot_slurm.records import Reason

_WORD: Final = re.compile(r"^[\w.:=+-]+$")


def objection(
    submission: Submission, pool: GpuPool, n_gpus: int, snapshot: Snapshot
) -> Reason | None:
    """Return why this job may not run with `n_gpus` GPUs of a pool on one node, None if it may."""
    checks = (
        _partition_objections(submission, pool.partition),
        _node_objections(submission, pool, n_gpus),
        _qos_objections(submission, pool, n_gpus, snapshot),
    )
    text = next((text for check in checks for text in check), None)
    return None if text is None else Reason(code="not_allowed", text=text)


def _partition_objections(submission: Submission, part: PartitionFacts) -> Iterator[str]:
    name = part.name
    if not part.is_up or part.root_only or part.needs_reservation:
        yield f"partition {name} takes no jobs"
    if submission.partitions is not None and name not in submission.partitions:
        yield f"partition {name} is not open to this user"
    if part.allow_submit_hosts is not None:
        # which host a job comes from is not told to a plugin's daemon
        yield f"partition {name} takes jobs of some hosts only"
    if not _group_allowed(submission, part):
        yield f"partition {name} is for other groups"
    account = submission.account or submission.default_account
    if not _listed(account, part.allow_accounts, part.deny_accounts):
        yield f"partition {name} does not take {_one('account', account)}"
    qos = submission.qos or submission.default_qos
    if not _listed(qos, part.allow_qos, part.deny_qos):
        yield f"partition {name} does not take {_one('QOS', qos)}"
    limit = submission.time_limit_min
    if limit is not None and part.max_time_min is not None and limit > part.max_time_min:
        yield f"partition {name} ends jobs after {part.max_time_min} min, {limit} min are asked"
    if part.min_nodes > 1 or (part.max_nodes is not None and part.max_nodes < 1):
        yield f"partition {name} takes no job of one node"


def _group_allowed(submission: Submission, part: PartitionFacts) -> bool:
    if part.allow_groups is None:
        return True
    if submission.groups is not None:
        return bool(part.allow_groups & submission.groups)
    return submission.partitions is not None


def _listed(name: str | None, allowed: frozenset[str] | None, denied: frozenset[str]) -> bool:
    if name is None:
        return allowed is None and not denied
    return (allowed is None or name in allowed) and name not in denied


def _one(kind: str, name: str | None) -> str:
    return f"{kind} {name}" if name else f"jobs whose {kind} is not known"


def _node_objections(submission: Submission, pool: GpuPool, n_gpus: int) -> Iterator[str]:
    part, shape = pool.partition, pool.shape
    if n_gpus > pool.n_per_node:
        yield f"nodes of {part.name} have {pool.n_per_node} GPUs"
    if not satisfies(submission.features, shape.features):
        yield f"nodes of {part.name} do not satisfy constraint {submission.features}"
    asked = need_of(submission, part, n_gpus)
    cpu_limit = min(filter(None, (shape.cpus, part.max_cpus_per_node)))
    if asked.cpus > cpu_limit:
        yield f"nodes of {part.name} have {cpu_limit} CPUs, {asked.cpus} are asked"
    memory_limit = min(filter(None, (shape.memory_mib, part.max_mem_per_node_mib)))
    if asked.memory_mib > memory_limit:
        yield f"nodes of {part.name} have {memory_limit} MiB, {asked.memory_mib} MiB are asked"


class NodeNeed(NamedTuple):
    """What a job asks of one node besides GPUs."""

    cpus: int
    memory_mib: int


def need_of(submission: Submission, part: PartitionFacts, n_gpus: int) -> NodeNeed:
    """Return the CPUs and memory that a job would ask of a node of a partition with `n_gpus`."""
    tasks = submission.num_tasks or submission.ntasks_per_node or 1
    per_gpu = per_tres(submission.cpus_per_tres) or part.default_cpus_per_gpu or 0
    asked = (submission.cpus_per_task or 1) * tasks
    least = max(submission.min_cpus or 0, submission.pn_min_cpus or 0)
    cpus = max(asked, per_gpu * n_gpus, least)
    memory_mib = _memory_mib(submission, part, n_gpus, cpus)
    if part.max_mem_per_cpu_mib:
        # Slurm gives a job that asks for more memory per CPU so many more CPUs
        cpus = max(cpus, -(-memory_mib // part.max_mem_per_cpu_mib))
    return NodeNeed(cpus, memory_mib)


def _memory_mib(submission: Submission, part: PartitionFacts, n_gpus: int, cpus: int) -> int:
    per_gpu = per_tres(submission.mem_per_tres)
    if per_gpu is not None:
        return per_gpu * n_gpus
    if submission.min_mem_per_node_mib is not None:
        return submission.min_mem_per_node_mib
    if submission.min_mem_per_cpu_mib is not None:
        return submission.min_mem_per_cpu_mib * cpus
    if part.default_mem_per_gpu_mib is not None:
        return part.default_mem_per_gpu_mib * n_gpus
    if part.default_mem_per_node_mib is not None:
        return part.default_mem_per_node_mib
    return (part.default_mem_per_cpu_mib or 0) * cpus


@lru_cache(maxsize=1024)
def per_tres(text: str | None) -> int | None:
    """Return the number of `gres:gpu:N` or `gres/gpu:N` (--cpus-per-gpu, --mem-per-gpu in MiB)."""
    match = re.search(r"(?:^|[:/=])(\d+)$", text or "")
    return int(match[1]) if match else None


def satisfies(constraint: str | None, features: frozenset[str]) -> bool:
    """Return whether a node with `features` satisfies `a&b`, `a|b` or `[a|b]`.

    As Slurm does, from left to right. False for forms that count, exclude or nest: what cannot be
    judged is not proposed.
    """
    text = (constraint or "").strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if not text:
        return True
    first, *rest = re.split(r"([&|,])", text)
    words = [word.strip() for word in (first, *rest[1::2])]
    if not all(_WORD.match(word) for word in words):
        return False
    holds = words[0] in features
    for joint, word in zip(rest[::2], words[1:], strict=True):
        holds = holds or word in features if joint == "|" else holds and word in features
    return holds


def _qos_objections(
    submission: Submission, pool: GpuPool, n_gpus: int, snapshot: Snapshot
) -> Iterator[str]:
    if "limits" not in snapshot.enforces:
        return
    names = (submission.qos or submission.default_qos, pool.partition.qos)
    need = need_of(submission, pool.partition, n_gpus)
    asked = {
        "gres/gpu": n_gpus,
        f"gres/gpu:{pool.gres_type}": n_gpus,
        "cpu": need.cpus,
        "mem_mib": need.memory_mib,
        "node": 1,
    }
    for limits in snapshot.qos:
        if limits.name not in names:
            continue
        wall, wanted = limits.max_wall_min, submission.time_limit_min
        if wall is not None and wanted is not None and wanted > wall:
            yield f"QOS {limits.name} allows {wall} min"
        for tres, amount in asked.items():
            most, least = _tightest(limits, tres), limits.min_tres_per_job.get(tres, 0)
            if most is not None and amount > most:
                yield f"QOS {limits.name} allows {most} {_called(tres)}"
            if amount < least:
                yield f"QOS {limits.name} asks for {least} {_called(tres)} at least"


def _tightest(limits: QosLimits, tres: str) -> int | None:
    """Return the least limit of a TRES that one job of one node can meet, None where none is."""
    tables: tuple[Mapping[str, int], ...] = (
        limits.max_tres_per_job,
        limits.max_tres_per_node,
        limits.max_tres_per_user,
        limits.max_tres_per_account,
        limits.group_tres,
    )
    return min((table[tres] for table in tables if tres in table), default=None)


def _called(tres: str) -> str:
    """Return a TRES as people call it."""
    names = {"cpu": "CPUs", "mem_mib": "MiB", "node": "nodes"}
    return names.get(tres, "GPUs")
