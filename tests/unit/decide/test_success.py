"""A launch prior starts from what is assumed, learns from the site, and says what it rests on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.decide.assumed import AssumedLaunches, at_size
from omnipilot_slurm.decide.success import (
    MIN_GROUPS,
    LaunchCounts,
    LaunchGroup,
    LaunchPriors,
    Outcomes,
    Probability,
    credible_interval,
    launch_priors,
    launch_probability,
    minor_version,
)
from omnipilot_slurm.records import Arm

ASSUMED = AssumedLaunches(
    success_by_gpus={1: 0.98, 2: 0.96, 4: 0.90, 8: 0.85, 16: 0.80},
    prior_launches=20.0,
    prior_launches_lo=5.0,
    prior_launches_hi=100.0,
    history_days=365.0,
)
ARM = Arm(
    partition="h100", gpu="h100", gres_type="h100", n_gpus=4, tensor_parallel=4, precision="fp8"
)
OWN = LaunchGroup(4, "h100", 4, "fp8", "0.11")

GROUPS = st.builds(
    LaunchGroup,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["h100", "a100-80g"]),
    st.sampled_from([1, 4]),
    st.sampled_from(["fp8", "bf16"]),
    st.sampled_from([None, "0.10", "0.11"]),
)
OUTCOMES = st.builds(Outcomes, st.integers(0, 300), st.integers(0, 300))
COUNTS = st.dictionaries(GROUPS, OUTCOMES, max_size=12)
ARMS = st.builds(
    Arm,
    partition=st.just("p"),
    gpu=st.sampled_from(["h100", "a100-80g", "mi300x"]),
    gres_type=st.none(),
    n_gpus=st.sampled_from([1, 2, 3, 4, 8, 16, 64]),
    tensor_parallel=st.sampled_from([1, 4]),
    precision=st.sampled_from(["fp8", "bf16"]),
)
VERSIONS = st.sampled_from([None, "nightly", "0.10.2", "0.11.0", "v0.11.1rc1"])


def priors(counts: dict[LaunchGroup, Outcomes], assumed: AssumedLaunches = ASSUMED) -> LaunchPriors:
    return launch_priors(assumed, LaunchCounts(by_group=counts))


def asked(
    counts: dict[LaunchGroup, Outcomes], arm: Arm = ARM, version: str | None = "0.11.0"
) -> Probability:
    return launch_probability(priors(counts), arm, version)


@pytest.mark.parametrize(
    ("n_gpus", "p"), [(1, 0.98), (2, 0.96), (3, 0.90), (4, 0.90), (6, 0.85), (16, 0.80), (64, 0.80)]
)
def test_without_data_the_nearest_size_is_assumed_and_said_so(n_gpus: int, p: float) -> None:
    found = asked({}, replace(ARM, n_gpus=n_gpus))
    assert found.p == pytest.approx(p)
    assert (found.n, found.assumed, found.source) == (0, True, "assumed")


def test_the_arms_own_launches_are_weighed_against_m_assumed_ones() -> None:
    found = asked({OWN: Outcomes(10, 20)})
    assert found.p == pytest.approx((10 + 20 * 0.90) / (30 + 20))
    assert (found.n, found.assumed) == (30, False)
    assert found.source == "10 of 30 launches of this arm with vLLM 0.11 came up"


def test_each_launch_counts_once_however_many_groups_it_is_in() -> None:
    one_failure = asked({OWN: Outcomes(0, 1)})
    assert one_failure.p == pytest.approx(20 * 0.90 / 21)


@pytest.mark.parametrize(
    ("group", "source"),
    [
        (OWN._replace(engine="0.10"), "8 of 10 launches of this arm came up"),
        (OWN._replace(tensor_parallel=2), "8 of 10 launches on 4x h100 came up"),
        (OWN._replace(precision="bf16"), "8 of 10 launches on 4x h100 came up"),
        (OWN._replace(gpu="h200"), "8 of 10 launches on 4 GPUs came up"),
        (OWN._replace(n_gpus=8), "8 of 10 launches on other numbers of GPUs came up"),
    ],
)
def test_the_narrowest_group_with_launches_is_named(group: LaunchGroup, source: str) -> None:
    found = asked({group: Outcomes(8, 2)})
    assert (found.source, found.n, found.assumed) == (source, 10, False)


def test_launches_of_an_unknown_version_are_a_group_of_their_own() -> None:
    counts = {OWN._replace(engine=None): Outcomes(5, 5)}
    found = asked(counts, version=None)
    assert found.p == pytest.approx((5 + 20 * 0.90) / 30)
    assert found.source == "5 of 10 launches of this arm with vLLM of unknown version came up"
    known = asked(counts, version="0.11.0")
    assert known.p > found.p
    assert known.source == "5 of 10 launches of this arm came up"


def test_one_arm_that_always_fails_does_not_condemn_its_neighbours() -> None:
    failing = {OWN: Outcomes(0, 10_000)}
    assert asked(failing).p < 0.01
    assert asked(failing, replace(ARM, precision="bf16")).p > 0.55
    assert asked(failing, replace(ARM, n_gpus=1, tensor_parallel=1)).p > 0.80
    many = {OWN._replace(engine=f"0.{minor}"): Outcomes(0, 10_000) for minor in range(40)}
    assert asked(many, version="0.99").p < 0.06


def test_the_nearer_a_group_the_more_its_failures_weigh() -> None:
    nearer = [
        OWN._replace(n_gpus=8),
        OWN._replace(gpu="h200"),
        OWN._replace(precision="bf16"),
        OWN._replace(engine="0.10"),
        OWN,
    ]
    probabilities = [asked({group: Outcomes(0, 10)}).p for group in nearer]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len(set(probabilities)) == len(nearer)


def test_a_site_with_twice_the_assumed_failures_is_trusted_less_at_every_size() -> None:
    counts = {
        LaunchGroup(1, gpu, 1, f"p{i}", f"0.{minor}"): Outcomes(192, 8)
        for gpu in ("h100", "h200", "a100-80g")
        for i in range(9)
        for minor in range(10)
    }
    found = asked(counts, replace(ARM, n_gpus=1, tensor_parallel=1))
    # 2 % were assumed and 4 % seen, so that other sizes are expected to fail more often as well
    assert found.p == pytest.approx(0.96, abs=0.005)
    assert 0.80 < asked(counts).p < 0.90


def test_m_is_the_assumed_one_until_there_are_groups_to_fit_it_on() -> None:
    few = {OWN._replace(gpu=f"g{i}"): Outcomes(9, 1) for i in range(MIN_GROUPS - 1)}
    assert (priors(few).m, priors(few).is_fitted) == (20.0, False)
    singles = {OWN._replace(gpu=f"g{i}"): Outcomes(1, 0) for i in range(50)}
    assert not priors(singles).is_fitted
    assert priors(few | {OWN: Outcomes(9, 1)}).is_fitted


def test_m_is_large_where_groups_are_alike_and_small_where_they_are_not() -> None:
    alike = {OWN._replace(gpu=f"g{i}"): Outcomes(90, 10) for i in range(20)}
    unlike = {OWN._replace(gpu=f"g{i}"): Outcomes(100 * (i % 2), 100) for i in range(20)}
    assert priors(alike).m == pytest.approx(100.0)
    assert priors(unlike).m == pytest.approx(5.0)


@given(counts=COUNTS, arm=ARMS, version=VERSIONS)
def test_a_probability_is_one_and_lies_in_its_interval(
    counts: dict[LaunchGroup, Outcomes], arm: Arm, version: str | None
) -> None:
    found = asked(counts, arm, version)
    interval = credible_interval(found)
    assert 0.0 < found.p < 1.0
    assert 0.0 <= interval.lo <= interval.mid == found.p <= interval.hi <= 1.0
    assert found.assumed == (sum(outcomes.n for outcomes in counts.values()) == 0) == (not found.n)


@given(counts=COUNTS, group=GROUPS, arm=ARMS, version=VERSIONS)
def test_one_more_success_anywhere_lowers_no_probability(
    counts: dict[LaunchGroup, Outcomes], group: LaunchGroup, arm: Arm, version: str | None
) -> None:
    before = counts.get(group, Outcomes(0, 0))
    more = counts | {group: Outcomes(before.n_ok + 1, before.n_failed)}
    # the same m: it is fitted anew only when the state is
    assumed = replace(ASSUMED, prior_launches_lo=20.0, prior_launches_hi=20.0)
    without = launch_probability(priors(counts, assumed), arm, version).p
    assert launch_probability(priors(more, assumed), arm, version).p >= without - 1e-12


@given(counts=COUNTS, seed=st.integers(0, 5), arm=ARMS, version=VERSIONS)
def test_the_order_of_the_groups_does_not_matter(
    counts: dict[LaunchGroup, Outcomes], seed: int, arm: Arm, version: str | None
) -> None:
    items = list(counts.items())
    random.Random(seed).shuffle(items)
    shuffled, found = asked(dict(items), arm, version), asked(counts, arm, version)
    assert shuffled.p == pytest.approx(found.p, abs=1e-12)
    assert (shuffled.n, shuffled.source) == (found.n, found.source)


@given(counts=COUNTS, scale=st.integers(2, 10))
def test_more_of_the_same_narrows_the_interval(
    counts: dict[LaunchGroup, Outcomes], scale: int
) -> None:
    assumed = replace(ASSUMED, prior_launches_lo=20.0, prior_launches_hi=20.0)
    once = counts | {OWN: Outcomes(20, 20)}
    often = counts | {OWN: Outcomes(20 * scale, 20 * scale)}
    widths = []
    for each in (once, often):
        interval = credible_interval(launch_probability(priors(each, assumed), ARM, "0.11.0"))
        widths.append(interval.hi - interval.lo)
    assert widths[1] < widths[0]


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("0.11.0", "0.11"),
        ("v0.8.5.post1", "0.8"),
        ("0.10", "0.10"),
        ("0.11rc1", "0.11"),
        ("nightly", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_count_by_major_and_minor(version: str | None, minor: str | None) -> None:
    assert minor_version(version) == minor


def test_of_two_sizes_as_near_the_larger_counts() -> None:
    assert at_size({2: 0.2, 4: 0.6}, 3) == 0.6
