"""Packed trees: every tree of every model in flat arrays, walked together.

In: a feature matrix. Out: one value a row and model. A node holds (column, threshold, first
child); a row goes to the first child where x <= threshold, else to the one behind it. A leaf is its
own child and its threshold infinite, so a step from it stays there: most levels are walked without
asking who has arrived, and only the long paths are followed apart. Called by the predictor;
train/export.py packs scikit-learn's trees into this form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import Float32Array, FloatArray, IntArray


#: paths walked at once: their arrays stay below the size at which malloc asks the system each time
_BLOCK = 12_000


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes of all trees, then which tree belongs to which model.

    `column`, `child` and `value` are (n_nodes,), `threshold` (n_nodes,) is the largest 32-bit
    number that is not above scikit-learn's, which orders 32-bit features the same. `roots`
    (n_trees,) are ordered by model, `starts` (n_models,) the first tree of each; `factors` and
    `offsets` (n_models,) turn the sum over a model's trees into its prediction.
    `common_levels` are walked by all paths together.
    """

    column: IntArray
    threshold: Float32Array
    child: IntArray
    value: FloatArray
    roots: IntArray
    starts: IntArray
    factors: FloatArray
    offsets: FloatArray
    common_levels: int

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the predictions of shape (n_rows, n_models); a row with a NaN has NaN in all."""
        step = max(_BLOCK // len(self.roots), 1)
        values = np.empty((len(matrix), len(self.starts)))
        for at in range(0, len(matrix), step):
            leaves = self.value.take(self.leaves(matrix[at : at + step]))
            values[at : at + step] = np.add.reduceat(leaves, self.starts, axis=0).T
        values *= self.factors
        values += self.offsets
        values[np.isnan(matrix).any(axis=1)] = np.nan
        return values

    def leaves(self, matrix: FloatArray) -> IntArray:
        """Return the node that every row ends in, of shape (n_trees, n_rows)."""
        n_rows, n_columns = matrix.shape
        cells = matrix.astype(np.float32).ravel()
        nodes = np.repeat(self.roots, n_rows)
        first_cell = np.tile(np.arange(n_rows) * n_columns, len(self.roots))
        for _ in range(self.common_levels):
            nodes = self._step(cells, first_cell, nodes)
        ended, paths = nodes, np.arange(len(nodes))
        while len(paths):
            further = self._step(cells, first_cell, nodes)
            moved = np.flatnonzero(further != nodes)
            paths, nodes, first_cell = paths[moved], further[moved], first_cell[moved]
            ended[paths] = nodes
        return ended.reshape(-1, n_rows)

    def _step(self, cells: Float32Array, first_cell: IntArray, nodes: IntArray) -> IntArray:
        """Return where each path goes from its node."""
        at = self.column.take(nodes)
        at += first_cell
        above = cells.take(at) > self.threshold.take(nodes)
        further: IntArray = self.child.take(nodes)
        further += above
        return further
