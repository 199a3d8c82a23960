"""Packed trees: every tree of every model in flat arrays, walked together.

In: a feature matrix. Out: one value a row and model. A node holds (column, threshold, first
child); a row goes to the first child where x <= threshold, else to the one behind it. Trees of all
models are walked level by level as one array of paths, which is why numpy is fast enough.
Called by the predictor; train/export.py packs scikit-learn's trees into this form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FloatArray, IntArray

LEAF = -1


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes of all trees, then which tree belongs to which model.

    `column` (n_nodes,) is LEAF at leaves, `threshold` and `value` (n_nodes,), `child` (n_nodes,)
    the index of the first child (its sibling follows), `roots` (n_trees,) ordered by model,
    `starts` (n_models,) the first tree of each model, `factors` and `offsets` (n_models,) turn the
    sum over a model's trees into its prediction.
    """

    column: IntArray
    threshold: FloatArray
    child: IntArray
    value: FloatArray
    roots: IntArray
    starts: IntArray
    factors: FloatArray
    offsets: FloatArray

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the predictions of shape (n_rows, n_models)."""
        sums = np.add.reduceat(self.value[self.leaves(matrix)], self.starts, axis=1)
        return sums * self.factors + self.offsets

    def leaves(self, matrix: FloatArray) -> IntArray:
        """Return the node that every row ends in, of shape (n_rows, n_trees)."""
        n_rows, n_columns = matrix.shape
        n_trees = len(self.roots)
        cells = np.ascontiguousarray(matrix).ravel()
        ended = np.tile(self.roots, n_rows)
        first_cell = np.repeat(np.arange(n_rows) * n_columns, n_trees)
        paths = np.flatnonzero(self.column[ended] != LEAF)
        nodes, first_cell = ended[paths], first_cell[paths]
        while len(paths):
            above = cells[first_cell + self.column[nodes]] > self.threshold[nodes]
            nodes = self.child[nodes] + above
            inner = self.column[nodes] != LEAF
            ended[paths] = nodes
            paths, nodes, first_cell = paths[inner], nodes[inner], first_cell[inner]
        return ended.reshape(n_rows, n_trees)
