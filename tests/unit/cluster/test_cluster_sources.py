"""Snapshots ask each thing as often as it is worth; pyslurm gives what the commands give."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from omnipilot_slurm.cluster import runner, scontrol
from omnipilot_slurm.cluster.pyslurm_source import PyslurmSource, load_pyslurm
from omnipilot_slurm.cluster.reader import ClusterReader
from omnipilot_slurm.cluster.scontrol import Controller, JobDefaults
from omnipilot_slurm.cluster_facts import NodeState, QosLimits, QueueFacts
from omnipilot_slurm.errors import SlurmError

RECORDED = Path(__file__).parents[2] / "fixtures" / "slurm" / "24.11"
QUEUE = QueueFacts(n_running_jobs=1, n_pending_jobs=2, n_pending_gpus=3)


class FakeCluster:
    """A Source with state: what is changed in it shows at the next question."""

    def __init__(self):
        self.asked = Counter()
        self.has_accounting = True
        self.used_gpus = 0

    def controller(self):
        self.asked["controller"] += 1
        return Controller(
            cluster_name="c",
            slurm_version="24.11.5",
            enforces=frozenset({"limits"}),
            defaults=JobDefaults(mem_per_cpu_mib=1000),
        )

    def partitions(self, cluster):
        self.asked["partitions"] += 1
        return scontrol.parse_partitions("PartitionName=gpu State=UP", cluster)

    def nodes(self):
        self.asked["nodes"] += 1
        return scontrol.parse_nodes(
            f"NodeName=n1 Gres=gpu:h100:4 GresUsed=gpu:h100:{self.used_gpus} CPUTot=8"
            " RealMemory=9000 State=IDLE Partitions=gpu"
        )

    def qos(self):
        self.asked["qos"] += 1
        if not self.has_accounting:
            raise SlurmError("no slurmdbd")
        return (QosLimits(name="normal"),)

    def queue(self):
        self.asked["queue"] += 1
        return {"gpu": QUEUE}


def test_nodes_are_read_at_every_poll_and_the_queue_seldom():
    cluster = FakeCluster()
    reader = ClusterReader(cluster, slow_poll_s=300)
    for now in (0, 60, 120, 299):
        reader.read(now)
    assert cluster.asked == Counter(controller=1, partitions=4, nodes=4, qos=1, queue=1)
    reader.read(300)
    assert cluster.asked["queue"] == 2


def test_a_snapshot_joins_partitions_nodes_queue_and_limits():
    cluster = FakeCluster()
    reader = ClusterReader(cluster)
    assert reader.read(7).partitions[0].shapes[0].free[0].gpus == {"h100": 4}
    cluster.used_gpus = 3
    snapshot = reader.read(8)
    (partition,) = snapshot.partitions
    assert partition.shapes[0].free[0].gpus == {"h100": 1}
    assert (partition.default_mem_per_cpu_mib, partition.queue) == (1000, QUEUE)
    assert (snapshot.taken_at, snapshot.cluster_name, snapshot.slurm_version) == (8, "c", "24.11.5")
    assert (snapshot.enforces, snapshot.qos) == ({"limits"}, (QosLimits(name="normal"),))


def test_without_accounting_there_are_no_limits_and_when_it_goes_down_they_stay():
    cluster = FakeCluster()
    cluster.has_accounting = False
    reader = ClusterReader(cluster, slow_poll_s=0)
    assert reader.read(1).qos == ()
    cluster.has_accounting = True
    assert reader.read(2).qos == (QosLimits(name="normal"),)
    cluster.has_accounting = False
    assert reader.read(3).qos == (QosLimits(name="normal"),)


class FakePyslurm:
    """The parts of the module pyslurm that are read, over rows that can be changed."""

    class RPCError(Exception):
        pass

    def __init__(self):
        self.is_up = True
        self.rows = {
            "partitions": {"research": SimpleNamespace(**RESEARCH)},
            "nodes": {"h200n1": SimpleNamespace(**H200N1)},
        }
        self.Partitions = SimpleNamespace(load=lambda: self._load("partitions"))
        self.Nodes = SimpleNamespace(load=lambda: self._load("nodes"))

    def _load(self, what):
        if not self.is_up:
            raise self.RPCError("Unable to contact slurm controller")
        return self.rows[what]


RESEARCH = {
    "name": "research", "state": "UP", "is_default": False, "is_hidden": False,
    "oversubscribe": "EXCLUSIVE", "is_root_only": False, "requires_reservation": False,
    "max_time_limit": 3630, "default_time": 240, "min_nodes": 1, "max_nodes": 2,
    "allowed_accounts": ["llm", "ops"], "denied_accounts": ["ALL"], "denied_qos": ["ALL"],
    "allowed_qos": ["normal", "long"], "allowed_groups": ["nogroup", "daemon"],
    "allowed_submit_nodes": ["ALL"],
    "qos": "long", "priority_tier": 10, "max_cpus_per_node": 48, "default_memory_per_node": None,
    "default_memory_per_cpu": None, "max_memory_per_node": 500000, "max_memory_per_cpu": None,
    "default_memory_per_gpu": 64000, "default_cpus_per_gpu": 8,
}  # fmt: skip
H200N1 = {
    "name": "h200n1", "partitions": ["h200", "research"], "configured_gres": {"gpu:h200": 8},
    "allocated_gres": {"gpu:h200": {"count": "8", "indexes": "0-7"}}, "effective_cpus": 128,
    "total_cpus": 128, "allocated_cpus": 2, "real_memory": 2048000, "allocated_memory": 2000,
    "memory_reserved_for_system": None, "available_features": ["h200", "gpu141g"],
    "state": "MIXED+PLANNED",
}  # fmt: skip


def test_pyslurm_gives_what_the_commands_give():
    source = PyslurmSource(FakePyslurm())
    defaults = scontrol.parse_config((RECORDED / "config.txt").read_text()).defaults
    printed = scontrol.parse_partitions((RECORDED / "partitions.txt").read_text(), defaults)
    assert source.partitions(defaults) == tuple(row for row in printed if row.name == "research")
    printed_nodes = scontrol.parse_nodes((RECORDED / "nodes.txt").read_text())
    assert source.nodes() == tuple(row for row in printed_nodes if row.name == "h200n1")


def test_pyslurm_sees_changes_and_says_when_slurmctld_is_away():
    module = FakePyslurm()
    source = PyslurmSource(module)
    module.rows["nodes"]["h200n1"].state = "MIXED+DRAIN"
    module.rows["partitions"]["research"].max_time_limit = "UNLIMITED"
    assert source.nodes()[0].state is NodeState.DRAINED
    assert source.partitions(JobDefaults())[0].max_time_min is None
    module.is_up = False
    with pytest.raises(SlurmError) as caught:
        source.nodes()
    assert str(caught.value) == (
        "slurmctld must answer pyslurm, did not: Unable to contact slurm controller"
    )


def test_a_missing_pyslurm_says_that_the_commands_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyslurm", None)
    with pytest.raises(SlurmError) as caught:
        load_pyslurm()
    assert str(caught.value).startswith(
        "pyslurm must be importable and of Slurm's own major.minor release, was not: "
    )


def test_a_command_that_fails_repeats_its_complaint():
    with pytest.raises(SlurmError) as caught:
        runner.ask(["sh", "-c", "echo no such cluster >&2; exit 3"])
    assert str(caught.value) == (
        "`sh -c echo no such cluster >&2; exit 3` failed with exit code 3: no such cluster"
    )


def test_a_command_that_is_missing_or_hangs_is_an_error_of_slurm(tmp_path):
    with pytest.raises(SlurmError) as caught:
        runner.ask([str(tmp_path / "scontrol")])
    assert str(caught.value) == (
        f"{tmp_path}/scontrol must be a program that can be started, was refused: "
        "No such file or directory"
    )
    with pytest.raises(SlurmError) as caught:
        runner.ask(["sleep", "60"], timeout_s=0.05)
    assert str(caught.value) == "`sleep 60` must come back within 0.05 s, did not"
