"""Scores out of fold: errors, coverage and decisions, on rows whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train.evaluate import Held
from omnipilot_slurm.train.evaluation import NEAREST, ROOFLINE, evaluation, group_coverage
from omnipilot_slurm.train.scoring import score

#: the normal deviate that 80 % lie within
Z_80 = 1.2815515655446004
SIGMA = 0.1


def toy(rows, seed=0):
    """Predictions that are right but for normal noise of a known width: 80 % by construction."""
    rng = np.random.default_rng(seed)

    def bounds(measured):
        mid = measured * np.exp(rng.normal(0, SIGMA, len(rows)))
        return Bounds(mid * np.exp(-Z_80 * SIGMA), mid, mid * np.exp(Z_80 * SIGMA))

    return Held(
        targets={name: bounds(values) for name, values in rows.measured.items()},
        physics={"output_tok_s": rows.measured["output_tok_s"] * 2},
        nearest=np.full(len(rows), -1),
        tiers=np.full(len(rows), "in"),
        axes=np.full(len(rows), ""),
        folds=np.zeros(len(rows), dtype=np.int64),
    )


def shifted(held, rows, gpu, factor):
    """The same predictions, of one GPU all too high."""
    factors = np.where(rows.groups["gpu"] == gpu, factor, 1.0)
    moved = {
        name: Bounds(each.lo * factors, each.mid * factors, each.hi * factors)
        for name, each in held.targets.items()
    }
    return replace(held, targets=moved)


def test_intervals_of_the_right_width_cover_what_they_promise(measured_rows):
    held = toy(measured_rows)
    found = evaluation(measured_rows, held, "cell").score("output_tok_s", "all")
    assert abs(found.coverage - 0.8) < 3 * np.sqrt(0.16 / len(measured_rows))
    assert found.width == pytest.approx(np.exp(2 * Z_80 * SIGMA))


def test_a_shift_of_one_gpu_moves_its_coverage_and_no_other(measured_rows):
    held = toy(measured_rows)
    before = group_coverage(measured_rows, held, "output_tok_s")
    after = group_coverage(measured_rows, shifted(held, measured_rows, "B200", 1.3), "output_tok_s")
    assert before["B200"].cell_coverage > 0.7
    assert after["B200"].cell_coverage < 0.3
    assert after["H200"] == before["H200"]


def test_a_shift_of_one_gpu_moves_the_pooled_coverage(measured_rows):
    held = toy(measured_rows)
    moved = shifted(held, measured_rows, "B200", 1.3)
    before, after = (
        evaluation(measured_rows, each, "cell").score("output_tok_s", "all")
        for each in (held, moved)
    )
    assert after.coverage < before.coverage - 0.1
    assert after.cell_coverage < before.cell_coverage - 0.05


def test_errors_are_those_worked_out_by_hand():
    measured = np.array([100.0, 100.0, 200.0, np.nan])
    mid = np.array([110.0, 80.0, 200.0, 5.0])
    bounds = Bounds(mid * 0.9, mid, mid * 1.1)
    found = score(measured, bounds, np.array(["a", "a", "b", "c"]))
    assert found is not None
    assert (found.n_rows, found.n_cells) == (3, 2)
    assert found.mape == pytest.approx(10.0)
    assert found.median == pytest.approx(10.0)
    assert found.coverage == pytest.approx(2 / 3)
    assert found.cell_coverage == pytest.approx((0.5 + 1) / 2)
    assert found.width == pytest.approx(1.1 / 0.9)
    logs = np.log([100, 100, 200])
    left = np.log([100 / 110, 100 / 80, 1.0])
    assert found.log_r2 == pytest.approx(1 - (left**2).sum() / ((logs - logs.mean()) ** 2).sum())


def test_the_standard_error_counts_cells_not_rows():
    measured = np.full(40, 10.0)
    found = score(
        measured, Bounds(measured, measured, measured), np.repeat(["a", "b", "c", "d"], 10)
    )
    assert found.standard_error == pytest.approx(0.2)


def test_rows_that_are_not_answered_or_not_measured_are_not_scored():
    nan = np.full(3, np.nan)
    assert score(np.ones(3), Bounds(nan, nan, nan), np.array(["a", "b", "c"])) is None
    assert score(nan, Bounds(*[np.ones(3)] * 3), np.array(["a", "b", "c"])) is None


def test_baselines_are_scored_on_the_same_rows(measured_rows):
    found = evaluation(measured_rows, toy(measured_rows), "cell")
    assert found.score("output_tok_s", "all", ROOFLINE).mape == pytest.approx(100.0)
    with pytest.raises(KeyError, match="output_tok_s of all by nearest cell"):
        found.score("output_tok_s", "all", NEAREST)


def test_each_group_left_out_is_told_with_its_tiers(measured_rows):
    held = toy(measured_rows)
    gpus = measured_rows.groups["gpu"]
    tiers = np.where(gpus == "H100", "out", np.where(gpus == "H200", "low", "in"))
    folds = np.unique(gpus, return_inverse=True)[1]
    found = evaluation(measured_rows, replace(held, tiers=tiers, folds=folds), "gpu")
    by_name = {group.group: group for group in found.groups}
    assert found.groups[0].group == "H100"
    assert by_name["H100"].tiers == {"in": 0, "low": 0, "out": by_name["H100"].n_rows}
    assert list(by_name["H200"].scores) == ["low"]
    assert sum(found.tiers.values()) == len(measured_rows)
