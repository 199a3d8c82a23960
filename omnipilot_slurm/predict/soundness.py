"""What is wrong with the arrays of a cost model that somebody else wrote.

In: arrays by the name they have in the file, and how many columns the feature matrix has. Out: a
sentence for each fault. Called by artifact.read before a model is made of them: with sound arrays
no prediction can fail, loop for ever or read beside an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from omnipilot_slurm.predict.model import LEARNED, LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INTEGERS, _REALS = "iu", "f"
_KINDS = {_INTEGERS: "integers", _REALS: "numbers with a fraction"}

#: kind and dimensions; a dimension of the same name has the same length everywhere in its part
_KERNEL = {
    "used": (_INTEGERS, ("used",)),
    "origin": (_REALS, ("used",)),
    "scales": (_REALS, ("used",)),
    "anchors": (_REALS, ("used and 2", "anchors")),
    "duals": (_REALS, ("anchors", "targets")),
    "means": (_REALS, ("targets",)),
}
_TREES = {
    "column": (_INTEGERS, ("nodes",)),
    "threshold": (_REALS, ("nodes",)),
    "child": (_INTEGERS, ("nodes",)),
    "value": (_REALS, ("nodes",)),
    "roots": (_INTEGERS, ("trees",)),
    "starts": (_INTEGERS, ("models",)),
    "factors": (_REALS, ("models",)),
    "offsets": (_REALS, ("models",)),
    "common_levels": (_INTEGERS, ()),
}
#: levels that any tree may have
_DEEPEST = 1000


def faults(arrays: Mapping[str, Any], n_columns: int) -> Iterator[str]:
    """Yield what is wrong: first with shapes and types, only where these are right with values."""
    n_targets = len(LEARNED)
    wide = n_columns + 3 * n_targets
    shares = {"kernel.": "kernel_shares"}
    if any(name.startswith("site.") for name in arrays):
        shares["site."] = "site.shares"
    found = [
        *_misshapen(arrays, _prefixed("forest.", _TREES), {"models": n_targets}),
        *_misshapen(arrays, _prefixed("bands.", _TREES), {"models": n_targets * len(LEVELS)}),
    ]
    for prefix, name in shares.items():
        layout = _prefixed(prefix, _KERNEL) | {name: (_REALS, ("targets",))}
        found += _misshapen(arrays, layout, {"targets": n_targets})
    if not found:
        found += _not_finite(arrays)
        for prefix, name in shares.items():
            found += _unsound_kernel(arrays, prefix, name, n_columns)
        found += _unsound_trees(arrays, "forest.", n_columns)
        found += _unsound_trees(arrays, "bands.", wide)
    yield from found


def _prefixed(
    prefix: str, part: Mapping[str, tuple[str, tuple[str, ...]]]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {prefix + name: layout for name, layout in part.items()}


def _misshapen(
    arrays: Mapping[str, Any],
    layouts: Mapping[str, tuple[str, tuple[str, ...]]],
    sizes: dict[str, int],
) -> Iterator[str]:
    """Yield a fault for each array that is missing, of another type or of another shape."""
    for name, (kind, dimensions) in layouts.items():
        if name not in arrays:
            yield f"{name}: is missing"
            continue
        values = arrays[name]
        if values.dtype.kind not in kind:
            yield f"{name}: must be {_KINDS[kind]}, was {values.dtype}"
        if values.ndim != len(dimensions):
            yield f"{name}: must have {len(dimensions)} dimensions, has {values.ndim}"
            continue
        for dimension, length in zip(dimensions, values.shape, strict=True):
            if dimension == "used and 2" and "used" in sizes:
                sizes[dimension] = sizes["used"] + 2
            if sizes.setdefault(dimension, length) != length:
                yield f"{name}: must have {sizes[dimension]} {dimension}, has {length}"
            elif length == 0:
                yield f"{name}: must have some {dimension}, has none"


def _not_finite(arrays: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each array with a NaN, or an infinity that is no threshold of a leaf."""
    for name, values in arrays.items():
        if values.dtype.kind in _REALS:
            is_wrong = np.isnan(values) if name.endswith(".threshold") else ~np.isfinite(values)
            if is_wrong.any():
                count = int(is_wrong.sum())
                yield f"{name}: must be finite, has {count} numbers that are not"


def _unsound_kernel(
    arrays: Mapping[str, Any], prefix: str, shares: str, n_columns: int
) -> Iterator[str]:
    if not _within(arrays[prefix + "used"], n_columns):
        yield f"{prefix}used: must point at the {n_columns} columns"
    if not ((arrays[shares] >= 0) & (arrays[shares] <= 1)).all():
        yield f"{shares}: must be from 0 to 1"


def _unsound_trees(arrays: Mapping[str, Any], prefix: str, n_columns: int) -> Iterator[str]:
    """Yield what would make a walk read beside the arrays, or never end.

    A walk ends since children come behind their parent, and a leaf, its own child, keeps it.
    """
    column, child = arrays[prefix + "column"], arrays[prefix + "child"].astype(np.int64)
    n_nodes, own = len(column), np.arange(len(column))
    leaf = (child == own) & (arrays[prefix + "threshold"] == np.inf)
    inner = (child > own) & (child < n_nodes - 1)
    if not (leaf | inner).all():
        yield f"{prefix}child: must come behind its parent, or be a leaf's own"
    if not _within(column, n_columns):
        yield f"{prefix}column: must point at the {n_columns} columns"
    if not _within(arrays[prefix + "roots"], n_nodes):
        yield f"{prefix}roots: must point at the {n_nodes} nodes"
    starts = arrays[prefix + "starts"].astype(np.int64)
    n_trees = len(arrays[prefix + "roots"])
    if starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= n_trees:
        yield f"{prefix}starts: must rise from 0 to below {n_trees}"
    if not 0 <= arrays[prefix + "common_levels"] <= _DEEPEST:
        yield f"{prefix}common_levels: must be from 0 to {_DEEPEST}"


def _within(indices: Any, size: int) -> bool:
    return bool(((indices >= 0) & (indices < size)).all())
