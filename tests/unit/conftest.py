"""What tests of the cost model share: measured rows, and a small model fitted on them once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.fit import Fit


@pytest.fixture(scope="session")
def serving_csv() -> Path:
    return Path(__file__).parents[1] / "fixtures" / "serving" / "rows.csv"


@pytest.fixture(scope="session")
def measured_rows(serving_csv: Path) -> Dataset:
    """The rows, with a power beside them, which they do not measure: a share of the GPUs' limit."""
    from omnipilot_slurm.train.load import load_dataset

    data = load_dataset([serving_csv], lambda _: None)
    x = data.table.numbers
    power = x["n_gpus"] * x["tdp_w"] * (0.3 + 0.05 * (x["concurrency"] ** 0.3))
    return replace(data, measured={**data.measured, "power_w": power})


@pytest.fixture(scope="session")
def small_fit(measured_rows: Dataset) -> Fit:
    from omnipilot_slurm.train.ensembles import Settings
    from omnipilot_slurm.train.fit import fit

    settings = Settings(forest_trees=3, band_trees=6, band_leaves=4, n_jobs=1)
    return fit(measured_rows, settings)


@pytest.fixture(scope="session")
def small_model(small_fit: Fit) -> CostModel:
    return small_fit.model
