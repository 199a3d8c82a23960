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
    import numpy.typing as npt

    from omnipilot_slurm.predict.rows import Float32Array, FloatArray, Int32Array, IntArray


#: paths walked at once: their arrays stay below the size at which malloc asks the system each time
_BLOCK = 12_000


#: a node's column, threshold (as bits) and first child, and the size of the item that holds them
_COLUMN, _THRESHOLD, _CHILD = 0, 1, 2
_NODE = np.complex128


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes of all trees, then which tree belongs to which model.

    `nodes` (n_nodes, 4) are 32-bit integers: column, bits of the threshold, first child, nothing;
    side by side, so that a step reads one place of memory, in items of a size that numpy copies
    fast. `value` (n_nodes,). `roots` (n_trees,) are ordered by model, `starts` (n_models,) the
    first tree of each; `factors` and `offsets` (n_models,) turn the sum over a model's trees into
    its prediction. `common_levels` are walked by all paths together.
    """

    nodes: Int32Array
    value: FloatArray
    roots: IntArray
    starts: IntArray
    factors: FloatArray
    offsets: FloatArray
    common_levels: int

    @property
    def column(self) -> Int32Array:
        """The column that each node looks at, (n_nodes,)."""
        return self.nodes[:, _COLUMN]

    @property
    def threshold(self) -> Float32Array:
        """The largest 32-bit numbers not above scikit-learn's, which orders 32-bit features alike.

        That of a leaf is infinite.
        """
        return self.nodes[:, _THRESHOLD].view(np.float32)

    @property
    def child(self) -> Int32Array:
        """The first of each node's two children, a leaf's own index, (n_nodes,)."""
        return self.nodes[:, _CHILD]

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
        packed = self.nodes.view(_NODE).ravel()
        nodes = np.repeat(self.roots, n_rows)
        first_cell = np.tile(np.arange(n_rows) * n_columns, len(self.roots))
        for _ in range(self.common_levels):
            nodes = _step(packed, cells, first_cell, nodes)
        ended, paths = nodes, np.arange(len(nodes))
        while len(paths):
            further = _step(packed, cells, first_cell, nodes)
            moved = np.flatnonzero(further != nodes)
            paths, nodes, first_cell = paths[moved], further[moved], first_cell[moved]
            ended[paths] = nodes
        return ended.reshape(-1, n_rows)


def packed_nodes(column: IntArray, threshold: Float32Array, child: IntArray) -> Int32Array:
    """Return the facts of nodes, each (n_nodes,), side by side."""
    nodes = np.zeros((len(column), 4), dtype=np.int32)
    nodes[:, _COLUMN] = column
    nodes[:, _THRESHOLD] = threshold.astype(np.float32).view(np.int32)
    nodes[:, _CHILD] = child
    return nodes


def _step(
    packed: npt.NDArray[np.complex128], cells: Float32Array, first_cell: IntArray, nodes: IntArray
) -> IntArray:
    """Return where each path goes from its node."""
    found = packed.take(nodes).view(np.int32).reshape(-1, 4)
    above = cells.take(found[:, _COLUMN] + first_cell) > found[:, _THRESHOLD].view(np.float32)
    further: IntArray = np.add(found[:, _CHILD], above, dtype=np.int64)
    return further
