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
_BLOCK = 8_000


#: a node's column, threshold (as bits), first child and leaf, and the item that holds the four
_COLUMN, _THRESHOLD, _CHILD, _LEAF = 0, 1, 2, 3
_NODE = np.complex128


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes of all trees, then which tree belongs to which model.

    `nodes` (n_nodes, 4) are 32-bit integers: column, bits of the threshold, first child, and which
    leaf it is; side by side, so that a step reads one place of memory, in items of a size that
    numpy copies fast. `values` are those of the leaves, (n_leaves,). `roots` (n_trees,) are ordered
    by model, `starts` (n_models,) the first tree of each; `factors` and `offsets` (n_models,) turn
    the sum over a model's trees into its prediction. `common_levels` are walked by all paths
    together.
    """

    nodes: Int32Array
    values: FloatArray
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

    @property
    def value(self) -> FloatArray:
        """The value of each node, (n_nodes,), 0 where it is no leaf."""
        is_leaf = self.child == np.arange(len(self.nodes))
        return np.where(is_leaf, self.values[self.nodes[:, _LEAF]], 0.0)

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the predictions of shape (n_rows, n_models); a row with a NaN has NaN in all."""
        step = max(_BLOCK // len(self.roots), 1)
        values = np.empty((len(matrix), len(self.starts)))
        for at in range(0, len(matrix), step):
            said = self.leaf_values(matrix[at : at + step])
            values[at : at + step] = np.add.reduceat(said, self.starts, axis=0).T
        values *= self.factors
        values += self.offsets
        values[np.isnan(matrix).any(axis=1)] = np.nan
        return values

    def leaf_values(self, matrix: FloatArray) -> FloatArray:
        """Return what every tree says of every row, of shape (n_trees, n_rows)."""
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
        leaves = packed.take(ended).view(np.int32).reshape(-1, 4)[:, _LEAF]
        return self.values.take(leaves).reshape(-1, n_rows)


def packed_nodes(
    column: IntArray, threshold: Float32Array, child: IntArray, value: FloatArray
) -> tuple[Int32Array, FloatArray]:
    """Return the facts of nodes, each (n_nodes,), side by side, and the values of the leaves."""
    is_leaf = child == np.arange(len(child))
    nodes = np.zeros((len(column), 4), dtype=np.int32)
    nodes[:, _COLUMN] = column
    nodes[:, _THRESHOLD] = threshold.astype(np.float32).view(np.int32)
    nodes[:, _CHILD] = child
    nodes[:, _LEAF] = np.where(is_leaf, np.cumsum(is_leaf) - 1, 0)
    return nodes, value[is_leaf]


def _step(
    packed: npt.NDArray[np.complex128], cells: Float32Array, first_cell: IntArray, nodes: IntArray
) -> IntArray:
    """Return where each path goes from its node."""
    found = packed.take(nodes).view(np.int32).reshape(-1, 4)
    above = cells.take(found[:, _COLUMN] + first_cell) > found[:, _THRESHOLD].view(np.float32)
    further: IntArray = np.add(found[:, _CHILD], above, dtype=np.int64)
    return further
