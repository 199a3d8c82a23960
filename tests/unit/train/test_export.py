"""Packed trees say what scikit-learn's say, tree by tree, also on the edge of every split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.predict.features import features
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import bases
from omnipilot_slurm.train import ensembles
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.export import NOTHING, boosted, pack, randomised

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.rows import FloatArray
    from omnipilot_slurm.predict.trees import Trees
    from omnipilot_slurm.train.dataset import Dataset

SETTINGS = Settings(forest_trees=5, band_trees=8, band_leaves=6, n_jobs=1)


class Fitted:
    """Ensembles as scikit-learn has them, the same packed, and the matrix they were fitted on."""

    def __init__(self, matrix: FloatArray, z: FloatArray) -> None:
        self.matrix = matrix
        self.forests = ensembles.forests(matrix, z, SETTINGS)
        bands = ensembles.bands(np.hstack([matrix, np.zeros((len(z), 12))]), z, SETTINGS)
        self.bands = [model for models in bands for model in models]
        self.packed_forests = pack([randomised(model) for model in self.forests])
        self.packed_bands = pack([boosted(model) for model in self.bands])


@pytest.fixture(scope="module")
def fitted(measured_rows: Dataset, small_model: CostModel) -> Fitted:
    found = features(measured_rows.table, small_model.columns, small_model.coefficients)
    measured = np.column_stack([measured_rows.measured[target] for target in LEARNED])
    return Fitted(found.matrix, np.log(measured / bases(measured_rows.table, found.physics)))


def own_values(model: ExtraTreesRegressor, matrix: FloatArray) -> FloatArray:
    """Return what each tree of scikit-learn's forest says, (n_trees, n_rows)."""
    narrow = matrix.astype(np.float32)
    return np.array([each.tree_.predict(narrow).ravel() for each in model.estimators_])


def own_boosted_values(model: HistGradientBoostingRegressor, matrix: FloatArray) -> FloatArray:
    known = np.zeros((0, 8), dtype=np.uint32), np.zeros(matrix.shape[1], dtype=np.uint32)
    trees: list[TreePredictor] = [tree for (tree,) in model._predictors]
    return np.array([tree.predict(matrix, *known, 1) for tree in trees])


def on_the_edges(trees: Trees, matrix: FloatArray, seed: int) -> FloatArray:
    """Return rows whose numbers are thresholds of splits, their 32-bit neighbours, or infinite."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(matrix)[:60].copy()
    for column in np.unique(trees.column):
        cuts = trees.threshold[(trees.column == column) & np.isfinite(trees.threshold)]
        if not len(cuts):
            continue
        chosen = rng.choice(cuts, len(rows))
        up, down = np.nextafter(chosen, np.float32(np.inf)), np.nextafter(chosen, -np.float32(1e38))
        ends = np.full(len(rows), np.float32(np.inf))
        kind = rng.integers(0, 6, len(rows))
        picked = np.choose(np.minimum(kind, 4), [chosen, up, down, ends, -ends])
        rows[:, column] = np.where(kind == 5, rows[:, column], picked)
    return rows.astype(np.float32).astype(np.float64)


def test_every_randomised_tree_says_what_scikit_learns_own_says(fitted: Fitted) -> None:
    own = np.vstack([own_values(model, fitted.matrix) for model in fitted.forests])
    assert len(own) == len(LEARNED) * SETTINGS.forest_trees
    np.testing.assert_allclose(
        fitted.packed_forests.leaf_values(fitted.matrix), own, rtol=0, atol=1e-9
    )


def test_every_boosted_tree_says_what_scikit_learns_own_says(fitted: Fitted) -> None:
    wide = np.hstack([fitted.matrix, np.zeros((len(fitted.matrix), 12))])
    own = np.vstack([own_boosted_values(model, wide) for model in fitted.bands])
    assert len(own) == len(LEARNED) * 3 * SETTINGS.band_trees
    np.testing.assert_allclose(fitted.packed_bands.leaf_values(wide), own, rtol=0, atol=1e-9)


def test_every_model_predicts_what_scikit_learns_own_predicts(fitted: Fitted) -> None:
    wide = np.hstack([fitted.matrix, np.zeros((len(fitted.matrix), 12))])
    for packed, models, matrix in (
        (fitted.packed_forests, fitted.forests, fitted.matrix),
        (fitted.packed_bands, fitted.bands, wide),
    ):
        own = np.column_stack([model.predict(matrix) for model in models])
        np.testing.assert_allclose(packed.predict(matrix), own, rtol=0, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
def test_ties_neighbours_in_32_bit_and_infinities_take_scikit_learns_side(
    fitted: Fitted, seed: int
) -> None:
    rows = on_the_edges(fitted.packed_forests, fitted.matrix, seed)
    own = np.vstack([own_values(model, rows) for model in fitted.forests])
    np.testing.assert_allclose(fitted.packed_forests.leaf_values(rows), own, rtol=0, atol=1e-9)
    wide = np.hstack([fitted.matrix, np.zeros((len(fitted.matrix), 12))])
    rows = on_the_edges(fitted.packed_bands, wide, seed)
    own = np.vstack([own_boosted_values(model, rows) for model in fitted.bands])
    np.testing.assert_allclose(fitted.packed_bands.leaf_values(rows), own, rtol=0, atol=1e-9)


def test_a_row_with_a_number_that_is_none_has_no_prediction(fitted: Fitted) -> None:
    rows = fitted.matrix[:3].copy()
    rows[1, 4] = np.nan
    found = fitted.packed_forests.predict(rows)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(
        found[[0, 2]], fitted.packed_forests.predict(fitted.matrix[[0, 2]])
    )


@given(cut=st.integers(1, 40))
def test_rows_are_predicted_alike_in_blocks_of_any_size(fitted: Fitted, cut: int) -> None:
    whole = fitted.packed_forests.predict(fitted.matrix)
    parts = [fitted.matrix[at : at + cut] for at in range(0, len(fitted.matrix), cut)]
    again = np.vstack([fitted.packed_forests.predict(part) for part in parts])
    np.testing.assert_array_equal(whole, again)


def test_no_rows_have_no_predictions(fitted: Fitted) -> None:
    found = fitted.packed_forests.predict(fitted.matrix[:0])
    assert found.shape == (0, len(LEARNED))


def test_a_model_of_nothing_says_nothing_beside_one_that_does(fitted: Fitted) -> None:
    alone = pack([randomised(fitted.forests[0])]).predict(fitted.matrix)
    both = pack([NOTHING, randomised(fitted.forests[0])]).predict(fitted.matrix)
    np.testing.assert_array_equal(both, np.hstack([np.zeros((len(alone), 1)), alone]))


@given(st.floats(-1e30, 1e30, allow_nan=False))
def test_a_threshold_in_32_bit_orders_32_bit_numbers_as_before(threshold: float) -> None:
    from omnipilot_slurm.train.export import _not_above

    (narrow,) = _not_above(np.array([threshold]))
    near = np.float32(threshold)
    for x in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, -np.float32(1e38))):
        assert (float(x) <= threshold) == (x <= narrow)
