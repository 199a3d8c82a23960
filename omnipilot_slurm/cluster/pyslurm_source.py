"""Partitions and nodes through pyslurm, for sites that have the build that fits their Slurm.

In: the module pyslurm, whose release must equal Slurm's major.minor. Out: the records of
source.py; what is asked seldom still comes from the command line tools. Called by reader.py when
a site chooses it: it saves two processes per poll, nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.cluster.nodes import Node, count_gpus, node_state
from omnipilot_slurm.cluster.scontrol import JobDefaults
from omnipilot_slurm.cluster.source import CommandSource
from omnipilot_slurm.cluster_facts import PartitionFacts
from omnipilot_slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping


def load_pyslurm() -> Any:
    """Import pyslurm.

    Raises: SlurmError when it is not installed or was built for another Slurm.
    """
    try:
        return importlib.import_module("pyslurm")
    except (ImportError, RuntimeError) as error:
        raise SlurmError(
            f"pyslurm must be importable and of Slurm's own major.minor release, was not: {error}",
            hint="without it the command line tools are read, which work with every release",
        ) from error


class PyslurmSource(CommandSource):
    """CommandSource whose partitions and nodes come from the module `pyslurm`."""

    def __init__(
        self, pyslurm: Any, *, timeout_s: float = 10.0, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(timeout_s=timeout_s, env=env)
        self._pyslurm = pyslurm

    def partitions(self, cluster: JobDefaults) -> tuple[PartitionFacts, ...]:
        """Return the partitions, without their nodes."""
        rows = self._load(self._pyslurm.Partitions)
        return tuple(_partition(row, cluster) for row in rows.values())

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        return tuple(_node(row) for row in self._load(self._pyslurm.Nodes).values())

    def _load(self, collection: Any) -> Mapping[str, Any]:
        try:
            rows: Mapping[str, Any] = collection.load()
        except self._pyslurm.RPCError as error:
            raise SlurmError(f"slurmctld must answer pyslurm, did not: {error}") from error
        return rows


def _partition(row: Any, cluster: JobDefaults) -> PartitionFacts:
    limits = JobDefaults(
        mem_per_node_mib=_number(row.default_memory_per_node),
        mem_per_cpu_mib=_number(row.default_memory_per_cpu),
        max_mem_per_node_mib=_number(row.max_memory_per_node),
        max_mem_per_cpu_mib=_number(row.max_memory_per_cpu),
        mem_per_gpu_mib=_number(row.default_memory_per_gpu),
        cpus_per_gpu=_number(row.default_cpus_per_gpu),
    )
    partition = PartitionFacts(
        name=row.name,
        is_up=row.state == "UP",
        is_default=bool(row.is_default),
        is_hidden=bool(row.is_hidden),
        is_exclusive=row.oversubscribe == "EXCLUSIVE",
        root_only=bool(row.is_root_only),
        needs_reservation=bool(row.requires_reservation),
        max_time_min=_number(row.max_time_limit),
        default_time_min=_number(row.default_time),
        min_nodes=_number(row.min_nodes) or 0,
        max_nodes=_number(row.max_nodes),
        allow_accounts=_names(row.allowed_accounts),
        deny_accounts=_names(row.denied_accounts) or frozenset(),
        allow_qos=_names(row.allowed_qos),
        deny_qos=_names(row.denied_qos) or frozenset(),
        allow_groups=_names(row.allowed_groups),
        allow_submit_hosts=_names(row.allowed_submit_nodes),
        qos=row.qos or None,
        priority_tier=_number(row.priority_tier) or 1,
        max_cpus_per_node=_number(row.max_cpus_per_node),
    )
    return limits.over(cluster).on(partition)


def _node(row: Any) -> Node:
    cpus = _number(row.effective_cpus)
    return Node(
        name=row.name,
        partitions=tuple(row.partitions or ()),
        gpus=_gpus(row.configured_gres),
        used_gpus=_gpus(row.allocated_gres),
        cpus=(_number(row.total_cpus) or 0) if cpus is None else cpus,
        used_cpus=_number(row.allocated_cpus) or 0,
        memory_mib=(_number(row.real_memory) or 0) - (_number(row.memory_reserved_for_system) or 0),
        used_memory_mib=_number(row.allocated_memory) or 0,
        features=frozenset(row.available_features or ()),
        state=node_state(row.state),
    )


def _gpus(gres: Mapping[str, Any] | None) -> dict[str, int]:
    """Return GPUs by type from {"gpu:h100": 4}, or {"gpu:h100": {"count": 4, ...}} where in use."""
    entries = []
    for name, amount in (gres or {}).items():
        count = amount["count"] if isinstance(amount, dict) else amount
        entries.append(f"{name}:{count}")
    return count_gpus(",".join(entries))


def _number(value: Any) -> int | None:
    """Return a number; pyslurm says "UNLIMITED", or None, where there is none."""
    return None if value is None or value == "UNLIMITED" else int(value)


def _names(names: list[str] | None) -> frozenset[str] | None:
    return None if not names or names == ["ALL"] else frozenset(names)
