"""What `scontrol show ... -o` and `scontrol show config` print, read into records.

In: text. Out: nodes, partitions, and the settings of slurmctld. Called by commands.py; pure. The
form is the same from 22.05 to 26.05; keys come and go, so one that is absent means "not set".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster.nodes import Node, count_gpus, node_state
from omnipilot_slurm.cluster_facts import PartitionFacts
from omnipilot_slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*)=(\S*)")
_SETTING = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*=\s*(.*?)\s*$", re.MULTILINE)
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_NOT_SET = frozenset({"", "N/A", "NONE", "UNLIMITED", "INFINITE", "(NULL)", "NOTSET"})
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """What a job gets, and may have at most, of memory and CPUs; None: not set."""

    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    max_mem_per_node_mib: int | None = None
    max_mem_per_cpu_mib: int | None = None
    mem_per_gpu_mib: int | None = None
    cpus_per_gpu: int | None = None

    def over(self, cluster: JobDefaults) -> JobDefaults:
        """Return these with the cluster's where a partition has none.

        Per-node and per-CPU memory exclude each other, so they are taken over together.
        """
        own_memory = self.mem_per_node_mib is not None or self.mem_per_cpu_mib is not None
        own_max = self.max_mem_per_node_mib is not None or self.max_mem_per_cpu_mib is not None
        own_gpu = self.mem_per_gpu_mib is not None or self.cpus_per_gpu is not None
        memory = self if own_memory else cluster
        maximum = self if own_max else cluster
        gpu = self if own_gpu else cluster
        return JobDefaults(
            mem_per_node_mib=memory.mem_per_node_mib,
            mem_per_cpu_mib=memory.mem_per_cpu_mib,
            max_mem_per_node_mib=maximum.max_mem_per_node_mib,
            max_mem_per_cpu_mib=maximum.max_mem_per_cpu_mib,
            mem_per_gpu_mib=gpu.mem_per_gpu_mib,
            cpus_per_gpu=gpu.cpus_per_gpu,
        )

    def on(self, partition: PartitionFacts) -> PartitionFacts:
        """Return the partition with these as its own."""
        return replace(
            partition,
            max_mem_per_node_mib=self.max_mem_per_node_mib,
            max_mem_per_cpu_mib=self.max_mem_per_cpu_mib,
            default_mem_per_node_mib=self.mem_per_node_mib,
            default_mem_per_cpu_mib=self.mem_per_cpu_mib,
            default_mem_per_gpu_mib=self.mem_per_gpu_mib,
            default_cpus_per_gpu=self.cpus_per_gpu,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What of slurmctld's own settings bears on jobs."""

    cluster_name: str | None
    slurm_version: str | None
    enforces: frozenset[str]
    defaults: JobDefaults


def parse_config(text: str) -> Controller:
    """Read `scontrol show config`."""
    settings = dict(_SETTING.findall(text))
    return Controller(
        cluster_name=_word(settings.get("ClusterName")),
        slurm_version=_word(settings.get("SLURM_VERSION")),
        enforces=_names(settings.get("AccountingStorageEnforce")) or frozenset(),
        defaults=_defaults(settings),
    )


def parse_partitions(text: str, cluster: JobDefaults) -> tuple[PartitionFacts, ...]:
    """Read `scontrol --all show partition -o`; `cluster` are the defaults of slurm.conf.

    Raises: SlurmError when a value is not what its key stands for.
    """
    return tuple(_partition(pairs, cluster) for pairs in _lines(text, "PartitionName"))


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Read `scontrol --all --details show node -o`.

    GPUs in use come from GresUsed, which `--details` adds: AllocTRES counts only what accounting
    tracks. Raises: SlurmError when a value is not what its key stands for.
    """
    return tuple(_node(pairs) for pairs in _lines(text, "NodeName"))


def minutes(text: str | None) -> int | None:
    """Return a duration (`2-12:30:00`, `01:00:00`) in minutes, seconds rounded up; None: no limit.

    Raises: SlurmError when it is none.
    """
    word = _word(text)
    if word is None:
        return None
    found = _TIME.fullmatch(word)
    if found is None:
        raise SlurmError(f"a time must be like 2-12:30:00, was {word!r}")
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + mins + (seconds > 0)


def _lines(text: str, first_key: str) -> list[dict[str, str]]:
    """Split each line into pairs; free text (Reason, Comment, ...) stands last, so the first wins.

    Raises: SlurmError when a line is of something else.
    """
    rows = []
    for line in filter(str.strip, text.splitlines()):
        pairs: dict[str, str] = {}
        for key, value in _PAIR.findall(line):
            pairs.setdefault(key, value)
        if first_key not in pairs:
            raise SlurmError(f"scontrol must print {first_key}=..., printed {line[:_SHOWN]!r}")
        rows.append(pairs)
    return rows


def _partition(pairs: Mapping[str, str], cluster: JobDefaults) -> PartitionFacts:
    partition = PartitionFacts(
        name=pairs["PartitionName"],
        is_up=pairs.get("State", "UP") == "UP",
        is_default=_yes(pairs, "Default"),
        is_hidden=_yes(pairs, "Hidden"),
        is_exclusive=pairs.get("OverSubscribe") == "EXCLUSIVE",
        root_only=_yes(pairs, "RootOnly"),
        needs_reservation=_yes(pairs, "ReqResv"),
        max_time_min=minutes(pairs.get("MaxTime")),
        default_time_min=minutes(pairs.get("DefaultTime")),
        min_nodes=_number(pairs, "MinNodes") or 0,
        max_nodes=_number(pairs, "MaxNodes"),
        allow_accounts=_names(pairs.get("AllowAccounts")),
        deny_accounts=_names(pairs.get("DenyAccounts")) or frozenset(),
        allow_qos=_names(pairs.get("AllowQos")),
        deny_qos=_names(pairs.get("DenyQos")) or frozenset(),
        allow_groups=_names(pairs.get("AllowGroups")),
        allow_submit_hosts=_names(pairs.get("AllocNodes")),
        qos=_word(pairs.get("QoS")),
        priority_tier=_number(pairs, "PriorityTier") or 1,
        max_cpus_per_node=_number(pairs, "MaxCPUsPerNode"),
    )
    return _defaults(pairs).over(cluster).on(partition)


def _node(pairs: Mapping[str, str]) -> Node:
    total = _number(pairs, "CPUEfctv")
    return Node(
        name=pairs["NodeName"],
        partitions=tuple(filter(None, pairs.get("Partitions", "").split(","))),
        gpus=count_gpus(_word(pairs.get("Gres")) or ""),
        used_gpus=count_gpus(_word(pairs.get("GresUsed")) or ""),
        # CPUs that are set aside for the system do not count; CPUEfctv says so from 21.08
        cpus=_number(pairs, "CPUTot") or 0 if total is None else total,
        used_cpus=_number(pairs, "CPUAlloc") or 0,
        memory_mib=(_number(pairs, "RealMemory") or 0) - (_number(pairs, "MemSpecLimit") or 0),
        used_memory_mib=_number(pairs, "AllocMem") or 0,
        features=_names(pairs.get("AvailableFeatures")) or frozenset(),
        state=node_state(pairs.get("State", "UNKNOWN")),
    )


def _defaults(pairs: Mapping[str, str]) -> JobDefaults:
    per_gpu = dict(_PAIR.findall((pairs.get("JobDefaults") or "").replace(",", " ")))
    return JobDefaults(
        mem_per_node_mib=_number(pairs, "DefMemPerNode"),
        mem_per_cpu_mib=_number(pairs, "DefMemPerCPU"),
        max_mem_per_node_mib=_number(pairs, "MaxMemPerNode"),
        max_mem_per_cpu_mib=_number(pairs, "MaxMemPerCPU"),
        mem_per_gpu_mib=_number(per_gpu, "DefMemPerGPU"),
        cpus_per_gpu=_number(per_gpu, "DefCpuPerGPU"),
    )


def _word(text: str | None) -> str | None:
    return None if text is None or text.upper() in _NOT_SET else text


def _names(text: str | None) -> frozenset[str] | None:
    """Return a list of names; None where it is not given or names everybody."""
    word = _word(text)
    if word is None or word.upper() == "ALL":
        return None
    return frozenset(filter(None, word.split(",")))


def _number(pairs: Mapping[str, str], key: str) -> int | None:
    word = _word(pairs.get(key))
    if word is None:
        return None
    if not word.isdecimal():
        raise SlurmError(f"{key} must be a whole number, was {word!r}")
    return int(word)


def _yes(pairs: Mapping[str, str], key: str) -> bool:
    return pairs.get(key) == "YES"
