"""Three tiers: each axis by itself, a sentence for each, and new names never pass for known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from feature_rows import BASE
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.predict.rows import OFFLINE, table
from omnipilot_slurm.predict.support import IN, LOW, OUT, Envelope, Support, envelope_of, judge

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FeatureRow
    from omnipilot_slurm.train.dataset import Dataset

QWEN = replace(
    BASE, family="qwen2", params_b=7.6, active_params_b=7.6, layers=28, hidden=3584, kv_heads=4,
    heads=28, vocab=152064, kv_elems=28672,
)  # fmt: skip
H200 = {"gpu": "h200", "mem_gib": 139.8, "bandwidth_gb_s": 4800}


def measured() -> list[FeatureRow]:
    """Return two families on two GPUs: fp8 only of llama3, and qwen2 never on the H200."""
    rows = []
    for concurrency in (1, 4, 16, 64):
        for degree in (1, 2):
            shape = {
                "concurrency": concurrency,
                "tensor_parallel": degree,
                "n_gpus": degree,
            }
            rows += [
                replace(BASE, **shape),
                replace(BASE, precision="fp8", **shape),
                replace(BASE, **H200, **shape),
                replace(QWEN, **shape),
            ]
    return rows


def envelope() -> Envelope:
    rows = measured()
    return envelope_of(table(rows), [f"cell {i}" for i in range(len(rows))])


def judged(row: FeatureRow) -> Support:
    (support,) = judge(table([row]), envelope())
    return support


def test_what_was_measured_is_in_without_a_word() -> None:
    for row in measured():
        assert judged(row) == Support(IN, ())


@pytest.mark.parametrize(
    ("changes", "tier", "axis", "note"),
    [
        pytest.param(
            {"concurrency": 100.0},
            LOW,
            "concurrency",
            "concurrency 100 on h100: the nearest measured is 64",
            id="more requests than measured",
        ),
        pytest.param(
            {"concurrency": 1024.0},
            OUT,
            "concurrency",
            "concurrency 1024 on h100: the nearest measured is 64",
            id="many more requests than measured",
        ),
        pytest.param(
            {"tensor_parallel": 4.0, "n_gpus": 4.0},
            LOW,
            "tensor_parallel",
            "tensor_parallel 4 on h100: the nearest measured is 2",
            id="twice the degree",
        ),
        pytest.param(
            {"tensor_parallel": 8.0, "n_gpus": 8.0},
            OUT,
            "tensor_parallel",
            "tensor_parallel 8 on h100: the nearest measured is 2",
            id="four times the degree",
        ),
        pytest.param(
            {"pipeline_parallel": 2.0, "n_gpus": 2.0},
            OUT,
            "pipeline_parallel",
            "pipeline_parallel 2 on h100: the nearest measured is 1",
            id="pipelines, which nobody measured",
        ),
        pytest.param(
            {"precision": "awq"},
            OUT,
            "precision",
            "precision 'awq' was not measured; measured were bf16, fp8",
            id="a precision nobody measured",
        ),
        pytest.param(
            {"load_mode": OFFLINE},
            LOW,
            "load_mode",
            "load_mode 'offline_static_batch' was not measured",
            id="another load mode is never out",
        ),
        pytest.param(
            {"engine_version": "0.30.0"},
            LOW,
            "engine_version",
            "engine_version '0.30.0' was not measured",
            id="another version is never out",
        ),
        pytest.param(
            {"isl": 4000.0, "osl": 256.0},
            LOW,
            "workload",
            "this model was not measured near 4000 in and 256 out; the nearest is 1024 in and "
            "256 out",
            id="another workload",
        ),
    ],
)
def test_each_axis_outside_is_named_with_its_value_and_the_nearest_measured_one(
    changes: dict[str, object], tier: str, axis: str, note: str
) -> None:
    support = judged(replace(BASE, **changes))
    assert support.tier == tier
    assert axis in support.axes
    assert note in [finding.note for finding in support.findings]


def test_a_longer_context_is_low_then_out() -> None:
    near, far = judged(replace(BASE, isl=4000.0)), judged(replace(BASE, isl=40_000.0))
    assert (near.tier, far.tier) == (LOW, OUT)
    notes = [finding.note for finding in far.findings if finding.axis == "context"]
    assert notes == ["context 40260 on h100: the nearest measured is 1280"]


def test_the_axis_that_makes_a_row_out_comes_first() -> None:
    support = judged(replace(BASE, isl=40_000.0, engine_version="0.30.0"))
    assert support.axes == ("context", "workload", "engine_version")


def test_a_size_says_its_unit() -> None:
    support = judged(replace(BASE, params_b=80.0, active_params_b=80.0))
    notes = [finding.note for finding in support.findings if finding.axis == "model_size"]
    assert support.tier == OUT
    assert notes == ["model_size 80 billion parameters on h100: the nearest measured is 8"]


def test_a_blank_version_changes_nothing() -> None:
    assert judged(replace(BASE, engine_version="")).tier == IN


def test_a_gap_of_an_octave_between_measured_values_is_in_and_a_wider_one_is_not() -> None:
    rows = [row for row in measured() if row.concurrency in {1, 64}]
    sparse = envelope_of(table(rows), [f"cell {i}" for i in range(len(rows))])
    tiers = [
        judge(table([replace(BASE, concurrency=value)]), sparse)[0].tier
        for value in (1.1, 2.0, 4.0, 16.0, 32.0)
    ]
    assert tiers == [IN, IN, LOW, LOW, IN]


def test_a_new_family_or_gpu_among_the_measured_facts_is_low_and_beyond_them_out() -> None:
    near = "though what is alike was; measured were"
    family = judged(replace(QWEN, family="yi"))
    assert (family.tier, family.findings[0].note) == (
        LOW,
        f"family 'yi' was not measured, {near} llama3, qwen2",
    )
    gpu = judged(replace(BASE, gpu="h20"))
    assert (gpu.tier, gpu.findings[0].note) == (
        LOW,
        f"gpu 'h20' was not measured, {near} h100, h200",
    )
    huge = replace(QWEN, family="yi", params_b=70, active_params_b=70)
    assert judged(huge).tier == OUT
    assert judged(replace(BASE, gpu="t4", bandwidth_gb_s=320)).tier == OUT
    assert judged(replace(BASE, gpu="mi300x", vendor="amd")).tier == OUT


def test_known_values_never_seen_together_are_low() -> None:
    support = judged(replace(QWEN, precision="fp8"))
    assert support.tier == LOW
    assert support.findings[0].axis == "family x precision"
    assert support.findings[0].note == "qwen2 with fp8 was never measured together"


def test_a_name_of_fewer_than_three_cells_was_not_measured() -> None:
    rows = [*measured(), replace(BASE, gpu="h20"), replace(BASE, gpu="h20", concurrency=4)]
    few = envelope_of(table(rows), [f"cell {i}" for i in range(len(rows))])
    assert judge(table([replace(BASE, gpu="h20")]), few)[0].axes[0] == "gpu"


_name = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)


@given(
    family=_name,
    gpu=_name,
    size=st.floats(0.01, 2000),
    bandwidth=st.floats(10, 20000),
    isl=st.floats(1, 1e6),
    concurrency=st.floats(1, 1e5),
)
def test_an_unseen_family_or_gpu_is_never_in_whatever_else_it_is(
    *, family: str, gpu: str, size: float, bandwidth: float, isl: float, concurrency: float
) -> None:
    rest = {
        "params_b": size,
        "active_params_b": size,
        "bandwidth_gb_s": bandwidth,
        "isl": isl,
        "concurrency": concurrency,
    }
    for row in (
        replace(BASE, family=f"new {family}", **rest),
        replace(BASE, gpu=f"new {gpu}", **rest),
        replace(BASE, family=f"new {family}", gpu=f"new {gpu}"),
    ):
        assert judged(row).tier in {LOW, OUT}


@given(st.floats(1.0, 1e5))
def test_further_away_is_never_better_supported(concurrency: float) -> None:
    order = [IN, LOW, OUT]
    near = judged(replace(BASE, concurrency=64 + concurrency)).tier
    far = judged(replace(BASE, concurrency=64 + 2 * concurrency)).tier
    assert order.index(far) >= order.index(near)


def test_rows_are_judged_alike_alone_and_together(measured_rows: Dataset) -> None:
    rows = measured_rows.rows
    envelope = envelope_of(measured_rows.table, measured_rows.groups["cell"].tolist())
    together = judge(measured_rows.table, envelope)
    alone = tuple(judge(table([row]), envelope)[0] for row in rows)
    assert together == alone
