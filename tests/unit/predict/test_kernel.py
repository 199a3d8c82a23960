"""The kernel says what its formula says, row by row, however many are asked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.predict.features import features
from omnipilot_slurm.predict.kernel import Kernel, facing

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.rows import FloatArray
    from omnipilot_slurm.train.dataset import Dataset


def kernel_of(anchors: FloatArray, duals: FloatArray, means: FloatArray) -> Kernel:
    n_columns = anchors.shape[1]
    return Kernel(
        used=np.arange(n_columns),
        origin=np.zeros(n_columns),
        scales=np.ones(n_columns),
        anchors=facing(anchors).astype(np.float32),
        duals=duals.astype(np.float32),
        means=means,
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 150), st.integers(1, 300))
def test_values_and_densities_are_those_of_the_formula(seed: int, n_rows: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rows, anchors = rng.normal(size=(n_rows, 3)), rng.normal(size=(n, 3))
    duals, means = rng.normal(size=(n, 2)), rng.normal(size=2)
    duals[rng.random(duals.shape) < 0.3] = 0.0
    found = kernel_of(anchors, duals, means).smooth(rows)
    distance = np.square(rows[:, None, :] - anchors[None, :, :]).sum(axis=2)
    alike = 1 / (1 + distance / 2)
    np.testing.assert_allclose(found.values, means + alike @ duals, rtol=0, atol=1e-3)
    np.testing.assert_allclose(found.density, alike**4 @ (duals != 0), rtol=1e-3, atol=1e-4)


def test_a_row_is_smoothed_alike_alone_and_among_many(
    measured_rows: Dataset, small_model: CostModel
) -> None:
    matrix = features(measured_rows.table, small_model.columns, small_model.coefficients).matrix
    whole = small_model.kernel.smooth(matrix)
    alone = np.vstack([small_model.kernel.smooth(row[None, :]).values for row in matrix])
    np.testing.assert_allclose(whole.values, alone, rtol=0, atol=1e-4)


def test_far_from_everything_only_the_mean_is_left() -> None:
    kernel = kernel_of(np.zeros((5, 2)), np.ones((5, 1)), np.array([0.7]))
    far = kernel.smooth(np.array([[1e4, 1e4]]))
    np.testing.assert_allclose(far.values, [[0.7]], atol=1e-6)
    assert far.density[0, 0] < 1e-12


def test_rows_without_a_target_do_not_count_for_its_density() -> None:
    kernel = kernel_of(np.zeros((4, 1)), np.array([[1.0, 0.0]] * 4), np.zeros(2))
    np.testing.assert_allclose(kernel.smooth(np.zeros((1, 1))).density, [[4.0, 0.0]])
