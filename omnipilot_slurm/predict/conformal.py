"""Conformalised quantile regression by cell, a group at a time (specification, section 4).

In: quantiles predicted out of fold and what was measured, in log space. Out: offsets Q, so that
[q.1 - Q, q.9 + Q] covers a new cell with probability 1 - alpha. Called by train/fit.py (offsets)
and the predictor (which offset a row gets).

With E = max(q.1 - z, z - q.9), Q is the ceil((n + 1)(1 - alpha))-th smallest of n exchangeable E
(Romano, Patterson and Candes 2019). Rows of one cell are not exchangeable, cells are: each row
weighs 1 / (rows of its cell), and n counts cells. Too few cells give Q = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.predict.rows import FloatArray, TextArray

ALPHA = 0.2
#: a group of fewer calibration cells than this shares the offset of the group above it
MIN_CELLS = 20
EVERYTHING = ""


def scores(lo: FloatArray, hi: FloatArray, z: FloatArray) -> FloatArray:
    """Return E = max(lo - z, z - hi): how far z lies outside, negative inside."""
    outside: FloatArray = np.maximum(lo - z, z - hi)
    return outside


def offset(found: FloatArray, cells: TextArray, alpha: float = ALPHA) -> float:
    """Return Q of the scores (n_rows,) of cells (n_rows,); infinity where cells are too few."""
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    wanted = (len(counts) + 1) * (1 - alpha)
    order = np.argsort(found)
    reached = np.cumsum((1 / counts[index])[order])
    # a billionth of a cell forgives the rounding of the sums of 1 / rows
    position = int(np.searchsorted(reached, wanted - 1e-9))
    return float(found[order][position]) if position < len(found) else float("inf")


@dataclass(frozen=True, slots=True)
class Offsets:
    """Q by target and group; `n_cells` how many cells stand behind each.

    A row's groups are tried in order, narrow to wide; the widest is EVERYTHING.
    """

    by_target: Mapping[str, Mapping[str, float]]
    n_cells: Mapping[str, Mapping[str, int]]

    def of(self, target: str, groups: Sequence[str]) -> float:
        """Return the offset for a row of these groups, infinity where none of them is known."""
        known = self.by_target[target]
        return next((known[group] for group in groups if group in known), float("inf"))


def groups_of(load_mode: str, gpu: str) -> tuple[str, str, str]:
    """Return the calibration groups of a row, narrow to wide: its GPU in its load mode first."""
    return (f"{load_mode}|{gpu}", load_mode, EVERYTHING)


def calibrate(
    found: Mapping[str, FloatArray],
    cells: TextArray,
    groups: Sequence[Sequence[str]],
    alpha: float = ALPHA,
) -> Offsets:
    """Return the offsets of every group with at least MIN_CELLS cells, and of everything.

    `found` maps targets to scores (n_rows,), NaN where not measured.
    """
    by_target: dict[str, dict[str, float]] = {}
    n_cells: dict[str, dict[str, int]] = {}
    for target, values in found.items():
        members = _members(groups, np.isfinite(values))
        sizes = {name: len(np.unique(cells[rows])) for name, rows in members.items()}
        kept = [name for name in members if name == EVERYTHING or sizes[name] >= MIN_CELLS]
        by_target[target] = {
            name: offset(values[members[name]], cells[members[name]], alpha) for name in kept
        }
        n_cells[target] = {name: sizes[name] for name in kept}
    return Offsets(by_target, n_cells)


def _members(groups: Sequence[Sequence[str]], seen: FloatArray) -> dict[str, list[int]]:
    members: dict[str, list[int]] = {}
    for row, (names, is_seen) in enumerate(zip(groups, seen.tolist(), strict=True)):
        for name in names if is_seen else ():
            members.setdefault(name, []).append(row)
    return members
