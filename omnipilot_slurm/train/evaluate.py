"""Predict every row from a model that was fitted without its group.

In: a dataset, what to split by. Out: `Held`, predictions of all rows with the physics and the
nearest measured row beside them. Called by `omnipilot evaluate`, the report and the benchmark.

Nothing can leak: for each outer fold the whole model, its offsets and its support included, is
fitted by `fit` on a dataset that the held-out rows were taken from and that it cannot reach; the
rows asked for carry no measurements; and folds that split a group are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.predict.predictor import Bounds, Predictor
from omnipilot_slurm.predict.roofline import roofline, work
from omnipilot_slurm.predict.support import envelope_of, judge
from omnipilot_slurm.train.fit import fit
from omnipilot_slurm.train.folds import grouped_folds, leave_one_out
from omnipilot_slurm.train.neighbour import nearest_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnipilot_slurm.predict.rows import FloatArray, IntArray, TextArray
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.ensembles import Settings

#: what can be held out, and whether one group at a time or in five folds
SPLITS = {
    "cell": False,
    "workload": False,
    "architecture": False,
    "family": True,
    "gpu": True,
    "source": True,
}
N_FOLDS = 5
_MIN_FOLDS = 2


@dataclass(frozen=True, slots=True)
class Held:
    """Predictions of all rows out of fold, arrays of shape (n_rows,).

    `targets` are the model's bounds, `physics` the roofline's values with coefficients fitted
    without the row, `nearest` the position of the nearest row of the same arm outside the row's
    fold (-1: none), `axes` the first axis outside ("" inside).
    """

    targets: Mapping[str, Bounds]
    physics: Mapping[str, FloatArray]
    nearest: IntArray
    tiers: TextArray
    axes: TextArray
    folds: IntArray


def outer_folds(data: Dataset, split: str, seed: int | None = None) -> IntArray:
    """Return the outer fold of every row."""
    groups = data.groups[split]
    return leave_one_out(groups) if SPLITS[split] else grouped_folds(groups, N_FOLDS, seed)


def held_out(
    data: Dataset,
    split: str,
    settings: Settings,
    *,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Held:
    """Predict every row by a model that saw no row of its group.

    Raises: DataError when there is but one group, so that nothing is left to learn from.
    """
    folds = outer_folds(data, split, seed)
    check_apart(data.groups[split], folds, split)
    parts = []
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        progress(f"{split}: fold {fold + 1} of {folds.max() + 1}, {len(held)} rows held out")
        parts.append((held, _predicted(data.take(kept), _blind(data.take(held)), kept, settings)))
    return _gathered(len(data), folds, parts)


def tiers_out_of_fold(data: Dataset, split: str) -> TextArray:
    """Return the tier (n_rows,) of every row by the support of the rows outside its fold.

    The same as `held_out` finds, in seconds: support does not depend on what is fitted.
    """
    folds = outer_folds(data, split)
    check_apart(data.groups[split], folds, split)
    tiers = np.empty(len(data), dtype="<U3")
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        envelope = envelope_of(data.table.take(kept), data.groups["cell"][kept].tolist())
        tiers[held] = [each.tier for each in judge(data.table.take(held), envelope)]
    return tiers


def check_apart(groups: TextArray, folds: IntArray, split: str) -> None:
    """Refuse folds (n_rows,) that leave nothing to learn from or hold out half a group.

    Raises: DataError naming a group that is on both sides.
    """
    if len(np.unique(folds)) < _MIN_FOLDS:
        raise DataError(
            f"split by {split}: must have at least {_MIN_FOLDS} groups, all rows are of "
            f"{str(groups[0])!r}"
        )
    folds_of: dict[str, set[int]] = {}
    for group, fold in zip(groups.tolist(), folds.tolist(), strict=True):
        folds_of.setdefault(group, set()).add(fold)
    for group, found in folds_of.items():
        if len(found) > 1:
            raise DataError(
                f"split by {split}: a group must be held out whole, {group!r} is in the folds "
                f"{', '.join(map(str, sorted(found)))}"
            )


def _blind(asked: Dataset) -> Dataset:
    """Return the rows without what was measured on them."""
    return replace(asked, measured={}, n_repeats=np.zeros(len(asked)))


def _predicted(known: Dataset, asked: Dataset, positions: IntArray, settings: Settings) -> Held:
    """Fit on the known rows and predict the asked ones; `positions` are those of known rows."""
    model = fit(known, settings).model
    found = Predictor(model).predict_table(asked.table)
    values = roofline(asked.table, work(asked.table), model.coefficients)
    near = nearest_rows(known, asked)
    return Held(
        targets=found.targets,
        physics={name: getattr(values, name) for name in type(values).__slots__},
        nearest=np.where(near < 0, -1, positions[near]),
        tiers=np.array([each.tier for each in found.support]),
        axes=np.array([each.axes[0] if each.axes else "" for each in found.support]),
        folds=np.zeros(len(asked), dtype=np.int64),
    )


def _gathered(n_rows: int, folds: IntArray, parts: list[tuple[IntArray, Held]]) -> Held:
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    helds = [held for _, held in parts]

    def joined(values: list[FloatArray]) -> FloatArray:
        return np.concatenate(values)[order]

    assert len(order) == n_rows
    return Held(
        targets={
            name: Bounds(
                *(
                    joined([getattr(held.targets[name], bound) for held in helds])
                    for bound in ("lo", "mid", "hi")
                )
            )
            for name in helds[0].targets
        },
        physics={name: joined([held.physics[name] for held in helds]) for name in helds[0].physics},
        nearest=np.concatenate([held.nearest for held in helds])[order],
        tiers=np.concatenate([held.tiers for held in helds])[order],
        axes=np.concatenate([held.axes for held in helds])[order],
        folds=folds,
    )
