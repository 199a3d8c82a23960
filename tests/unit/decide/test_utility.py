"""Each term of the utility is what section 7 of the specification says, and always a number."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.decide import utility
from omnipilot_slurm.decide.utility import Run, utility_terms, value_sd_usd
from omnipilot_slurm.records import Interval
from omnipilot_slurm.site_settings import UtilitySettings
from omnipilot_slurm.utility_file import load_utility

DOCS = Path(__file__).parents[3] / "docs"
SETTINGS = UtilitySettings(
    value_usd_per_output_token=2e-6,
    slo_miss_usd_per_hour=10.0,
    wait_usd_per_hour=1.0,
    failed_launch_hours=0.1,
    kv_knee=0.85,
    kv_slope=0.3,
    power_usd_per_kwh=None,
    pessimistic=False,
)
RUN = Run(
    n_gpus=2,
    price_usd_per_gpu_hour=3.0,
    wall_h=8.0,
    cold_start_s=360.0,
    output_tok_s=Interval(lo=900.0, mid=1000.0, hi=1200.0),
    p_ok=0.9,
    wait_h=0.5,
)

ANY = st.floats(allow_nan=True, allow_infinity=True)
AMOUNTS = st.floats(min_value=0, max_value=1e300)
INTERVALS = st.builds(Interval, lo=ANY, mid=ANY, hi=ANY)
WILD_RUNS = st.builds(
    Run,
    n_gpus=st.integers(0, 10**9),
    price_usd_per_gpu_hour=AMOUNTS,
    wall_h=ANY,
    cold_start_s=ANY,
    output_tok_s=INTERVALS,
    p_ok=ANY,
    wait_h=ANY,
    kv_pressure=st.none() | ANY,
    offered_tok_s=st.none() | ANY,
    ttft_ms=st.none() | INTERVALS,
    tpot_ms=st.none() | INTERVALS,
    slo_ttft_ms=st.none() | ANY,
    slo_tpot_ms=st.none() | ANY,
    power_w=st.none() | ANY,
)
SITES = st.builds(
    UtilitySettings,
    value_usd_per_output_token=st.floats(0, 1),
    slo_miss_usd_per_hour=st.floats(0, 1e6),
    wait_usd_per_hour=st.floats(0, 1e6),
    failed_launch_hours=st.floats(0, 1000),
    kv_knee=st.floats(0.01, 0.99),
    kv_slope=st.floats(0, 0.99),
    power_usd_per_kwh=st.none() | st.floats(0, 1000),
    pessimistic=st.booleans(),
)
SPANS = st.builds(
    lambda lo, up, more: Interval(lo=lo, mid=lo * up, hi=lo * up * more),
    st.floats(1e-3, 1e5),
    st.floats(1, 10),
    st.floats(1, 10),
)
RUNS = st.builds(
    Run,
    n_gpus=st.integers(1, 64),
    price_usd_per_gpu_hour=st.floats(0, 100),
    wall_h=st.floats(0.1, 1000),
    cold_start_s=st.floats(0, 3600),
    output_tok_s=SPANS,
    p_ok=st.floats(0, 1),
    wait_h=st.floats(0, 1000),
    kv_pressure=st.none() | st.floats(0, 20),
    offered_tok_s=st.none() | st.floats(0, 1e5),
    ttft_ms=st.none() | SPANS,
    tpot_ms=st.none() | SPANS,
    slo_ttft_ms=st.none() | st.floats(1, 1e5),
    slo_tpot_ms=st.none() | st.floats(1, 1e5),
    power_w=st.none() | st.floats(0, 1e5),
)


@given(WILD_RUNS, SITES)
def test_every_term_is_finite_and_none_is_negative(run: Run, settings: UtilitySettings) -> None:
    terms = utility_terms(run, settings)
    for field in fields(terms):
        assert 0.0 <= getattr(terms, field.name) < math.inf, field.name
    assert math.isfinite(terms.total)
    assert 0.0 <= value_sd_usd(run, settings) < math.inf


@given(RUNS, SITES, st.floats(0, 1000))
def test_a_higher_price_is_never_worth_more(run: Run, site: UtilitySettings, more: float) -> None:
    dearer = replace(run, price_usd_per_gpu_hour=run.price_usd_per_gpu_hour + more)
    assert utility_terms(dearer, site).total <= utility_terms(run, site).total


@given(RUNS, SITES, st.floats(0, 1000))
def test_a_longer_wait_is_never_worth_more(run: Run, site: UtilitySettings, more: float) -> None:
    later = replace(run, wait_h=run.wait_h + more)
    assert utility_terms(later, site).total <= utility_terms(run, site).total


@given(RUNS, SITES, st.floats(0, 1))
def test_a_start_that_fails_more_often_is_never_worth_more(
    run: Run, site: UtilitySettings, frac: float
) -> None:
    riskier = replace(run, p_ok=run.p_ok * frac)
    assert utility_terms(riskier, site).total <= utility_terms(run, site).total


@given(RUNS, SITES)
def test_the_pessimist_expects_no_more(run: Run, site: UtilitySettings) -> None:
    best = utility_terms(run, replace(site, pessimistic=False))
    worst = utility_terms(run, replace(site, pessimistic=True))
    assert worst.value <= best.value


def test_value_is_that_of_the_tokens_served_after_the_cold_start() -> None:
    # 8 h less 0.1 h, 1000 tok/s, 2e-6 $ each
    assert utility_terms(RUN, SETTINGS).value == pytest.approx(2e-6 * 3600 * 7.9 * 1000)


def test_a_job_that_ends_before_its_server_is_up_serves_nothing() -> None:
    assert utility_terms(replace(RUN, wall_h=0.05), SETTINGS).value == 0.0


def test_offered_load_caps_the_value_and_its_doubt() -> None:
    capped = replace(RUN, offered_tok_s=500.0)
    assert utility_terms(capped, SETTINGS).value == pytest.approx(2e-6 * 3600 * 7.9 * 500)
    assert value_sd_usd(capped, SETTINGS) == 0.0
    assert value_sd_usd(RUN, SETTINGS) == pytest.approx(
        2e-6 * 3600 * 7.9 * 300 / (2 * 1.2815515655)
    )


def test_pessimistic_takes_the_lower_bound() -> None:
    settings = replace(SETTINGS, pessimistic=True)
    assert utility_terms(RUN, settings).value == pytest.approx(2e-6 * 3600 * 7.9 * 900)


def test_gpus_are_paid_for_the_hours_they_are_held_and_power_where_it_has_a_price() -> None:
    assert utility_terms(RUN, SETTINGS).gpu_cost == pytest.approx(2 * 3.0 * 8)
    powered = replace(RUN, power_w=1500.0)
    assert utility_terms(powered, SETTINGS).gpu_cost == pytest.approx(2 * 3.0 * 8)
    settings = replace(SETTINGS, power_usd_per_kwh=0.2)
    assert utility_terms(powered, settings).gpu_cost == pytest.approx(2 * 3.0 * 8 + 1.5 * 8 * 0.2)
    assert utility_terms(RUN, settings).gpu_cost == pytest.approx(2 * 3.0 * 8)


def test_waiting_costs_by_the_hour() -> None:
    assert utility_terms(RUN, SETTINGS).wait == pytest.approx(0.5)


def test_a_failed_launch_is_paid_for_waits_again_and_is_tried_again() -> None:
    # 0.1 / 0.9 failures: 2 GPUs x 3 $ x 0.1 h and 0.5 h of waiting each
    assert utility_terms(RUN, SETTINGS).failure == pytest.approx(0.1 / 0.9 * (0.6 + 0.5))


@pytest.mark.parametrize("p_ok", [0.02, 0.01, 0.0])
def test_a_launch_fails_49_times_at_most(p_ok: float) -> None:
    assert utility_terms(replace(RUN, p_ok=p_ok), SETTINGS).failure == pytest.approx(49 * 1.1)


@pytest.mark.parametrize(
    ("ttft_slo", "tpot_slo", "share"),
    [(None, None, 0.0), (200.0, None, 0.5), (None, 20.0, 0.5), (400.0, 20.0, 0.5), (1e9, 1e9, 0.0)],
)
def test_a_missed_target_costs_by_the_likelier_miss(
    ttft_slo: float | None, tpot_slo: float | None, share: float
) -> None:
    run = replace(
        RUN,
        ttft_ms=Interval(lo=100.0, mid=200.0, hi=400.0),
        tpot_ms=Interval(lo=10.0, mid=20.0, hi=40.0),
        slo_ttft_ms=ttft_slo,
        slo_tpot_ms=tpot_slo,
    )
    assert utility_terms(run, SETTINGS).slo == pytest.approx(10 * 7.9 * share)


def test_ends_of_an_80_percent_interval_are_missed_once_in_ten_times() -> None:
    run = replace(RUN, ttft_ms=Interval(lo=100.0, mid=200.0, hi=400.0), slo_ttft_ms=400.0)
    assert utility.miss_probability(run, SETTINGS) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("latency", "pessimistic", "miss"),
    [
        (Interval(lo=200.0, mid=200.0, hi=200.0), False, 0.0),
        (Interval(lo=201.0, mid=201.0, hi=201.0), False, 1.0),
        (Interval(lo=0.0, mid=190.0, hi=400.0), False, 0.5),
        (Interval(lo=100.0, mid=190.0, hi=201.0), True, 1.0),
        (Interval(lo=100.0, mid=190.0, hi=200.0), True, 0.0),
    ],
)
def test_miss_of_a_latency_without_width_without_lower_end_and_at_worst(
    latency: Interval, pessimistic: bool, miss: float
) -> None:
    run = replace(RUN, ttft_ms=latency, slo_ttft_ms=200.0)
    settings = replace(SETTINGS, pessimistic=pessimistic)
    assert utility.miss_probability(run, settings) == miss


@pytest.mark.parametrize(
    ("pressure", "factor"),
    [(0.0, 1.0), (0.85, 1.0), (0.925, 0.85), (1.0, 0.7), (1.4, 0.5), (7.0, 0.1)],
)
def test_kv_pressure_costs_from_the_knee_on_and_beyond_1_requests_take_turns(
    pressure: float, factor: float
) -> None:
    assert utility.kv_factor(pressure, 0.85, 0.3) == pytest.approx(factor)
    pressed = utility_terms(replace(RUN, kv_pressure=pressure), SETTINGS)
    assert pressed.value == pytest.approx(factor * utility_terms(RUN, SETTINGS).value)


def rows_of_the_table() -> dict[str, tuple[str, str]]:
    """Return symbol -> (key, default) of the table in docs/decision.md."""
    text = (DOCS / "decision.md").read_text(encoding="utf-8")
    row = r"^\| `([^`]+)` \| [^|]+ \| `(utility\.[^`]+)` \| ([^|]+) \|$"
    found = re.findall(row, text, re.MULTILINE)
    return {symbol: (key.removeprefix("utility."), default) for symbol, key, default in found}


def test_each_documented_key_is_in_the_shipped_file_with_the_documented_default() -> None:
    shipped = load_utility()
    documented = rows_of_the_table()
    assert set(documented) == {"v", "c_slo", "c_wait", "t_fail", "knee", "s", "c_power", "lower"}
    assert {key for key, _ in documented.values()} == set(UtilitySettings.__slots__)
    for key, default in documented.values():
        said = {"none": None, "false": False}.get(default.strip(), default)
        value = getattr(shipped, key)
        assert value == (float(said) if isinstance(said, str) else said), key
