"""Leaving rows out in closed form is leaving them out; outliers do not bend the surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.predict.features import features
from omnipilot_slurm.train.kernel_fit import LENGTHS, fit_kernel, left_out_residuals, scales

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(6, 40), st.integers(2, 5))
def test_leaving_out_in_closed_form_is_refitting_without(seed: int, n: int, n_folds: int) -> None:
    rng = np.random.default_rng(seed)
    x, z, folds = rng.normal(size=(n, 2)), rng.normal(size=n), rng.integers(0, n_folds, n)
    alike = 1 / (1 + np.square(x[:, None] - x[None]).sum(axis=2) / 2)
    noise = 0.1 * np.eye(n)
    inverse = np.linalg.inv(alike + noise)
    missed = left_out_residuals(inverse, inverse @ z, folds)
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(kept):
            continue
        duals = np.linalg.solve((alike + noise)[np.ix_(kept, kept)], z[kept])
        expected = z[held] - alike[np.ix_(held, kept)] @ duals
        np.testing.assert_allclose(missed[held], expected, rtol=1e-6, atol=1e-8)


def test_the_fitted_kernel_passes_near_the_rows_it_has_seen(
    measured_rows: Dataset, small_model: CostModel
) -> None:
    matrix = features(measured_rows.table, small_model.columns, small_model.coefficients).matrix
    z = np.column_stack([np.sin(matrix[:, 0]), np.full(len(matrix), np.nan)])
    folds = np.arange(len(z)) % 5
    found = fit_kernel(matrix, small_model.columns.names, z, folds, np.zeros(len(z), dtype=bool))
    seen = found.kernel.smooth(matrix).values[:, 0]
    assert np.median(np.abs(seen - z[:, 0])) < 0.02
    assert np.isnan(found.out_of_fold[:, 1]).all()
    assert (found.density[:, 1] == 0).all()


def test_one_slow_host_does_not_bend_the_surface_around_it(
    measured_rows: Dataset, small_model: CostModel
) -> None:
    matrix = features(measured_rows.table, small_model.columns, small_model.coefficients).matrix
    folds, ours = np.arange(len(matrix)) % 5, np.zeros(len(matrix), dtype=bool)
    names = small_model.columns.names
    z = 0.1 * matrix[:, [names.index("log_concurrency")]]
    wrong = z.copy()
    wrong[7] += 3.0
    others = np.arange(len(z)) != 7
    before = fit_kernel(matrix, names, z, folds, ours).kernel.smooth(matrix).values
    after = fit_kernel(matrix, names, wrong, folds, ours).kernel.smooth(matrix).values
    assert np.abs(after - before)[others].max() < 0.5


def test_columns_that_are_not_named_do_not_count() -> None:
    used, factors = scales(("log_params_b", "log_tdp", "gpu=h100", "gpu=b200"), LENGTHS)
    assert used.tolist() == [0, 2, 3]
    assert factors.tolist() == [1 / LENGTHS["log_params_b"], *[1 / LENGTHS["gpu"]] * 2]
