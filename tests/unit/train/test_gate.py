"""A new model replaces the old one only where cells that neither has seen do not get worse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_site import made_site

from omnipilot_slurm.train.gate import MIN_CELLS, Verdict, judged

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset

GOOD = Verdict(
    target="output_tok_s",
    n_rows=40,
    n_cells=20,
    old_mape=30.0,
    new_mape=10.0,
    old_coverage=0.5,
    new_coverage=0.8,
    error_bound=-12.34,
    coverage_bound=-0.2,
)


def verdicts(
    model: CostModel, rows: Dataset, n_rows: int, known: int, **site: float
) -> list[Verdict]:
    place = made_site(model, rows, n_rows, **site)
    return list(judged(place, np.arange(n_rows), np.arange(n_rows) < known))


@pytest.fixture(scope="module")
def slow_site(small_model: CostModel, measured_rows: Dataset) -> list[Verdict]:
    return verdicts(small_model, measured_rows, 16, 0)


def test_a_site_that_is_off_gets_its_correction(slow_site: list[Verdict]) -> None:
    first = slow_site[0]
    assert first.is_promoted
    assert first.new_mape < first.old_mape / 3
    assert first.error_bound is not None
    assert first.error_bound < -30


def test_a_target_without_rows_says_nothing(slow_site: list[Verdict]) -> None:
    power = slow_site[3]
    assert (power.target, power.n_rows, power.n_cells) == ("power_w", 0, 0)
    assert power.reason == "measured in 0 cells, at least 5 are needed"


def test_a_site_that_contradicts_itself_keeps_what_it_has(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    first = verdicts(small_model, measured_rows, 12, 0, factor=1.0, scatter=0.9)[0]
    assert not first.is_promoted
    assert first.error_bound is not None
    assert first.error_bound > 1


def test_rows_that_the_old_model_knew_count_for_it_too(
    slow_site: list[Verdict], small_model: CostModel, measured_rows: Dataset
) -> None:
    same = verdicts(small_model, measured_rows, 16, 16)[0]
    assert (same.old_mape, same.old_coverage) == (same.new_mape, same.new_coverage)
    # the same rows again, so this is also the same verdict again
    assert (same.new_mape, same.new_coverage) == (slow_site[0].new_mape, slow_site[0].new_coverage)
    assert same.error_bound == same.coverage_bound == 0.0
    assert same.is_promoted


def test_too_few_cells_say_nothing(small_model: CostModel, measured_rows: Dataset) -> None:
    first = verdicts(small_model, measured_rows, MIN_CELLS - 1, 0)[0]
    assert not first.is_promoted
    assert first.reason == "measured in 4 cells, at least 5 are needed"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "at most -12.3 points of error, at most -0.20 of coverage short (95 %)"),
        ({"error_bound": 1.2}, "at most +1.2 points of error, allowed are +1.0"),
        ({"coverage_bound": 0.2}, "at most +0.20 of coverage short, allowed are +0.15"),
        (
            {"error_bound": 3.0, "coverage_bound": 0.2},
            (
                "at most +3.0 points of error, allowed are +1.0; "
                "at most +0.20 of coverage short, allowed are +0.15"
            ),
        ),
    ],
)
def test_the_reason_says_what_was_measured_and_what_is_allowed(
    change: dict[str, float], reason: str
) -> None:
    verdict = replace(GOOD, **change)
    assert verdict.reason == reason
    assert verdict.is_promoted == (not change)
