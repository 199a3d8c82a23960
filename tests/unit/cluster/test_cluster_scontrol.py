"""What Slurm 22.05 and 24.11 printed is read as what the cluster was set up to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cluster import scontrol
from omnipilot_slurm.cluster.scontrol import JobDefaults, minutes
from omnipilot_slurm.cluster_facts import NodeState, PartitionFacts
from omnipilot_slurm.errors import SlurmError

RECORDED = Path(__file__).parents[2] / "fixtures" / "slurm"


@pytest.fixture(params=["22.05", "24.11"])
def recorded(request):
    return lambda name: (RECORDED / request.param / f"{name}.txt").read_text()


@pytest.fixture
def partitions(recorded):
    defaults = scontrol.parse_config(recorded("config")).defaults
    rows = scontrol.parse_partitions(recorded("partitions"), defaults)
    return {row.name: row for row in rows}


@pytest.fixture
def nodes(recorded):
    return {row.name: row for row in scontrol.parse_nodes(recorded("nodes"))}


def test_settings_of_slurmctld_are_read(recorded):
    controller = scontrol.parse_config(recorded("config"))
    assert controller.cluster_name == "sandbox"
    assert controller.slurm_version in ("22.05.8", "24.11.5")
    assert controller.enforces == {"associations", "limits", "qos"}
    assert controller.defaults == JobDefaults(mem_per_cpu_mib=1000)


def test_an_open_partition_has_no_limits_but_the_clusters_defaults(partitions):
    assert partitions["a100"] == PartitionFacts(
        name="a100", is_default=True, default_time_min=60, default_mem_per_cpu_mib=1000
    )


def test_every_limit_of_a_partition_is_read(partitions):
    assert partitions["research"] == PartitionFacts(
        name="research",
        is_exclusive=True,
        max_time_min=2 * 1440 + 12 * 60 + 30,
        default_time_min=240,
        min_nodes=1,
        max_nodes=2,
        allow_accounts=frozenset({"llm", "ops"}),
        allow_qos=frozenset({"normal", "long"}),
        allow_groups=frozenset({"nogroup", "daemon"}),
        qos="long",
        priority_tier=10,
        max_cpus_per_node=48,
        max_mem_per_node_mib=500_000,
        default_mem_per_cpu_mib=1000,
        default_mem_per_gpu_mib=64_000,
        default_cpus_per_gpu=8,
    )


def test_closed_partitions_are_not_up_and_say_why(partitions):
    assert partitions["old"] == PartitionFacts(
        name="old",
        is_up=False,
        is_hidden=True,
        root_only=True,
        deny_accounts=frozenset({"guest"}),
        deny_qos=frozenset({"long"}),
        max_mem_per_cpu_mib=8000,
        default_mem_per_cpu_mib=2000,
    )
    assert not partitions["draining"].is_up
    assert partitions["draining"].needs_reservation
    assert partitions["draining"].allow_submit_hosts == {"login1", "login2"}
    assert not partitions["inactive"].is_up


def test_what_jobs_hold_of_a_node_is_read(nodes):
    node = nodes["a100n1"]
    assert (node.gpus, node.used_gpus) == ({"a100": 4}, {"a100": 3})
    assert (node.cpus, node.used_cpus) == (64, 8)
    assert (node.memory_mib, node.used_memory_mib) == (512_000, 8000)
    assert node.features == {"a100", "gpu40g"}
    assert node.partitions == ("a100", "old")
    assert node.state is NodeState.UP


def test_a_reason_that_looks_like_other_fields_changes_nothing(nodes):
    # its reason is "fan 3 State=IDLE and Gres=none, ask ops"
    assert nodes["a100n2"].state is NodeState.DRAINED
    assert nodes["a100n2"].gpus == {"a100-80": 4}


def test_a_partitions_own_memory_default_replaces_the_clusters_whole():
    own = JobDefaults(mem_per_cpu_mib=2000)
    cluster = JobDefaults(mem_per_node_mib=9000, max_mem_per_node_mib=8000, cpus_per_gpu=4)
    assert own.over(cluster) == JobDefaults(
        mem_per_cpu_mib=2000, max_mem_per_node_mib=8000, cpus_per_gpu=4
    )


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59))
def test_a_duration_as_slurm_prints_it_is_its_minutes(days, hours, mins):
    day_part = f"{days}-" if days else ""
    assert minutes(f"{day_part}{hours:02}:{mins:02}:00") == (days * 24 + hours) * 60 + mins


def test_seconds_round_up_and_no_limit_is_none():
    assert minutes("00:00:01") == 1
    assert [minutes(word) for word in ("UNLIMITED", "NONE", "INFINITE", "", None)] == [None] * 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no partition", "scontrol must print PartitionName=..., printed 'no partition'"),
        ("PartitionName=x MaxTime=soon", "a time must be like 2-12:30:00, was 'soon'"),
        ("PartitionName=x MaxNodes=few", "MaxNodes must be a whole number, was 'few'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(line, complaint):
    with pytest.raises(SlurmError) as caught:
        scontrol.parse_partitions(line, JobDefaults())
    assert str(caught.value) == complaint


def test_cpus_and_memory_set_aside_for_the_system_do_not_count():
    (node,) = scontrol.parse_nodes(
        "NodeName=n1 CPUTot=64 CPUEfctv=60 RealMemory=1000 MemSpecLimit=100 State=IDLE"
    )
    assert (node.cpus, node.memory_mib) == (60, 900)
