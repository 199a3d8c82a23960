"""Node states mean what they mean for new jobs; grouping nodes loses none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cluster.nodes import Node, count_gpus, node_state, shapes
from omnipilot_slurm.cluster_facts import UNTYPED, FreeNodes, NodeShape, NodeState


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", NodeState.UP),
        ("MIXED+PLANNED", NodeState.UP),
        ("ALLOCATED+COMPLETING", NodeState.UP),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.UP),
        ("IDLE~", NodeState.UP),
        ("IDLE+DRAIN", NodeState.DRAINED),
        ("MIXED+DRAIN", NodeState.DRAINED),
        ("drained", NodeState.DRAINED),
        ("IDLE+MAINTENANCE+RESERVED", NodeState.DRAINED),
        ("ALLOCATED+FAIL", NodeState.DRAINED),
        ("DOWN", NodeState.DOWN),
        ("DOWN+DRAIN+NOT_RESPONDING", NodeState.DOWN),
        ("IDLE*", NodeState.DOWN),
        ("IDLE+NOT_RESPONDING", NodeState.DOWN),
        ("IDLE+INVALID_REG", NodeState.DOWN),
        ("FUTURE", NodeState.DOWN),
        ("UNKNOWN", NodeState.DOWN),
    ],
)
def test_a_state_says_whether_new_jobs_start(text, state):
    assert node_state(text) is state


@pytest.mark.parametrize(
    ("gres", "counts"),
    [
        ("", {}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:4", {UNTYPED: 4}),
        ("gpu:a100:3(IDX:0-2),gpu:1g.10gb:7(IDX:0-6),mps:400", {"a100": 3, "1g.10gb": 7}),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", {"a100": 4}),
        ("gpu:h100:0(IDX:N/A)", {"h100": 0}),
    ],
)
def test_gpus_are_counted_by_type(gres, counts):
    assert count_gpus(gres) == counts


def node(name="n1", *, used=0, state=NodeState.UP, cpus=64, used_cpus=0):
    return Node(
        name=name,
        partitions=("p",),
        gpus={"h100": 4},
        used_gpus={"h100": used},
        cpus=cpus,
        used_cpus=used_cpus,
        memory_mib=1000,
        used_memory_mib=used * 100,
        features=frozenset({"h100"}),
        state=state,
    )


def test_like_nodes_are_one_shape_and_their_free_gpus_are_told_apart():
    alike = [node("n1", used=4, used_cpus=60), node("n2"), node("n3", used=4, used_cpus=10)]
    assert shapes(alike) == (
        NodeShape(
            n_nodes=3,
            gpus={"h100": 4},
            cpus=64,
            memory_mib=1000,
            features=frozenset({"h100"}),
            free=(
                FreeNodes(n_nodes=1, gpus={"h100": 4}, cpus=64, memory_mib=1000),
                FreeNodes(n_nodes=2, gpus={"h100": 0}, cpus=4, memory_mib=600),
            ),
        ),
    )


def test_nothing_is_free_on_nodes_that_take_no_jobs():
    (shape,) = shapes([node(state=NodeState.DRAINED)])
    assert (shape.state, shape.free) == (NodeState.DRAINED, ())


NODES = st.builds(
    node,
    used=st.integers(0, 5),
    state=st.sampled_from(NodeState),
    cpus=st.sampled_from([32, 64]),
    used_cpus=st.integers(0, 70),
)


@given(st.lists(NODES, max_size=30))
def test_grouping_loses_no_node_and_frees_nothing_negative(nodes):
    grouped = shapes(nodes)
    assert sum(shape.n_nodes for shape in grouped) == len(nodes)
    for shape in grouped:
        n_free = shape.n_nodes if shape.state is NodeState.UP else 0
        assert sum(row.n_nodes for row in shape.free) == n_free
        assert all(row.cpus >= 0 and min(row.gpus.values()) >= 0 for row in shape.free)
