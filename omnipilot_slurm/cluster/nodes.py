"""Single nodes, and how they become shapes: alike ones counted together.

In: nodes as a source read them. Out: NodeShape records. Called by reader.py; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster_facts import UNTYPED, FreeNodes, NodeShape, NodeState
from omnipilot_slurm.script.tres import parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: marks that scontrol and sinfo put behind a state (not responding, powered down, rebooting, ...)
_MARKS = "*~#!%$@^-"
_DEAD = frozenset({"DOWN", "ERROR", "FAILED", "FUTURE", "INVAL", "UNKNOWN"})
_DEAD_FLAGS = frozenset({"DOWN", "NOT_RESPONDING", "INVALID_REG", "FUTURE"})
_CLOSED = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "MAINTENANCE", "RESERVED"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; `used_` is what running jobs hold of it."""

    name: str
    partitions: tuple[str, ...]
    gpus: Mapping[str, int]
    used_gpus: Mapping[str, int]
    cpus: int
    used_cpus: int
    memory_mib: int
    used_memory_mib: int
    features: frozenset[str]
    state: NodeState


def node_state(text: str) -> NodeState:
    """Return what Slurm's state means for new jobs: `MIXED+PLANNED`, `IDLE+DRAIN`, `DOWN*`.

    Powered-down nodes of a cloud are up: a job wakes them.
    """
    base, *flags = text.strip().upper().split("+")
    is_silent = base.endswith("*")
    base = base.rstrip(_MARKS)
    if is_silent or base in _DEAD or not _DEAD_FLAGS.isdisjoint(flags):
        return NodeState.DOWN
    return NodeState.UP if _CLOSED.isdisjoint([base, *flags]) else NodeState.DRAINED


def count_gpus(gres: str) -> dict[str, int]:
    """Return the GPUs in a node's gres list by type: `gpu:a100:4(S:0-1),mps:400` is {a100: 4}."""
    counts: dict[str, int] = {}
    for entry in parse_gres(gres) or ():
        if entry.name == "gpu":
            gres_type = entry.type or UNTYPED
            counts[gres_type] = counts.get(gres_type, 0) + entry.count
    return counts


def shapes(nodes: Iterable[Node]) -> tuple[NodeShape, ...]:
    """Group nodes that are alike, in the order in which the first of each appears."""
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        alike = (frozenset(node.gpus.items()), node.cpus, node.memory_mib, node.features)
        groups.setdefault((alike, node.state), []).append(node)
    return tuple(_shape(alike) for alike in groups.values())


def _shape(nodes: list[Node]) -> NodeShape:
    first = nodes[0]
    return NodeShape(
        n_nodes=len(nodes),
        gpus=first.gpus,
        cpus=first.cpus,
        memory_mib=first.memory_mib,
        features=first.features,
        state=first.state,
        free=_free(nodes) if first.state is NodeState.UP else (),
    )


def _free(nodes: list[Node]) -> tuple[FreeNodes, ...]:
    groups: dict[frozenset[tuple[str, int]], list[Node]] = {}
    for node in nodes:
        groups.setdefault(frozenset(_free_gpus(node).items()), []).append(node)
    rows = [
        FreeNodes(
            n_nodes=len(alike),
            gpus=_free_gpus(alike[0]),
            cpus=max(0, min(node.cpus - node.used_cpus for node in alike)),
            memory_mib=max(0, min(node.memory_mib - node.used_memory_mib for node in alike)),
        )
        for alike in groups.values()
    ]
    return tuple(sorted(rows, key=lambda row: sum(row.gpus.values()), reverse=True))


def _free_gpus(node: Node) -> dict[str, int]:
    return {kind: max(0, n - node.used_gpus.get(kind, 0)) for kind, n in node.gpus.items()}
