"""A snapshot's file says all of it, and a broken one says where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cluster.snapshot_file import dump_snapshot, load_snapshot
from omnipilot_slurm.cluster_facts import (
    FreeNodes,
    NodeShape,
    NodeState,
    PartitionFacts,
    QosLimits,
    QueueFacts,
    Snapshot,
)
from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.resources import shipped_path

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8
).map(lambda text: text.replace("\ufeff", "x"))
COUNTS = st.integers(0, 10**6)
LIMITS = st.none() | COUNTS
SETS = st.frozensets(NAMES, max_size=3)
TRES = st.dictionaries(NAMES, COUNTS, max_size=3)
FREE = st.builds(FreeNodes, n_nodes=COUNTS, gpus=TRES, cpus=COUNTS, memory_mib=COUNTS)
SHAPES = st.builds(
    NodeShape,
    n_nodes=COUNTS,
    gpus=TRES,
    cpus=COUNTS,
    memory_mib=COUNTS,
    features=SETS,
    state=st.sampled_from(NodeState),
    free=st.lists(FREE, max_size=2).map(tuple),
)
QUEUES = st.builds(QueueFacts, n_running_jobs=COUNTS, n_pending_jobs=COUNTS, n_pending_gpus=COUNTS)
PARTITIONS = st.builds(
    PartitionFacts,
    name=NAMES,
    shapes=st.lists(SHAPES, max_size=2).map(tuple),
    **dict.fromkeys(
        ("is_up", "is_default", "is_hidden", "is_exclusive", "root_only", "needs_reservation"),
        st.booleans(),
    ),
    **dict.fromkeys(
        ("allow_accounts", "allow_qos", "allow_groups", "allow_submit_hosts"), st.none() | SETS
    ),
    **dict.fromkeys(("deny_accounts", "deny_qos"), SETS),
    **dict.fromkeys(
        ("max_time_min", "default_time_min", "max_nodes", "max_cpus_per_node",
         "max_mem_per_node_mib", "max_mem_per_cpu_mib", "default_mem_per_node_mib",
         "default_mem_per_cpu_mib", "default_mem_per_gpu_mib", "default_cpus_per_gpu"),
        LIMITS,
    ),
    min_nodes=COUNTS,
    priority_tier=COUNTS,
    qos=st.none() | NAMES,
    queue=st.none() | QUEUES,
)  # fmt: skip
QOS = st.builds(
    QosLimits,
    name=NAMES,
    max_wall_min=LIMITS,
    max_tres_per_job=TRES,
    max_tres_per_node=TRES,
    max_tres_per_user=TRES,
    max_tres_per_account=TRES,
    min_tres_per_job=TRES,
    group_tres=TRES,
    flags=SETS,
)
SNAPSHOTS = st.builds(
    Snapshot,
    partitions=st.lists(PARTITIONS, max_size=3, unique_by=lambda row: row.name).map(tuple),
    taken_at=st.none() | st.floats(0, 4e9, allow_nan=False),
    cluster_name=st.none() | NAMES,
    slurm_version=st.none() | NAMES,
    enforces=SETS,
    qos=st.lists(QOS, max_size=2, unique_by=lambda row: row.name).map(tuple),
    gpu_map=st.dictionaries(NAMES, NAMES, max_size=2),
)


@given(SNAPSHOTS)
def test_what_is_written_is_read_back(snapshot):
    assert load_snapshot(dump_snapshot(snapshot).encode(), file="cluster.json") == snapshot


def test_the_shipped_example_is_read_and_has_the_sandboxs_partitions():
    example = shipped_path("etc", "cluster-example.yaml")
    snapshot = load_snapshot(example.read_bytes(), file=str(example))
    assert [row.name for row in snapshot.partitions] == ["a100", "a100-80", "h100", "h200"]
    assert snapshot.taken_at is None
    for partition in snapshot.partitions:
        for shape in partition.shapes:
            n_free = shape.n_nodes if shape.state is NodeState.UP else 0
            assert sum(row.n_nodes for row in shape.free) == n_free
            assert set(shape.gpus) <= set(snapshot.gpu_map)


def test_every_fault_of_a_file_is_named_with_its_place():
    text = b"""schema: 1
partitions:
  gpu:
    max_time: 60
    shapes:
      - {n_nodes: 2, gpus: {h100: four}, cpus: 64, memory_mib: 1000, state: idle}
"""
    with pytest.raises(ConfigError) as caught:
        load_snapshot(text, file="mine.yaml")
    assert str(caught.value) == (
        "mine.yaml:4:5: partitions.gpu: unknown key 'max_time': did you mean 'max_time_min'; "
        "a key carries its unit\n"
        "mine.yaml:6:35: partitions.gpu.shapes[0].gpus.h100: must be a whole number of at least 0, "
        "was 'four'\n"
        "mine.yaml:6:77: partitions.gpu.shapes[0].state: must be one of up, drained, down, "
        "was 'idle'"
    )


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b'{"schema": 1}'])
def test_what_is_no_snapshot_is_a_configuration_error(data):
    with pytest.raises(ConfigError):
        load_snapshot(data, file="cluster.json")


def test_what_is_at_its_default_is_left_out():
    text = dump_snapshot(Snapshot(partitions=(PartitionFacts(name="p"),)))
    assert text == '{\n "schema": 1,\n "partitions": {\n  "p": {}\n }\n}\n'
