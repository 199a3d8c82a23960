"""How long a job would wait for an arm: nothing where nodes are free, else as such jobs do.

In: QueueWaits, an arm, its pool and what the job asks of a node. Out: a Wait, never one number
alone. Called by decide for each arm.

That no node is free is evidence as well: then only jobs that did wait are compared with. Work that
is pending in the partition widens the interval either way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster_facts import UNTYPED, NodeState
from omnipilot_slurm.decide.wait_history import AT_ONCE_H, Wait

if TYPE_CHECKING:
    from omnipilot_slurm.cluster_facts import PartitionFacts
    from omnipilot_slurm.decide.pools import GpuPool
    from omnipilot_slurm.decide.wait_history import QueueWaits
    from omnipilot_slurm.records import Arm


def queue_wait(
    waits: QueueWaits, arm: Arm, pool: GpuPool, *, cpus: int, memory_mib: int, is_live: bool
) -> Wait:
    """Return how long a job would wait for an arm, each of its nodes giving so many CPUs and MiB.

    `is_live` False: the snapshot is an example, which does not tell what is free.
    """
    if not is_live:
        return waits.of_all.of(pool.partition.name, arm.n_gpus, pool.gres_type)
    wait = waits.of_waiting.of(pool.partition.name, arm.n_gpus, pool.gres_type)
    per_node = -(-arm.n_gpus // arm.n_nodes)
    if n_free_nodes(pool, per_node, cpus, memory_mib) >= arm.n_nodes:
        return _free_now(wait, pool)
    return _stretched(wait, pool.partition)


def n_free_nodes(pool: GpuPool, n_gpus: int, cpus: int, memory_mib: int) -> int:
    """Return how many nodes of a pool have all that is asked of one node free now."""
    gres_type = pool.gres_type or UNTYPED
    if pool.partition.is_exclusive:
        n_gpus, cpus = pool.n_per_node, pool.shape.cpus
    return sum(
        free.n_nodes
        for free in pool.shape.free
        if free.gpus.get(gres_type, 0) >= n_gpus
        and free.cpus >= cpus
        and free.memory_mib >= memory_mib
    )


def _free_now(wait: Wait, pool: GpuPool) -> Wait:
    """Return the wait where nodes are free: none, but for what is pending before the job.

    The share of the free and pending GPUs that is pending is taken as the chance to come after it.
    """
    gres_type = pool.gres_type or UNTYPED
    n_free = sum(free.n_nodes * free.gpus.get(gres_type, 0) for free in pool.shape.free)
    n_pending = _n_pending(pool.partition)
    if not n_pending:
        now = "nodes are free now"
        return Wait(lo_h=0.0, mean_h=0.0, hi_h=AT_ONCE_H, n=0, assumed=False, source=now)
    share = n_pending / (n_pending + n_free)
    return replace(
        wait,
        lo_h=0.0,
        mean_h=share * wait.mean_h,
        hi_h=AT_ONCE_H + share * wait.hi_h,
        source=f"nodes are free now, {n_pending} GPUs are pending; {wait.source}",
    )


def _stretched(wait: Wait, partition: PartitionFacts) -> Wait:
    """Return the wait with its end put off as many times as the partition's GPUs are pending."""
    n_pending = _n_pending(partition)
    n_gpus = sum(
        shape.n_nodes * sum(shape.gpus.values())
        for shape in partition.shapes
        if shape.state is NodeState.UP
    )
    if not n_pending or not n_gpus:
        return wait
    source = f"{wait.source}; {n_pending} GPUs are pending"
    return replace(wait, hi_h=wait.hi_h * (1.0 + n_pending / n_gpus), source=source)


def _n_pending(partition: PartitionFacts) -> int:
    return 0 if partition.queue is None else partition.queue.n_pending_gpus
