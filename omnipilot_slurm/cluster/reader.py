"""Snapshots of a cluster, as fresh as each part of it is worth.

In: a Source and the time. Out: a Snapshot. Called by the daemon's loading thread at every poll,
and by `omnipilot` commands that look at the cluster themselves; never from a decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster import nodes as node_records
from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.cluster.nodes import Node
    from omnipilot_slurm.cluster.scontrol import Controller
    from omnipilot_slurm.cluster.source import Source
    from omnipilot_slurm.cluster_facts import PartitionFacts, QosLimits, QueueFacts

#: how often what seldom changes (limits, settings) and what is dear to ask (the queue) is read
SLOW_POLL_S = 300.0


class ClusterReader:
    """Reads partitions and nodes at every call, the rest every `slow_poll_s` seconds."""

    def __init__(self, source: Source, *, slow_poll_s: float = SLOW_POLL_S) -> None:
        self._source = source
        self._slow_poll_s = slow_poll_s
        self._slow_read_at = float("-inf")
        self._controller: Controller | None = None
        self._qos: tuple[QosLimits, ...] = ()
        self._queue: Mapping[str, QueueFacts] = {}

    def read(self, now: float) -> Snapshot:
        """Return the cluster at `now` (Unix seconds).

        Raises: SlurmError when Slurm does not answer.
        """
        controller = self._controller
        if controller is None or now >= self._slow_read_at + self._slow_poll_s:
            controller = self._controller = self._source.controller()
            self._qos = self._read_qos()
            self._queue = self._source.queue()
            self._slow_read_at = now
        return Snapshot(
            partitions=join(
                self._source.partitions(controller.defaults), self._source.nodes(), self._queue
            ),
            taken_at=now,
            cluster_name=controller.cluster_name,
            slurm_version=controller.slurm_version,
            enforces=controller.enforces,
            qos=self._qos,
        )

    def _read_qos(self) -> tuple[QosLimits, ...]:
        try:
            return self._source.qos()
        except SlurmError:
            # without slurmdbd there are no limits, and when it is down slurmctld goes on as well
            return self._qos


def join(
    partitions: Sequence[PartitionFacts],
    nodes: Sequence[Node],
    queue: Mapping[str, QueueFacts],
) -> tuple[PartitionFacts, ...]:
    """Return the partitions with the shapes of their nodes and their queue."""
    members: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.partitions:
            members.setdefault(name, []).append(node)
    return tuple(
        replace(
            partition,
            shapes=node_records.shapes(members.get(partition.name, ())),
            queue=queue.get(partition.name),
        )
        for partition in partitions
    )
