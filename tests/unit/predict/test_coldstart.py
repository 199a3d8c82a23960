"""A cold start is a sum of stages with wide bounds, and covers the public logs it was read off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_models import LLAMA_8B

from omnipilot_slurm.coldstart_file import load_coldstart
from omnipilot_slurm.predict.coldstart import GENERATIONS, ColdStart, cold_start, generations
from omnipilot_slurm.records import EngineArgs, Interval

SHIPPED = load_coldstart()
STAGES = ("process", "weights", "compile", "graphs", "ready")


def start(
    gib: float = 15.0, engines: tuple[str, ...] = ("V1",), layers: int = 32, **args: object
) -> ColdStart:
    engine = EngineArgs(**{"vllm_version": "0.11.0", **args})
    weights = Interval(lo=gib, mid=gib, hi=gib)
    return cold_start(engine, replace(LLAMA_8B, layers=layers), weights, engines, SHIPPED)


def test_the_total_is_the_sum_of_the_stages() -> None:
    found = start()
    for bound in ("lo", "mid", "hi"):
        assert getattr(found.total, bound) == pytest.approx(
            sum(getattr(getattr(found, stage), bound) for stage in STAGES)
        )


def test_weights_come_from_disk_or_from_the_page_cache() -> None:
    weights = start(gib=16.0).weights
    assert weights.lo == pytest.approx(16 / SHIPPED.page_cache_gib_s.hi)
    assert weights.mid == pytest.approx(16 / SHIPPED.disk_gib_s.mid)
    assert weights.hi == pytest.approx(16 / SHIPPED.disk_gib_s.lo)
    shared = start(gib=4.0, tensor_parallel=4).weights
    assert (shared.mid, shared.hi) == (weights.mid, weights.hi)
    assert shared.lo == pytest.approx(weights.lo / 4)


def test_where_the_disk_is_faster_than_memory_gets_into_a_gpu_that_counts() -> None:
    fast = replace(SHIPPED, disk_gib_s=Interval(lo=50, mid=60, hi=70))
    weights = Interval(lo=12, mid=12, hi=12)
    found = cold_start(EngineArgs(), LLAMA_8B, weights, ("V1",), fast).weights
    assert found.mid == pytest.approx(12 / SHIPPED.page_cache_gib_s.mid)


def test_eager_mode_neither_compiles_nor_captures() -> None:
    none = Interval(lo=0, mid=0, hi=0)
    eager = start(enforce_eager=True)
    assert (eager.compile, eager.graphs) == (none, none)
    assert start(optimization_level=0).compile == none
    assert start(optimization_level=0).graphs.lo == 0 < start(optimization_level=0).graphs.mid
    assert start(engines=("V0",), vllm_version="0.6.6").compile == none
    assert start(load_format="dummy").weights == none


def test_each_further_gpu_costs_something() -> None:
    one, eight = start(), start(tensor_parallel=4, pipeline_parallel=2)
    assert eight.process.mid - one.process.mid == pytest.approx(7 * SHIPPED.process_per_gpu_s.mid)


@pytest.mark.parametrize(
    ("version", "engines", "expected"),
    [
        ("0.6.6", ("V0",), ("v0",)),
        ("0.8.5", ("V1",), ("v1",)),
        ("0.8.5", ("V0", "V1"), ("v0", "v1")),
        ("0.11.0", ("V1",), ("held",)),
        (None, ("V0", "V1"), ("v0", "v1", "held")),
        (None, ("V1",), ("v1", "held")),
        ("9.9.9", ("V1",), ("v1", "held")),
    ],
)
def test_a_version_tells_the_generation_and_no_version_all_it_may_be(
    version: str | None, engines: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert generations(version, None, engines) == expected


def test_a_version_that_is_not_known_covers_all_it_may_be() -> None:
    unknown = start(engines=("V0", "V1"), vllm_version=None)
    for version, engines in (("0.6.6", ("V0",)), ("0.8.5", ("V1",)), ("0.11.0", ("V1",))):
        known = start(engines=engines, vllm_version=version)
        assert unknown.total.lo <= known.total.lo
        assert unknown.total.hi >= known.total.hi
    assert unknown.total.mid == start().total.mid


@given(
    version=st.none() | st.text() | st.from_regex(r"0\.\d{1,2}(\.\d)?(\.post1)?", fullmatch=True),
    engines=st.sampled_from([("V0",), ("V1",), ("V0", "V1")]),
    gib=st.floats(0, 1000),
    layers=st.integers(1, 200),
    degree=st.sampled_from([1, 2, 8, 64]),
)
def test_bounds_rise_for_any_server(
    *, version: str | None, engines: tuple[str, ...], gib: float, layers: int, degree: int
) -> None:
    found = start(gib, engines, layers, vllm_version=version, tensor_parallel=degree)
    for stage in STAGES:
        interval = getattr(found, stage)
        assert 0 <= interval.lo <= interval.mid <= interval.hi
    assert found.total.lo > 0


@given(st.integers(1, 100), st.floats(0.1, 200))
def test_more_layers_and_more_weights_never_start_sooner(layers: int, gib: float) -> None:
    small, deep, heavy = start(gib, layers=layers), start(gib, layers=layers + 5), start(gib + 1)
    for bound in ("lo", "mid", "hi"):
        assert getattr(deep.total, bound) >= getattr(small.total, bound)
        assert getattr(heavy.weights, bound) >= getattr(small.weights, bound)


@pytest.mark.parametrize(
    ("seconds", "stage", "server"),
    [
        pytest.param(10, "graphs", {"engines": ("V0",), "vllm_version": "0.6.4"}, id="[1] V0"),
        pytest.param(
            17, "graphs", {"layers": 28, "gib": 3.4, "vllm_version": "0.8.5"}, id="[3] graphs"
        ),
        pytest.param(
            59, "total", {"layers": 28, "gib": 3.4, "vllm_version": "0.8.5"}, id="[3] in all"
        ),
        pytest.param(46, "compile", {"vllm_version": "0.9.0"}, id="[4] compile"),
        pytest.param(37, "graphs", {"vllm_version": "0.9.0"}, id="[4] graphs"),
        pytest.param(
            85,
            "compile",
            {"layers": 80, "gib": 8.5, "tensor_parallel": 8, "vllm_version": "0.9.1"},
            id="[5] compile",
        ),
        pytest.param(
            215,
            "total",
            {"layers": 80, "gib": 8.5, "tensor_parallel": 8, "vllm_version": "0.9.1"},
            id="[5] in all",
        ),
        pytest.param(18, "weights", {"gib": 21.8, "vllm_version": "0.22.0"}, id="[6] weights"),
        pytest.param(43, "compile", {"layers": 40, "vllm_version": "0.22.0"}, id="[6] compile"),
        pytest.param(27, "weights", {"gib": 7.6}, id="[7] weights"),
        pytest.param(25, "weights", {"gib": 12.7, "tensor_parallel": 2}, id="[8] weights"),
        pytest.param(52, "weights", {"gib": 13.5}, id="[9] weights"),
        pytest.param(2.6, "weights", {"gib": 11.1, "tensor_parallel": 2}, id="[10] weights"),
        pytest.param(30, "weights", {"gib": 48.9, "tensor_parallel": 8}, id="[11] weights"),
        pytest.param(2, "graphs", {"layers": 28, "vllm_version": "0.10.0"}, id="[13] after"),
        pytest.param(35, "graphs", {"layers": 28, "vllm_version": "0.9.2"}, id="[13] before"),
        pytest.param(6, "graphs", {"layers": 80, "vllm_version": "0.10.1"}, id="[14] held"),
        pytest.param(57, "graphs", {"layers": 61, "vllm_version": "0.22.0"}, id="[15] MoE"),
    ],
)
def test_the_bounds_cover_what_public_logs_say(
    seconds: float, stage: str, server: dict[str, object]
) -> None:
    interval = getattr(start(**server), stage)
    assert interval.lo <= seconds <= interval.hi


def test_the_shipped_figures_have_every_generation() -> None:
    assert tuple(SHIPPED.generations) == GENERATIONS
