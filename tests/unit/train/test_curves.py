"""What the report draws: shares inside, errors by axis, errors by share of the cells."""

from __future__ import annotations

import numpy as np
import pytest

from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train import curves
from omnipilot_slurm.train import fit as fit_module
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import Held, outer_folds
from omnipilot_slurm.train.folds import grouped_folds

Z_80 = 1.2815515655446004
TINY = Settings(forest_trees=2, band_trees=5, band_leaves=4, n_jobs=1)


def held_at(data, factor):
    """Predictions that are a factor off, in five folds by cell."""
    return Held(
        targets={name: Bounds(y, factor * y, 2 * y) for name, y in data.measured.items()},
        physics={},
        nearest=np.full(len(data), -1),
        tiers=np.full(len(data), "in"),
        axes=np.full(len(data), ""),
        folds=grouped_folds(data.groups["cell"], 5),
    )


@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_normal_noise_is_on_the_diagonal_only_when_the_width_is_right(sharpness):
    rng = np.random.default_rng(0)
    measured = np.exp(rng.normal(0, 0.1, 20000))
    half = np.exp(Z_80 * 0.1 / sharpness)
    ones = np.ones(len(measured))
    cells = np.arange(len(measured)).astype(str)
    found = curves.reliability(measured, Bounds(ones / half, ones, ones * half), cells, ones > 0)
    right = np.abs(np.array(found) - curves.LEVELS) < 0.015
    assert right.all() if sharpness == 1.0 else not right.any()


def test_each_cell_counts_once_in_reliability():
    measured = np.array([1.0, 1.0, 1.0, 9.0])
    ones = np.ones(4)
    bounds = Bounds(ones / 1.1, ones, ones * 1.1)
    found = curves.reliability(measured, bounds, np.array(["a", "a", "a", "b"]), ones > 0)
    assert found == pytest.approx([0.5] * len(curves.LEVELS))


def test_a_group_without_rows_has_no_reliability():
    nan = np.full(2, np.nan)
    bounds = Bounds(nan, nan, nan)
    assert curves.reliability(nan, bounds, np.array(["a", "b"]), nan > 0) == ()


def test_every_row_is_in_one_bin_of_each_axis(measured_rows):
    found = list(curves.errors_by_axis(measured_rows, held_at(measured_rows, 1.1), "output_tok_s"))
    for axis in {each.axis for each in found}:
        some = [each for each in found if each.axis == axis]
        assert sum(each.n_rows for each in some) == len(measured_rows)
        assert len({each.value for each in some}) == len(some)
    assert [each.median for each in found] == pytest.approx([10.0] * len(found))


def test_bins_come_in_the_order_of_the_axis(measured_rows):
    found = list(curves.errors_by_axis(measured_rows, held_at(measured_rows, 1.1), "output_tok_s"))
    values = [each.value for each in found if each.axis == "n_gpus"]
    assert values == ["1 to < 2", "2 to < 4", "4 to < 8", "8+"]


def test_a_learning_curve_ends_with_what_was_held_out(measured_rows, monkeypatch):
    monkeypatch.setattr(fit_module, "N_CENTRE_FOLDS", 4)
    monkeypatch.setattr(fit_module, "N_BAND_FOLDS", 3)
    monkeypatch.setattr(curves, "N_CURVE_FOLDS", 1)
    said = []
    held = held_at(measured_rows, 1.1)
    found = curves.learning_curve(measured_rows, held, TINY, shares=(0.8,), progress=said.append)
    of_output = [point for point in found if point.target == "output_tok_s"]
    assert [point.share for point in of_output] == [0.8, 1.0]
    assert of_output[1].mape == pytest.approx(10.0)
    assert 0 < of_output[0].median < 100
    assert said == ["learning curve: fold 1, 80% of the cells"]


def test_no_cell_of_the_fold_is_among_those_fitted_on(measured_rows, monkeypatch):
    held = held_at(measured_rows, 1.1)
    seen = []

    def fit(data, settings):
        seen.append(set(data.groups["cell"].tolist()))
        raise StopIteration

    monkeypatch.setattr(curves, "fit", fit)
    with pytest.raises(StopIteration):
        curves.learning_curve(measured_rows, held, TINY)
    fold = set(measured_rows.groups["cell"][held.folds == 0].tolist())
    assert seen[0]
    assert not seen[0] & fold
    assert (held.folds == outer_folds(measured_rows, "cell")).all()
