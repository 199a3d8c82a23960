"""Decisions out of fold: which arm each policy takes, what it costs, which cells count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.records import Interval
from omnipilot_slurm.train import decisions
from omnipilot_slurm.train.decisions import OURS, POLICIES, Candidate, cells_of, outcomes
from omnipilot_slurm.train.evaluate import Held
from omnipilot_slurm.train.scenario import load_scenario

TEXT = """
prices_usd_per_gpu_hour: {H100: 3.0, H200: 3.8, B200: 5.5}
value_usd_per_output_token: 2e-6
sensitivity_value_usd_per_output_token: [2e-7, 4e-6]
hours: 8
offered_requests_per_s: null
launch_success_by_gpus: {1: 1.0, 4: 0.5}
expected_wait_hours_by_gpus: {1: 0.0, 4: 2.0}
wait_usd_per_hour: 1.0
failed_launch_hours: 0.1
cold_start_s: {base: 15, per_billion_params: 0.5, per_gpu: 3}
slo_ttft_ms: 2000
slo_tpot_ms: 100
slo_miss_usd_per_hour: 10
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(TEXT)
    return load_scenario(path)


def exactly(value):
    return Interval(lo=value, mid=value, hi=value)


def arm(gpu="H100", n_gpus=1, *, measured=1000.0, ours=None, precision="bf16", tpot_ms=None):
    """An arm with its measured throughput and what we say of it; the roofline says the opposite."""
    said = measured if ours is None else ours
    targets = {"output_tok_s": exactly(measured)}
    if tpot_ms is not None:
        targets["tpot_ms"] = exactly(tpot_ms)
    return Candidate(
        gpu=gpu,
        n_gpus=n_gpus,
        tensor_parallel=n_gpus,
        precision=precision,
        params_b=8.0,
        price_usd_per_hour=n_gpus * {"H100": 3.0, "H200": 3.8, "B200": 5.5}[gpu],
        measured=targets,
        says={
            OURS: {**targets, "output_tok_s": exactly(said)},
            "roofline": {**targets, "output_tok_s": exactly(1e6 / measured)},
        },
    )


def chosen(policy, scenario, *arms):
    return POLICIES[policy](scenario, arms)


def test_ours_takes_what_is_worth_most_by_its_own_figures(scenario):
    arms = arm(measured=1000, ours=900), arm("B200", measured=2500, ours=2400)
    assert chosen(OURS, scenario, *arms) == 1
    assert chosen(OURS, scenario.valued_at(1e-8), *arms) == 0
    assert chosen("roofline alone", scenario, *arms) == 0


def test_a_slo_that_is_missed_counts_against_an_arm(scenario):
    slow, fast = arm(measured=1100, tpot_ms=150.0), arm(measured=1000, tpot_ms=50.0)
    assert chosen(OURS, scenario, slow, fast) == 1
    assert chosen("throughput max", scenario, slow, fast) == 0


def test_the_cheapest_has_fewer_gpus_where_prices_tie(scenario):
    prices = replace(scenario, prices_usd_per_gpu_hour={"H100": 3.0})
    two = replace(arm(n_gpus=2), price_usd_per_hour=3.0)
    assert chosen("cheapest that fits", prices, two, arm()) == 1
    assert chosen("cheapest that fits", scenario, arm("B200"), arm("H200"), arm()) == 2


@pytest.mark.parametrize(("params_b", "n_gpus"), [(8.0, 1), (32.0, 2), (70.0, 4), (400.0, 8)])
def test_the_size_rule_gives_a_class_of_models_its_gpus(scenario, params_b, n_gpus):
    arms = [replace(arm(n_gpus=n), params_b=params_b) for n in (8, 4, 2, 1)]
    assert arms[chosen("size threshold", scenario, *arms)].n_gpus == n_gpus


def test_the_recipe_takes_an_h100_before_fp8(scenario):
    arms = arm("H200", precision="fp8"), arm(n_gpus=2), arm(n_gpus=4, precision="fp8")
    assert chosen("H100/FP8 recipe", scenario, *arms) == 2
    assert chosen("H100/FP8 recipe", scenario, *arms[:2]) == 1


def test_a_source_that_knows_no_arm_takes_the_cheapest(scenario):
    assert chosen("nearest cell", scenario, arm("B200"), arm()) == 1


def test_regret_is_worked_out_from_what_was_measured(scenario):
    wrong = [arm(measured=1000, ours=3000), arm("H200", measured=2000, ours=100)]
    right = [arm(measured=1000), arm("H200", measured=2000)]
    found = {each.policy: each for each in outcomes([wrong, right], scenario)}
    best, worst = (
        decisions.utility_usd(scenario, each, each.measured) for each in (wrong[1], wrong[0])
    )
    assert found[OURS].top_1 == 0.5
    assert found[OURS].regret_percent == pytest.approx(50.0)
    assert found[OURS].regret_usd_per_h == pytest.approx((best - worst) / 8 / 2)
    assert found[OURS].extra_percent == (0.0, 0.0, 0.0)
    assert found["cheapest that fits"].top_1 == 0.0
    low, mean, high = found["cheapest that fits"].extra_percent
    assert low <= mean <= high
    assert mean == pytest.approx(50.0, abs=3)


def test_arms_of_the_same_worth_are_all_right(scenario):
    found = outcomes([[arm(), arm()]], scenario)
    assert {each.top_1 for each in found} == {1.0}
    assert {each.regret_percent for each in found} == {0.0}


def held_of(data):
    return Held(
        targets={name: Bounds(y, y, y) for name, y in data.measured.items()},
        physics=data.measured,
        nearest=np.full(len(data), -1),
        tiers=np.full(len(data), "in"),
        axes=np.full(len(data), ""),
        folds=np.zeros(len(data), dtype=np.int64),
    )


def test_only_priced_arms_of_cells_with_two_of_them_count(measured_rows, scenario):
    found = cells_of(measured_rows, held_of(measured_rows), scenario)
    assert found
    assert min(map(len, found.values())) >= 2
    assert {each.gpu for arms in found.values() for each in arms} == {"H100", "H200", "B200"}
    few = replace(scenario, prices_usd_per_gpu_hour={"H100": 3.0})
    assert len(cells_of(measured_rows, held_of(measured_rows), few)) < len(found)


def test_a_perfect_prediction_has_no_regret(measured_rows, scenario):
    cells = cells_of(measured_rows, held_of(measured_rows), scenario)
    for value in (scenario.utility.value_usd_per_output_token, *scenario.sensitivity):
        ours = outcomes(list(cells.values()), scenario.valued_at(value))[0]
        assert (ours.policy, ours.top_1) == (OURS, 1.0)


def test_waits_and_launches_are_those_of_the_nearest_number_of_gpus(scenario):
    one, two, three = (
        scenario.run("H100", n, 8.0, output_tok_s=exactly(1.0), ttft_ms=None, tpot_ms=None)
        for n in (1, 2, 3)
    )
    assert (one.p_ok, one.wait_h) == (two.p_ok, two.wait_h) == (1.0, 0.0)
    assert (three.p_ok, three.wait_h) == (0.5, 2.0)
    assert one.cold_start_s == 15 + 0.5 * 8 + 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("hours: 8\n", ""), "lacks 'hours'"),
        (("hours: 8", "hours: x"), "must be a scenario: could not convert string to float: 'x'"),
        (
            ("offered_requests_per_s: null", "offered_requests_per_s: 3"),
            (
                "must be a scenario: offered_requests_per_s must be null: measured load is not "
                "capped here"
            ),
        ),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path, change, said):
    path = tmp_path / "scenario.yaml"
    path.write_text(TEXT.replace(*change))
    with pytest.raises(DataError) as caught:
        load_scenario(path)
    assert str(caught.value) == f"{path}: {said}"


def test_a_scenario_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        load_scenario(tmp_path / "none.yaml")
