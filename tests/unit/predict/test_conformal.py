"""Offsets keep their promise by cell: monotone, nested, infinite where cells are too few."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.predict.conformal import (
    EVERYTHING,
    MIN_CELLS,
    calibrate,
    groups_of,
    offset,
    scores,
)

_floats = st.floats(-5, 5)


@st.composite
def scored_cells(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 60))
    values = draw(st.lists(_floats, min_size=n, max_size=n))
    cells = draw(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=n, max_size=n))
    return np.array(values), np.array(cells)


def test_a_score_is_how_far_a_value_lies_outside_its_quantiles() -> None:
    lo, hi = np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(scores(lo, hi, np.array([-2.0, 0.25, 1.5])), [2.0, -0.25, 0.5])


def test_q_is_the_smallest_score_of_rank_n_plus_1_times_1_minus_alpha() -> None:
    # 9 cells, alpha 0.2: rank ceil(10 x 0.8) = 8
    found = np.array([5.0, 3.0, 9.0, 1.0, 7.0, 2.0, 8.0, 4.0, 6.0])
    assert offset(found, np.array(list("abcdefghi")), 0.2) == 8.0


def test_with_too_few_cells_there_is_no_interval() -> None:
    cells = np.array(["a", "b", "c"] * 20)
    assert offset(np.arange(60.0), cells, 0.2) == math.inf
    assert offset(np.arange(4.0), np.array(list("abcd")), 0.2) == 3.0


@given(scored_cells(), st.floats(0.02, 0.6), st.floats(0.02, 0.6))
def test_more_confidence_never_gives_a_narrower_interval(
    scored: tuple[np.ndarray, np.ndarray], one: float, other: float
) -> None:
    values, cells = scored
    low, high = sorted((one, other))
    assert offset(values, cells, low) >= offset(values, cells, high)


@given(scored_cells(), st.floats(0.02, 0.6), st.floats(0.0, 3.0))
def test_worse_scores_never_give_a_narrower_interval(
    scored: tuple[np.ndarray, np.ndarray], alpha: float, worse: float
) -> None:
    values, cells = scored
    shifted = values + worse * (values > np.median(values))
    assert offset(shifted, cells, alpha) >= offset(values, cells, alpha)


@given(scored_cells(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    scored: tuple[np.ndarray, np.ndarray], random: object
) -> None:
    values, cells = scored
    order = np.arange(len(values))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert offset(values[order], cells[order]) == offset(values, cells)


@given(st.integers(1, 30))
def test_a_cell_counts_once_however_often_it_was_measured(n_repeats: int) -> None:
    cells = np.array([f"c{i}" for i in range(20)])
    values = np.arange(20.0)
    many = np.repeat(values[-1:], n_repeats)
    again = offset(np.r_[values, many], np.r_[cells, np.repeat(cells[-1:], n_repeats)])
    assert again == offset(values, cells) == 16.0


def test_new_cells_are_covered_as_promised() -> None:
    rng = np.random.default_rng(0)
    n_cells, n_trials, alpha = 60, 400, 0.2
    covered = 0
    for _ in range(n_trials):
        of_cell = rng.normal(size=n_cells)
        rows = np.repeat(np.arange(n_cells), rng.integers(1, 9, n_cells))
        found = np.abs(of_cell[rows] + 0.2 * rng.normal(size=len(rows)))
        q = offset(found, rows.astype(np.str_), alpha)
        covered += abs(rng.normal() + 0.2 * rng.normal()) <= q
    tolerance = 3 * math.sqrt(alpha * (1 - alpha) / n_trials)
    assert covered / n_trials == pytest.approx(1 - alpha + 0.5 * alpha / n_cells, abs=tolerance)


def test_a_group_of_enough_cells_has_its_own_offset_and_others_the_next_wider() -> None:
    n = 2 * MIN_CELLS
    gpus = ["a"] * n + ["b"] * (MIN_CELLS - 1)
    cells = np.array([f"cell {i}" for i in range(len(gpus))])
    found = np.array([1.0] * n + [5.0] * (MIN_CELLS - 1))
    groups = [groups_of("online", gpu) for gpu in gpus]
    offsets = calibrate({"ttft_ms": found, "power_w": np.full(len(found), np.nan)}, cells, groups)
    assert offsets.of("ttft_ms", groups_of("online", "a")) == 1.0
    assert offsets.of("ttft_ms", groups_of("online", "b")) == 5.0
    assert offsets.n_cells["ttft_ms"] == {
        "online|a": n,
        "online": n + MIN_CELLS - 1,
        EVERYTHING: n + MIN_CELLS - 1,
    }
    # another load mode falls back on everything, a target that nobody measured on nothing
    assert offsets.of("ttft_ms", groups_of("offline", "a")) == 5.0
    assert offsets.of("power_w", groups_of("online", "a")) == math.inf
