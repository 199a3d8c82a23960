"""Pack fitted scikit-learn trees into the flat arrays of predict/trees.py.

In: fitted ensembles. Out: `Trees`, equal to scikit-learn's own predict. Called by train/fit.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.trees import Trees, packed_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.ensemble import (  # type: ignore[import-untyped]
        ExtraTreesRegressor,
        HistGradientBoostingRegressor,
    )

    from omnipilot_slurm.predict.rows import Float32Array, FloatArray, IntArray

LEAF = -1


@dataclass(frozen=True, slots=True)
class _Tree:
    """One tree as scikit-learn has it: two child indices a node, column LEAF at leaves."""

    column: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class Packable:
    """The trees of one model; its prediction is factor x their sum + offset."""

    trees: tuple[_Tree, ...]
    factor: float
    offset: float


def _leaf(value: float) -> _Tree:
    one = np.zeros(1, dtype=np.int64)
    return _Tree(one + LEAF, np.zeros(1), one, one, np.full(1, value))


#: a model of a target that is not learned: it says 0
NOTHING = Packable((_leaf(0.0),), 1.0, 0.0)


def randomised(model: ExtraTreesRegressor) -> Packable:
    """Take the trees of an average of randomised trees."""
    found = [estimator.tree_ for estimator in model.estimators_]
    trees = tuple(
        _Tree(
            column=np.where(tree.children_left < 0, LEAF, tree.feature),
            threshold=tree.threshold,
            left=tree.children_left,
            right=tree.children_right,
            value=tree.value[:, 0, 0],
        )
        for tree in found
    )
    return Packable(trees, 1 / len(trees), 0.0)


def boosted(model: HistGradientBoostingRegressor) -> Packable:
    """Take the trees of a sum of boosted trees; they have no public accessor."""
    trees = []
    for (predictor,) in model._predictors:  # noqa: SLF001 scikit-learn offers no other way
        nodes = predictor.nodes
        leaf = nodes["is_leaf"].astype(bool)
        trees.append(
            _Tree(
                column=np.where(leaf, LEAF, nodes["feature_idx"]),
                threshold=nodes["num_threshold"],
                left=nodes["left"].astype(np.int64),
                right=nodes["right"].astype(np.int64),
                value=nodes["value"],
            )
        )
    baseline = float(np.ravel(model._baseline_prediction)[0])  # noqa: SLF001 as above
    return Packable(tuple(trees), 1.0, baseline)


def pack(models: Sequence[Packable]) -> Trees:
    """Lay out the trees of several models, children of a node side by side."""
    parts: list[_Part] = []
    roots: list[int] = []
    starts: list[int] = []
    n_nodes = 0
    for model in models:
        starts.append(len(roots))
        for tree in model.trees:
            roots.append(n_nodes)
            parts.append(_adjacent(tree, n_nodes))
            n_nodes += len(tree.column)
    nodes, values = packed_nodes(
        column=np.concatenate([part.column for part in parts]),
        threshold=_not_above(np.concatenate([part.threshold for part in parts])),
        child=np.concatenate([part.child for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )
    return Trees(
        nodes=nodes,
        values=values,
        roots=np.array(roots),
        starts=np.array(starts),
        factors=np.array([model.factor for model in models]),
        offsets=np.array([model.offset for model in models]),
        common_levels=int(np.median(np.concatenate([part.leaf_depths for part in parts]))),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One tree in packed order; `leaf_depths` are the levels above each leaf."""

    column: IntArray
    threshold: FloatArray
    child: IntArray
    value: FloatArray
    leaf_depths: IntArray


def _adjacent(tree: _Tree, first: int) -> _Part:
    """Renumber the nodes breadth first from `first`, so that siblings are neighbours."""
    order, depths = [0], [0]
    for node, depth in zip(order, depths, strict=False):
        if tree.column[node] != LEAF:
            order += [int(tree.left[node]), int(tree.right[node])]
            depths += [depth + 1, depth + 1]
    old = np.array(order)
    new = np.empty(len(old), dtype=np.int64)
    new[old] = np.arange(len(old))
    inner = tree.column[old] != LEAF
    return _Part(
        column=np.where(inner, tree.column[old], 0).astype(np.int64),
        threshold=np.where(inner, tree.threshold[old], np.inf),
        child=np.where(inner, new[tree.left[old]], np.arange(len(old))) + first,
        value=np.where(inner, 0.0, tree.value[old]),
        leaf_depths=np.array(depths)[~inner],
    )


def _not_above(thresholds: FloatArray) -> Float32Array:
    """Return the largest 32-bit number not above each: x <= it where x <= the threshold."""
    rounded = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    lower: Float32Array = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(above, lower, rounded)
