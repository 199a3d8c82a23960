"""A fit is the same again for the same seed, and sees nothing that is held out of it."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.predict.roofline import Coefficients, roofline, work
from omnipilot_slurm.train.card import about
from omnipilot_slurm.train.ensembles import MIN_ROWS, Settings
from omnipilot_slurm.train.fit import N_BAND_FOLDS, N_CENTRE_FOLDS, best_shares, fit
from omnipilot_slurm.train.physics import fit_coefficients

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.fit import Fit

TINY = Settings(forest_trees=2, band_trees=2, band_leaves=3, n_jobs=1)


@pytest.fixture(scope="module")
def few(measured_rows: Dataset) -> Dataset:
    return measured_rows.take(np.arange(0, len(measured_rows), 2))


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tiny(few: Dataset, steps: list[str]) -> Fit:
    return fit(few, TINY, steps.append)


def files(folder: Path, fitted: Fit, data: Dataset, settings: Settings) -> list[bytes]:
    artifact.write(folder, fitted.model, about(data, fitted, settings))
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_the_same_rows_and_seed_give_the_same_files_with_any_number_of_threads(
    tmp_path: Path, few: Dataset, tiny: Fit
) -> None:
    again = fit(few, replace(TINY, n_jobs=2))
    assert files(tmp_path / "a", tiny, few, TINY) == files(tmp_path / "b", again, few, TINY)


def test_another_seed_gives_other_trees_and_the_same_physics(few: Dataset, tiny: Fit) -> None:
    other = fit(few, replace(TINY, seed=1))
    assert other.model.coefficients == tiny.model.coefficients
    assert len(other.model.forest.value) != len(tiny.model.forest.value)


def test_every_step_is_told(tiny: Fit, steps: list[str]) -> None:
    assert steps[:2] == ["roofline", "kernel"]
    assert sum(step.startswith("forest without fold ") for step in steps) == N_CENTRE_FOLDS
    assert sum(step.startswith("quantiles without fold ") for step in steps) == N_BAND_FOLDS
    assert steps[-1] == "final trees"


def test_offsets_come_from_scores_of_rows_not_seen(tiny: Fit, few: Dataset) -> None:
    assert set(tiny.scores) == set(tiny.missed) == set(LEARNED)
    for target in LEARNED:
        q = tiny.model.offsets.by_target[target][""]
        weights = 1 / np.array([np.sum(few.groups["cell"] == cell) for cell in few.groups["cell"]])
        inside = float(np.sum(weights * (tiny.scores[target] <= q)) / np.sum(weights))
        assert 0.8 <= inside <= 0.84


def test_a_target_that_few_rows_measure_is_not_learned_and_not_answered(few: Dataset) -> None:
    power = np.full(len(few), np.nan)
    power[: MIN_ROWS - 1] = few.measured["power_w"][: MIN_ROWS - 1]
    fitted = fit(replace(few, measured={**few.measured, "power_w": power}), TINY)
    assert np.isnan(fitted.missed["power_w"]).all()
    found = Predictor(fitted.model).predict(few.rows)
    assert np.isnan(found.targets["power_w"].mid).all()
    assert np.isfinite(found.targets["output_tok_s"].mid).all()
    assert about(few, fitted, TINY)["metrics"]["power_w"] == {"n_rows": 0}


def test_the_card_says_what_was_learned_on(few: Dataset, tiny: Fit) -> None:
    card = about(few, tiny, TINY)
    assert card["data"]["n_rows"] == len(few)
    assert sum(card["data"]["rows_by_gpu"].values()) == len(few)
    assert card["data"]["hash"] == few.data_hash
    assert "n_jobs" not in card["settings"]
    assert card["metrics"]["output_tok_s"]["n_rows"] == len(few)


def test_physics_is_recovered_from_rows_made_of_it(measured_rows: Dataset) -> None:
    true = Coefficients(
        math=1.3, kv=1.1, weights=1.2, link=5.0, layer=6e-5, offline_layer=5e-5, moe_layer=4e-5,
        shard_layer=1e-5, request=4e-5, offline_request=5e-5, prefill_math=1.5,
        prefill_attention=2.0, prefill_link=3.0, prefill=2e-3, first_token=3e-2, queue=0.1,
        interference=0.4, moe=2.5, amd=1.0, intel=1.0,
    )  # fmt: skip
    rows = measured_rows.table
    made = roofline(rows, work(rows), true)
    measured = {name: getattr(made, name) for name in ("output_tok_s", "tpot_ms", "ttft_ms")}
    found = fit_coefficients(rows, measured)
    again = roofline(rows, work(rows), found)
    for name, values in measured.items():
        error = np.abs(np.log(getattr(again, name) / values))
        assert np.median(error) < 0.01
        assert np.quantile(error, 0.95) < 0.1
    # no row is offline or of another vendor: these stay where they were
    assert (found.amd, found.intel, found.offline_layer) == pytest.approx((1.0, 1.0, 5e-5))
    assert min(astuple(found)) > 0


def test_the_blend_takes_the_better_side_or_the_middle_of_both() -> None:
    z = np.random.default_rng(0).normal(0, 0.1, size=(400, 3))
    off = np.full(400, 0.2)
    kernel = np.column_stack([z[:, 0], z[:, 1] + off, z[:, 2] + off])
    forest = np.column_stack([z[:, 0] + off, z[:, 1], z[:, 2] - off])
    np.testing.assert_allclose(best_shares(kernel, forest, z), [1.0, 0.0, 0.5])


def test_a_target_without_rows_has_any_share() -> None:
    z = np.column_stack([np.zeros(5), np.full(5, np.nan)])
    shares = best_shares(np.zeros((5, 2)), np.ones((5, 2)), z)
    assert shares[0] == 1.0
    assert np.isfinite(shares).all()
