"""What the report on the model draws: reliability, error by axis, and the learning curve.

In: a dataset with predictions out of fold; for the learning curve a dataset alone. Out: points.
Called by `omnipilot report model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train.fit import fit
from omnipilot_slurm.train.scoring import COVERAGE, score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from omnipilot_slurm.predict.predictor import Bounds
    from omnipilot_slurm.predict.rows import BoolArray, FloatArray, IntArray, TextArray
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.ensembles import Settings
    from omnipilot_slurm.train.evaluate import Held

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: shares of the cells outside the fold that the learning curve fits on, before all of them
SHARES = (0.06, 0.12, 0.25, 0.5)
#: folds that each point of the learning curve holds out
N_CURVE_FOLDS = 2
#: edges of the bins of numeric axes
_EDGES: Mapping[str, tuple[float, ...]] = {
    "concurrency": (1, 4, 16, 64, 256, 1024),
    "params_b": (1, 8, 15, 40, 100, 300),
    "context": (256, 1024, 2048, 4096, 8192),
    "n_gpus": (1, 2, 4, 8),
}
_LABELS = ("gpu", "precision", "load_mode", "family")


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisError:
    """The error of the rows with one value, or one range of values, of an axis."""

    axis: str
    value: str
    n_rows: int
    n_cells: int
    mape: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The error of one target when fitted on a share of the cells outside the fold."""

    target: str
    share: float
    mape: float
    median: float


def reliability(
    measured: FloatArray, bounds: Bounds, cells: TextArray, chosen: BoolArray
) -> tuple[float, ...]:
    """Return the share inside by level of LEVELS, each cell counting once; empty without rows.

    The interval of level p is the 80 % interval with its log-widths times z(p) / z(0.8): the
    normal shape by which the utility reads a probability off it.
    """
    rows = chosen & np.isfinite(measured) & np.isfinite(bounds.mid)
    if not rows.any():
        return ()
    true, lo, mid, hi = (v[rows] for v in (measured, bounds.lo, bounds.mid, bounds.hi))
    _, index, counts = np.unique(cells[rows], return_inverse=True, return_counts=True)
    missed = np.log(true / mid)
    width = np.where(missed < 0, np.log(mid / lo), np.log(hi / mid))
    beyond = np.abs(missed) / np.maximum(width, 1e-12) * _deviate(COVERAGE)
    weights = 1 / counts[index]
    return tuple(float(np.average(beyond <= _deviate(level), weights=weights)) for level in LEVELS)


def _deviate(level: float) -> float:
    """Return how many standard deviations hold a share of a normal in the middle."""
    return NormalDist().inv_cdf((1 + level) / 2)


def errors_by_axis(data: Dataset, held: Held, target: str) -> Iterator[AxisError]:
    """Yield the error by value of each axis, in the order of the axis."""
    for axis, values in _axes(data):
        for value in dict.fromkeys(_in_order(axis, values)):
            found = score(
                data.measured[target],
                held.targets[target],
                data.groups["cell"],
                np.array([each == value for each in values]),
            )
            if found is not None:
                yield AxisError(
                    axis=axis,
                    value=value,
                    n_rows=found.n_rows,
                    n_cells=found.n_cells,
                    mape=found.mape,
                    median=found.median,
                )


def _axes(data: Dataset) -> Iterator[tuple[str, Sequence[str]]]:
    x = data.table.numbers
    numbers = {**x, "context": x["isl"] + x["osl"]}
    for axis, edges in _EDGES.items():
        yield axis, [_bin(value, edges) for value in numbers[axis].tolist()]
    for axis in _LABELS:
        yield axis, data.table.labels[axis].tolist()


def _bin(value: float, edges: Sequence[float]) -> str:
    at = max(int(np.searchsorted(edges, value, side="right")) - 1, 0)
    if at == len(edges) - 1:
        return f"{edges[at]:g}+"
    return f"{edges[at]:g} to < {edges[at + 1]:g}"


def _in_order(axis: str, values: Sequence[str]) -> list[str]:
    if axis not in _EDGES:
        return sorted(values)
    return sorted(values, key=lambda text: float(text.rstrip("+").split(" ")[0]))


def learning_curve(
    data: Dataset,
    held: Held,
    settings: Settings,
    *,
    shares: Sequence[float] = SHARES,
    progress: Callable[[str], None] = lambda _: None,
) -> list[CurvePoint]:
    """Return the error on N_CURVE_FOLDS folds by cell, fitted on a share of the other cells.

    The last point is that of `held`, which was fitted on all of them. The cells of a smaller share
    are among those of a larger one, drawn by the settings' seed.
    """
    errors: dict[tuple[float, str], list[FloatArray]] = {}
    for fold in range(N_CURVE_FOLDS):
        rows = np.flatnonzero(held.folds == fold)
        for share, known in _shares(data, held.folds != fold, shares, settings.seed):
            progress(f"learning curve: fold {fold + 1}, {share:.0%} of the cells")
            model = fit(data.take(known), settings).model
            found = Predictor(model).predict_table(data.table.take(rows)).targets
            for target in LEARNED:
                error = _errors(data.measured[target][rows], found[target].mid)
                errors.setdefault((share, target), []).append(error)
        for target in LEARNED:
            error = _errors(data.measured[target][rows], held.targets[target].mid[rows])
            errors.setdefault((1.0, target), []).append(error)
    joined = {key: np.concatenate(parts) for key, parts in errors.items()}
    return [
        CurvePoint(
            target=target, share=share, mape=float(each.mean()), median=float(np.median(each))
        )
        for (share, target), each in joined.items()
        if len(each)
    ]


def _shares(
    data: Dataset, outside: BoolArray, shares: Sequence[float], seed: int
) -> Iterator[tuple[float, IntArray]]:
    """Yield each share of the cells outside the fold and the positions of their rows."""
    cells = data.groups["cell"]
    drawn = np.random.default_rng(seed).permutation(np.unique(cells[outside]))
    for share in shares:
        some = drawn[: max(round(share * len(drawn)), 1)]
        yield share, np.flatnonzero(np.isin(cells, some))


def _errors(measured: FloatArray, predicted: FloatArray) -> FloatArray:
    """Return the errors in percent of rows that are measured and answered."""
    error: FloatArray = 100 * np.abs(predicted / measured - 1)
    return error[np.isfinite(error)]
