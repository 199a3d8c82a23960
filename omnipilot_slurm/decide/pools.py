"""The GPUs of a cluster as a decision sees them: one pool per partition, node shape and GPU type.

In: a Snapshot and the site's map from Slurm's names to catalog GPUs. Out: GpuPools. Called once for
each state (not in the call) and read by eligibility and arms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster_facts import UNTYPED, NodeState
from omnipilot_slurm.script.tres import gpu_named_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from omnipilot_slurm.cluster_facts import NodeShape, PartitionFacts, Snapshot
    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.site_settings import GpuMap


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """GPUs of one type on nodes that are alike; `gres_type` None: Slurm does not type them."""

    partition: PartitionFacts
    shape: NodeShape
    gres_type: str | None
    gpu: GpuFacts
    n_per_node: int


def pools_of(
    snapshot: Snapshot,
    gpu_map: GpuMap,
    gpus: Mapping[str, GpuFacts],
    named: Callable[[str], str | None],
) -> tuple[GpuPool, ...]:
    """Return the pools of nodes that are up whose GPU is known.

    `named` gives the catalog id of a GPU name or alias, None where it is unknown or ambiguous.
    """
    pools = []
    for partition in snapshot.partitions:
        for shape in partition.shapes:
            for gres_type, count in sorted(shape.gpus.items()):
                gpu_id = _gpu_id(partition.name, shape.features, gres_type, gpu_map, named)
                gpu = gpus.get(gpu_id or "")
                if gpu is None or count < 1 or shape.state is not NodeState.UP:
                    continue
                pools.append(
                    GpuPool(
                        partition=partition,
                        shape=shape,
                        gres_type=None if gres_type == UNTYPED else gres_type,
                        gpu=gpu,
                        n_per_node=count,
                    )
                )
    return tuple(pools)


def _gpu_id(
    partition: str,
    features: Iterable[str],
    gres_type: str,
    gpu_map: GpuMap,
    named: Callable[[str], str | None],
) -> str | None:
    """Return the catalog id of a node's GPUs: the site's word first, then what names spell."""
    mapped = gpu_map.partition.get(partition)
    mapped = mapped or next((gpu_map.feature[f] for f in features if f in gpu_map.feature), None)
    mapped = mapped or gpu_map.gres.get(gres_type)
    if mapped is not None:
        return mapped
    if gres_type != UNTYPED:
        return named(gres_type)
    spelled = {gpu for text in (*features, partition) if (gpu := gpu_named_in(text))}
    return named(spelled.pop()) if len(spelled) == 1 else None
