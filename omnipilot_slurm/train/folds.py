"""Folds that never split a group.

In: the group of each row. Out: the fold of each row. Called by train/fit.py and evaluate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import IntArray, TextArray


def grouped_folds(groups: TextArray, n_folds: int, seed: int | None = None) -> IntArray:
    """Return a fold number a row, groups kept whole and folds about equal in rows.

    Without a seed the largest group goes first, each into the fold with the fewest rows so far
    (scikit-learn's GroupKFold); a seed shuffles the groups before, for repeats with other folds.
    """
    names, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if seed is None:
        order = np.argsort(counts)[::-1]
    else:
        order = np.random.default_rng(seed).permutation(len(names))
    filled = np.zeros(n_folds)
    fold_of = np.empty(len(names), dtype=np.int64)
    for group in order:
        fold_of[group] = int(np.argmin(filled))
        filled[fold_of[group]] += counts[group]
    return fold_of[index]


def leave_one_out(groups: TextArray) -> IntArray:
    """Return a fold number a row, one fold a group."""
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)
