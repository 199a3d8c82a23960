"""The nearest measured row of the same arm: the baseline that asks no model at all.

In: known rows, rows asked for. Out: positions of known rows. Called by evaluate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FloatArray, IntArray
    from omnipilot_slurm.train.dataset import Dataset

_FACTS = ("params_b", "active_params_b", "concurrency", "isl", "osl")


def nearest_rows(known: Dataset, asked: Dataset) -> IntArray:
    """Return for each asked row the nearest known row of its arm, -1 where the arm is new.

    Near is least distance in the logarithms of model size, concurrency and lengths.
    """
    by_arm: dict[str, list[int]] = {}
    for position, arm in enumerate(known.arms.tolist()):
        by_arm.setdefault(arm, []).append(position)
    here, there = _logs(known), _logs(asked)
    found = np.full(len(asked), -1)
    for row, arm in enumerate(asked.arms.tolist()):
        candidates = by_arm.get(arm)
        if candidates:
            distance = np.square(here[candidates] - there[row]).sum(axis=1)
            found[row] = candidates[int(np.argmin(distance))]
    return found


def _logs(data: Dataset) -> FloatArray:
    return np.log(np.column_stack([data.table.numbers[fact] for fact in _FACTS]))
