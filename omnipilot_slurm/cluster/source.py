"""Where facts of a cluster come from: one interface, and the command line tools behind it.

In: nothing but the Slurm that this process's environment names. Out: records. Called by reader.py
in the daemon's loading thread; each call may take seconds, and costs slurmctld a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.cluster import limits, queue, runner, scontrol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.cluster.nodes import Node
    from omnipilot_slurm.cluster.scontrol import Controller, JobDefaults
    from omnipilot_slurm.cluster_facts import PartitionFacts, QosLimits, QueueFacts

_PATIENCE_S = 10.0


class Source(Protocol):
    """Reads a cluster; everything raises SlurmError when Slurm does not answer."""

    def controller(self) -> Controller:
        """Return slurmctld's own settings."""

    def partitions(self, cluster: JobDefaults) -> tuple[PartitionFacts, ...]:
        """Return the partitions, hidden ones too, without their nodes."""

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""

    def qos(self) -> tuple[QosLimits, ...]:
        """Return the limits of each QOS; raises SlurmError where there is no accounting."""

    def queue(self) -> Mapping[str, QueueFacts]:
        """Return each partition's queue; takes a lock on the job table, so ask seldom."""


class CommandSource:
    """Slurm's command line tools; `env` None is this process's environment."""

    def __init__(
        self, *, timeout_s: float = _PATIENCE_S, env: Mapping[str, str] | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._env = env

    def controller(self) -> Controller:
        """Return slurmctld's own settings."""
        return scontrol.parse_config(self._ask("scontrol", "show", "config"))

    def partitions(self, cluster: JobDefaults) -> tuple[PartitionFacts, ...]:
        """Return the partitions, without their nodes."""
        text = self._ask("scontrol", "--all", "show", "partition", "--oneliner")
        return scontrol.parse_partitions(text, cluster)

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        words = ("scontrol", "--all", "--details", "show", "node", "--oneliner")
        return scontrol.parse_nodes(self._ask(*words))

    def qos(self) -> tuple[QosLimits, ...]:
        """Return the limits of each QOS."""
        columns = f"format={','.join(limits.COLUMNS)}"
        return limits.parse_qos(self._ask("sacctmgr", "--parsable2", "show", "qos", columns))

    def queue(self) -> Mapping[str, QueueFacts]:
        """Return each partition's queue."""
        states = "--states=PENDING,RUNNING"
        words = ("squeue", "--all", "--noheader", states, f"--Format={queue.FORMAT}")
        return queue.parse_queue(self._ask(*words))

    def _ask(self, *words: str) -> str:
        return runner.ask(words, env=self._env, timeout_s=self._timeout_s)
