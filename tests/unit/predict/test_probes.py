"""Probes: what they propose to measure brings a row into support, and nothing less would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.predict.probes import probe, widened
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import IN, LOW, MIN_CELLS, OUT, judge


@pytest.fixture(scope="module")
def row(measured_rows, small_model):
    """A row that is in support."""
    found = judge(measured_rows.table, small_model.envelope)
    return measured_rows.rows[next(i for i, each in enumerate(found) if each.tier == IN)]


def after(row, envelope, concurrencies):
    """The support of a row once its arm was measured at these concurrencies."""
    runs = [replace(row, concurrency=float(each)) for each in concurrencies]
    wider = widened(envelope, table(runs), [str(each) for each in concurrencies])
    return judge(table([row]), wider)[0]


def test_a_row_in_support_needs_no_benchmark(row, small_model):
    assert probe(row, small_model.envelope).concurrencies == ()


@pytest.mark.parametrize(
    ("changes", "tier", "runs"),
    [
        ({"concurrency": 4096.0}, OUT, (4096,)),
        ({"isl": 300000.0}, OUT, (64,)),
        ({"engine_version": "0.99.0"}, LOW, (64,)),
        ({"family": "unheard-of"}, LOW, (64, 32, 16)),
        ({"gpu": "l4", "mem_gib": 22.0, "bandwidth_gb_s": 300.0}, OUT, (64, 32, 16)),
        ({"precision": "awq"}, OUT, (64, 32, 16)),
    ],
)
def test_a_number_takes_one_cell_and_a_name_as_many_as_count_as_seen(
    row, small_model, changes, tier, runs
):
    outside = replace(row, **({"concurrency": 64.0} | changes))
    found = probe(outside, small_model.envelope)
    assert (found.support.tier, found.concurrencies) == (tier, runs)


@pytest.mark.parametrize(("asked", "runs"), [(1, (1, 2, 4)), (2, (2, 1, 4)), (3, (3, 1, 6))])
def test_runs_are_of_different_concurrencies_and_lower_where_possible(
    row, small_model, asked, runs
):
    outside = replace(row, concurrency=float(asked), precision="awq")
    assert probe(outside, small_model.envelope).concurrencies == runs


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "family": st.sampled_from(["llama3", "unheard-of"]),
            "gpu": st.sampled_from(["h100", "b200", "unheard-of"]),
            "vendor": st.sampled_from(["nvidia", "unheard-of"]),
            "precision": st.sampled_from(["bf16", "fp8", "awq"]),
            "load_mode": st.sampled_from(["online_closed_loop", "offline_static_batch"]),
            "params_b": st.floats(0.1, 2000),
            "concurrency": st.integers(1, 10000).map(float),
            "isl": st.floats(1, 1e6),
            "osl": st.floats(1, 1e6),
            "tensor_parallel": st.sampled_from([1.0, 2.0, 16.0]),
            "pipeline_parallel": st.sampled_from([1.0, 4.0]),
            "layers": st.sampled_from([12.0, 80.0]),
        },
    )
)
def test_what_is_proposed_brings_any_row_into_support(row, small_model, changes):
    outside = replace(row, **changes)
    found = probe(outside, small_model.envelope)
    assert len(found.concurrencies) in (0, 1, MIN_CELLS)
    if found.concurrencies:
        assert after(outside, small_model.envelope, found.concurrencies).tier == IN
    if len(found.concurrencies) == MIN_CELLS:
        assert after(outside, small_model.envelope, found.concurrencies[:1]).tier != IN


def test_widening_takes_nothing_away(measured_rows, small_model):
    envelope = small_model.envelope
    before = judge(measured_rows.table, envelope)
    far = replace(measured_rows.rows[0], gpu="l4", vendor="other", family="x", isl=9.0)
    wider = widened(envelope, table([far]), ["far"])
    after = judge(measured_rows.table, wider)
    in_before = [i for i, each in enumerate(before) if each.tier == IN]
    assert all(after[i].tier == IN for i in in_before)
    assert wider.hulls["other"]["mem_gib"] == (far.mem_gib, far.mem_gib)
    assert wider.hulls["model"] == envelope.hulls["model"]
