"""What is known of a cluster at one moment: the records that cluster/ fills and core reads.

Snapshot -> PartitionFacts -> NodeShape -> FreeNodes, and the limits of each QOS beside them. Times
of jobs are in minutes, memory in MiB; None is no limit, or not set. GPUs are counted by Slurm's
own gres type; a GPU without a type counts as UNTYPED. Which catalog GPU a type, feature or
partition stands for is the site's `cluster.gpu_map`, not a fact of Slurm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: how GPUs are counted that Slurm knows without a type (`Gres=gpu:4`)
UNTYPED = "gpu"


class NodeState(StrEnum):
    """Whether nodes take jobs: yes, not for now (drained, reserved, in maintenance), or dead."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeNodes:
    """Nodes of one shape with exactly these GPUs free; CPUs and memory are the least of any."""

    n_nodes: int
    gpus: Mapping[str, int]
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Nodes that are alike, per node: `gpus` by gres type, what jobs may use of CPUs and memory.

    `free` is what was free when the snapshot was taken, the emptiest nodes first; only nodes that
    are up have anything free.
    """

    n_nodes: int
    gpus: Mapping[str, int]
    cpus: int
    memory_mib: int
    features: frozenset[str] = frozenset()
    state: NodeState = NodeState.UP
    free: tuple[FreeNodes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What waits and runs in a partition; a job that names several waits in each of them."""

    n_running_jobs: int
    n_pending_jobs: int
    n_pending_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition: who may use it, for how long, and which nodes it has.

    `is_up` is whether jobs start in it. None for a set of allowed names means everybody. Defaults
    and limits of memory are the partition's own, else the cluster's. `needs_reservation` and
    `root_only` partitions are closed to ordinary jobs, `is_exclusive` ones hand out whole nodes.
    """

    name: str
    shapes: tuple[NodeShape, ...] = ()
    is_up: bool = True
    is_default: bool = False
    is_hidden: bool = False
    is_exclusive: bool = False
    root_only: bool = False
    needs_reservation: bool = False
    max_time_min: int | None = None
    default_time_min: int | None = None
    min_nodes: int = 0
    max_nodes: int | None = None
    allow_accounts: frozenset[str] | None = None
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] | None = None
    deny_qos: frozenset[str] = frozenset()
    allow_groups: frozenset[str] | None = None
    allow_submit_hosts: frozenset[str] | None = None
    qos: str | None = None
    priority_tier: int = 1
    max_cpus_per_node: int | None = None
    max_mem_per_node_mib: int | None = None
    max_mem_per_cpu_mib: int | None = None
    default_mem_per_node_mib: int | None = None
    default_mem_per_cpu_mib: int | None = None
    default_mem_per_gpu_mib: int | None = None
    default_cpus_per_gpu: int | None = None
    queue: QueueFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLimits:
    """What one QOS allows, by TRES name (`cpu`, `node`, `gres/gpu`, `gres/gpu:h100`, ...).

    Memory is named `mem_mib`. A name that is absent is not limited. `flags` are Slurm's
    (`DenyOnLimit`: a job over a limit is refused rather than left waiting).
    """

    name: str
    max_wall_min: int | None = None
    max_tres_per_job: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_node: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_user: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_account: Mapping[str, int] = field(default_factory=dict)
    min_tres_per_job: Mapping[str, int] = field(default_factory=dict)
    group_tres: Mapping[str, int] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at `taken_at` (Unix seconds; None: an example, or written by hand).

    `enforces` are the words of AccountingStorageEnforce; limits of a QOS bind where `limits` is
    among them. `qos` is empty where there is no accounting. `gpu_map` gives catalog ids of GPUs by
    gres type in files that stand alone; the site's own `cluster.gpu_map` comes first.
    """

    partitions: tuple[PartitionFacts, ...]
    taken_at: float | None = None
    cluster_name: str | None = None
    slurm_version: str | None = None
    enforces: frozenset[str] = frozenset()
    qos: tuple[QosLimits, ...] = ()
    gpu_map: Mapping[str, str] = field(default_factory=dict)
