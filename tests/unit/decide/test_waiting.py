"""A wait is an interval: none where nodes are free, else the site's own history, else assumed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cluster_facts import (
    FreeNodes,
    NodeShape,
    NodeState,
    PartitionFacts,
    QueueFacts,
)
from omnipilot_slurm.decide.assumed import AssumedWaits
from omnipilot_slurm.decide.pools import GpuPool
from omnipilot_slurm.decide.wait_history import (
    AT_ONCE_H,
    QueueWaits,
    Wait,
    WaitGroup,
    WaitHistory,
    WaitSample,
    queue_waits,
)
from omnipilot_slurm.decide.waiting import n_free_nodes, queue_wait
from omnipilot_slurm.facts import GpuFacts
from omnipilot_slurm.records import Arm

ASSUMED = AssumedWaits(
    hours_by_gpus={1: 0.1, 2: 0.2, 4: 0.6, 8: 1.5, 16: 3.0}, prior_jobs=20.0, history_days=30.0
)
H100 = GpuFacts(
    id="h100",
    name="H100",
    vendor="nvidia",
    mem_gib=79.2,
    bandwidth_gb_s=3350.0,
    peak_tflops={"fp16": 989.0},
    link_gb_s=450.0,
    tdp_w=700.0,
    capability=(9, 0),
    price_usd_per_gpu_hour=3.0,
)
FREE = FreeNodes(n_nodes=2, gpus={"h100": 4}, cpus=96, memory_mib=900_000)
OWN = WaitGroup("gpu", 4, "h100")


def pool(
    *, free: tuple[FreeNodes, ...] = (), n_pending: int | None = None, **changes: bool
) -> GpuPool:
    shape = NodeShape(n_nodes=5, gpus={"h100": 4}, cpus=96, memory_mib=1_000_000, free=free)
    dead = replace(shape, state=NodeState.DOWN, free=())
    queue = (
        n_pending
        if n_pending is None
        else QueueFacts(n_running_jobs=7, n_pending_jobs=n_pending, n_pending_gpus=n_pending)
    )
    partition = PartitionFacts(name="gpu", shapes=(shape, dead), queue=queue, **changes)
    return GpuPool(partition=partition, shape=shape, gres_type="h100", gpu=H100, n_per_node=4)


def arm(n_gpus: int = 4, n_nodes: int = 1) -> Arm:
    return Arm(partition="gpu", gpu="h100", gres_type="h100", n_gpus=n_gpus, n_nodes=n_nodes)


def waits(*groups: tuple[WaitGroup, list[float]]) -> QueueWaits:
    history = {
        group: WaitSample(len(hours), sum(hours) / len(hours), tuple(sorted(hours)))
        for group, hours in groups
    }
    return queue_waits(ASSUMED, WaitHistory(by_group=history))


def asked(
    where: GpuPool, known: QueueWaits, n_gpus: int = 4, n_nodes: int = 1, **need: int
) -> Wait:
    need = {"cpus": 16, "memory_mib": 100_000} | need
    return queue_wait(known, arm(n_gpus, n_nodes), where, is_live=True, **need)


# from history


@pytest.mark.parametrize(
    ("n_gpus", "hours"), [(1, 0.1), (3, 0.6), (4, 0.6), (6, 1.5), (16, 3.0), (64, 3.0)]
)
def test_without_history_the_nearest_size_is_assumed_and_said_so(n_gpus: int, hours: float) -> None:
    wait = asked(pool(), waits(), n_gpus)
    assert wait.mean_h == pytest.approx(hours)
    # of an exponential distribution
    assert (wait.lo_h, wait.hi_h) == pytest.approx((0.10536 * hours, 2.30259 * hours), rel=1e-4)
    assert (wait.n, wait.assumed, wait.source) == (0, True, "assumed")


def test_the_groups_own_jobs_are_weighed_against_as_many_as_the_assumption_is_worth() -> None:
    wait = asked(pool(), waits((OWN, [2.0] * 30)))
    assert wait.mean_h == pytest.approx((30 * 2.0 + 20 * 0.6) / 50)
    assert (wait.n, wait.assumed) == (30, False)
    assert wait.source == "30 jobs of 4 h100 GPUs in partition gpu"


def test_each_job_counts_once_however_many_groups_it_is_in() -> None:
    assert asked(pool(), waits((OWN, [2.0]))).mean_h == pytest.approx((2.0 + 20 * 0.6) / 21)


@pytest.mark.parametrize(
    ("group", "source"),
    [
        (WaitGroup("gpu", 4, None), "30 jobs of 4 GPUs in partition gpu"),
        (WaitGroup("gpu", 8, "h100"), "30 jobs in partition gpu"),
        (WaitGroup("other", 4, "h100"), "30 jobs of 4 GPUs"),
        (WaitGroup("other", 8, "h100"), "assumed"),
    ],
)
def test_the_narrowest_group_with_jobs_is_named(group: WaitGroup, source: str) -> None:
    assert asked(pool(), waits((group, [2.0] * 30))).source == source


def test_the_nearer_a_group_the_more_its_waits_weigh() -> None:
    nearer = [WaitGroup("other", 4, "h100"), WaitGroup("gpu", 4, "a100"), OWN]
    means = [asked(pool(), waits((group, [60.0] * 500))).mean_h for group in nearer]
    assert means == sorted(means)
    assert len(set(means)) == len(nearer)


def test_jobs_of_another_size_count_by_how_much_longer_than_assumed_they_waited() -> None:
    # jobs of 8 GPUs waited 3 h, twice what is assumed, so that those of 4 move from 0.6 to 1.2 h
    wait = asked(pool(), waits((WaitGroup("gpu", 8, "h100"), [3.0] * 10_000)))
    assert 0.75 < wait.mean_h < 1.2


def test_where_nothing_is_free_only_jobs_that_waited_are_compared_with() -> None:
    known = waits((OWN, [0.0] * 900 + [2.0] * 100))
    full = asked(pool(), known)
    assert full.mean_h == pytest.approx((100 * 2.0 + 20 * 0.6) / 120)
    assert full.n == 100
    example = queue_wait(known, arm(), pool(), cpus=1, memory_mib=1, is_live=False)
    assert example.mean_h == pytest.approx((1000 * 0.2 + 20 * 0.6) / 1020)
    assert example.n == 1000


def test_a_few_long_waits_raise_the_end_to_the_mean() -> None:
    wait = queue_wait(
        waits((OWN, [0.0] * 9_990 + [5_000.0] * 10)),
        arm(),
        pool(),
        cpus=1,
        memory_mib=1,
        is_live=False,
    )
    assert wait.lo_h <= wait.mean_h == wait.hi_h


def test_more_history_of_even_waits_narrows_the_interval() -> None:
    widths = []
    for n in (0, 5, 50, 500, 5_000):
        wait = asked(pool(), waits((OWN, [0.5, 0.6, 0.7] * n)) if n else waits())
        widths.append(wait.hi_h - wait.lo_h)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.25 < widths[0]


# from the snapshot


def test_nodes_that_are_free_mean_no_wait_whatever_the_history() -> None:
    wait = asked(pool(free=(FREE,), n_pending=0), waits((OWN, [40.0] * 100)))
    assert (wait.lo_h, wait.mean_h, wait.hi_h) == (0.0, 0.0, AT_ONCE_H)
    assert (wait.assumed, wait.source) == (False, "nodes are free now")
    assert asked(pool(free=(FREE,)), waits()) == asked(pool(free=(FREE,), n_pending=0), waits())


@pytest.mark.parametrize(
    ("n_gpus", "n_nodes", "need", "n_free"),
    [
        (4, 1, {}, 2),
        (8, 2, {}, 2),
        (5, 1, {}, 0),
        (4, 1, {"cpus": 97}, 0),
        (4, 1, {"memory_mib": 900_001}, 0),
    ],
)
def test_a_node_is_free_only_with_the_gpus_cpus_and_memory_asked(
    n_gpus: int, n_nodes: int, need: dict[str, int], n_free: int
) -> None:
    need = {"cpus": 16, "memory_mib": 100_000} | need
    where = pool(free=(FREE,))
    assert n_free_nodes(where, n_gpus // n_nodes, **need) == n_free
    assert (asked(where, waits(), n_gpus, n_nodes, **need).mean_h == 0.0) == (n_free >= n_nodes)


def test_more_nodes_than_are_free_have_to_be_waited_for() -> None:
    assert asked(pool(free=(FREE,)), waits(), 12, 3).mean_h > 0.0


def test_a_partition_that_hands_out_whole_nodes_has_none_free_that_is_partly_used() -> None:
    partly = replace(FREE, cpus=80)
    assert asked(pool(free=(partly,)), waits(), 1).mean_h == 0.0
    assert asked(pool(free=(partly,), is_exclusive=True), waits(), 1).mean_h > 0.0
    assert asked(pool(free=(FREE,), is_exclusive=True), waits(), 1).mean_h == 0.0


def test_untyped_gpus_are_found_free_as_well() -> None:
    typed = pool(free=(replace(FREE, gpus={"gpu": 4}),))
    assert asked(replace(typed, gres_type=None), waits()).mean_h == 0.0
    assert asked(typed, waits()).mean_h > 0.0


@pytest.mark.parametrize("free", [(), (FREE,)])
def test_what_is_pending_widens_the_interval(free: tuple[FreeNodes, ...]) -> None:
    found = [asked(pool(free=free, n_pending=n), waits()) for n in (0, 4, 40, 400)]
    widths = [wait.hi_h - wait.lo_h for wait in found]
    assert widths == sorted(widths)
    assert len(set(widths)) == len(widths)
    means = [wait.mean_h for wait in found]
    assert means == sorted(means)


def test_what_is_pending_is_said() -> None:
    busy = asked(pool(n_pending=40), waits())
    assert busy.source == "assumed; 40 GPUs are pending"
    # three times: 40 GPUs are pending where 20 are up
    assert busy.hi_h == pytest.approx(3.0 * 2.30259 * 0.6, rel=1e-4)
    free = asked(pool(free=(FREE,), n_pending=8), waits())
    assert free.source == "nodes are free now, 8 GPUs are pending; assumed"
    assert free.mean_h == pytest.approx(0.5 * 0.6)


# whatever the history


GROUPS = st.builds(
    WaitGroup,
    st.sampled_from(["gpu", "other"]),
    st.sampled_from([1, 4, 8]),
    st.sampled_from([None, "h100", "a100"]),
)
HOURS = st.lists(st.floats(0.0, 1e4), min_size=1, max_size=30)
HISTORIES = st.dictionaries(GROUPS, HOURS, max_size=8)
PENDING = st.none() | st.integers(0, 10_000)


@given(history=HISTORIES, n_gpus=st.integers(1, 64), n_pending=PENDING, free=st.booleans())
def test_a_wait_is_finite_and_its_mean_lies_in_its_interval(
    history: dict[WaitGroup, list[float]], n_gpus: int, n_pending: int | None, free: bool
) -> None:
    where = pool(free=(FREE,) if free else (), n_pending=n_pending)
    wait = asked(where, waits(*history.items()), n_gpus)
    assert 0.0 <= wait.lo_h <= wait.mean_h <= wait.hi_h < 1e9


@given(history=HISTORIES, seed=st.integers(0, 5), n_gpus=st.sampled_from([1, 4, 8, 16]))
def test_the_order_of_the_groups_does_not_matter(
    history: dict[WaitGroup, list[float]], seed: int, n_gpus: int
) -> None:
    items = list(history.items())
    random.Random(seed).shuffle(items)
    one, other = (asked(pool(), waits(*order), n_gpus) for order in (history.items(), items))
    assert other.mean_h == pytest.approx(one.mean_h, rel=1e-9)
    assert other.hi_h == pytest.approx(one.hi_h, rel=1e-9)
    assert (other.n, other.source) == (one.n, one.source)


@given(history=HISTORIES, hours=HOURS, extra=st.floats(0.0, 100.0))
def test_longer_waits_never_shorten_the_estimate(
    history: dict[WaitGroup, list[float]], hours: list[float], extra: float
) -> None:
    longer = [max(wait, 1.0) + extra for wait in hours]
    before = asked(pool(), waits(*(history | {OWN: [max(wait, 1.0) for wait in hours]}).items()))
    after = asked(pool(), waits(*(history | {OWN: longer}).items()))
    assert after.mean_h >= before.mean_h - 1e-9
    assert after.hi_h >= before.hi_h - 1e-9
