"""A group never straddles two folds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold

from omnipilot_slurm.train.folds import grouped_folds, leave_one_out

_groups = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=80).map(np.array)


@given(_groups, st.integers(1, 7), st.none() | st.integers(0, 99))
def test_a_group_is_whole_in_one_fold(groups: np.ndarray, n_folds: int, seed: int | None) -> None:
    folds = grouped_folds(groups, n_folds, seed)
    assert set(folds) <= set(range(n_folds))
    for group in set(groups):
        assert len(set(folds[groups == group])) == 1


@given(_groups, st.integers(2, 5))
def test_without_a_seed_folds_are_as_full_as_scikit_learns(
    groups: np.ndarray, n_folds: int
) -> None:
    if len(set(groups)) < n_folds:
        return
    own = [len(test) for _, test in GroupKFold(n_folds).split(groups, groups=groups)]
    ours = np.bincount(grouped_folds(groups, n_folds), minlength=n_folds)
    assert sorted(ours) == sorted(own)


@given(_groups, st.integers(0, 99))
def test_a_seed_gives_the_same_folds_again(groups: np.ndarray, seed: int) -> None:
    np.testing.assert_array_equal(grouped_folds(groups, 4, seed), grouped_folds(groups, 4, seed))


def test_another_seed_gives_other_folds() -> None:
    groups = np.array([f"g{i}" for i in range(40)])
    assert (grouped_folds(groups, 5, 1) != grouped_folds(groups, 5, 2)).any()


@given(_groups)
def test_leaving_one_out_has_a_fold_for_each_group(groups: np.ndarray) -> None:
    folds = leave_one_out(groups)
    assert len(set(zip(folds, groups, strict=True))) == len(set(folds)) == len(set(groups))


@pytest.mark.parametrize("n_folds", [1, 3])
def test_every_fold_of_many_groups_is_used(n_folds: int) -> None:
    groups = np.array([f"g{i}" for i in range(12)])
    assert set(grouped_folds(groups, n_folds)) == set(range(n_folds))
