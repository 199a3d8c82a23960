"""YAML that says exactly what its schema allows, or every place where it does not.

In: the bytes of one or more layers of a file (later layers win key by key, mappings merge, lists
are replaced) and a schema built from the specs below. Out: the merged value, or one ConfigError
that lists every fault as file:line:col. Called by whoever owns a file of etc/.

    SCHEMA = Section(keys={"deadline_ms": Number(above=0), "mode": Text(choices=("off", "on"))})
    loaded = load([Layer(file="etc/x.yaml", data=b"...")], SCHEMA, version=1)
    loaded.value["deadline_ms"]; loaded.fault(("mode",), "must be on for partition 'gpu'")

A Section with `into` becomes that record. Keys carry their units (`deadline_ms`), so a bare
`deadline` names the key that was meant. What YAML 1.1 would turn into something else than it
looks like (`no`, `010`, `4:30`) is refused with the reading it would have had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.errors import ConfigError, Fault
from omnipilot_slurm.yaml_spec import (
    Check,
    Either,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Nullable,
    Number,
    Section,
    Spec,
    Text,
)
from omnipilot_slurm.yaml_tree import Items, Node, Pairs, Scalar, fault_at, read_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Either",
    "Flag",
    "Integer",
    "Layer",
    "ListOf",
    "Loaded",
    "MapOf",
    "Nullable",
    "Number",
    "Section",
    "Spec",
    "Text",
    "load",
]

_SCHEMA = "schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One file of a stack, as read: the name to show in faults and its bytes."""

    file: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The checked value, and the tree it came from for faults that only its owner can see."""

    value: Any
    tree: Pairs

    def fault(self, path: Sequence[str | int], message: str) -> Fault:
        """Return a fault at a path of keys and list positions, or at the nearest place above."""
        node: Node = self.tree
        for step in path:
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        return fault_at(node, message)

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Yield (dotted key, text as written, file:line) of every value in effect."""
        yield from _entries(self.tree, "")


def load(layers: Sequence[Layer], spec: Section, *, version: int) -> Loaded:
    """Merge the layers and check them; every layer starts with `schema: <version>`.

    Raises: ConfigError with every fault of every layer; a layer that is not YAML at all hides the
    faults of what it would have set.
    """
    faults: list[Fault] = []
    merged: Pairs | None = None
    for layer in layers:
        tree, found = read_tree(layer.data, file=layer.file)
        faults += found
        if isinstance(tree, Pairs):
            faults += _schema_faults(tree, version)
            merged = tree if merged is None else _merged(merged, tree)
        elif not found:
            faults.append(_not_a_mapping(tree, layer.file, version))
    if merged is None:
        raise ConfigError(faults)
    check = Check(faults)
    value = spec.check(merged, "", check)
    if check.faults:
        raise ConfigError(
            sorted(check.faults, key=lambda each: (each.file, each.line, each.column))
        )
    return Loaded(value=value, tree=merged)


def _not_a_mapping(tree: Node | None, file: str, version: int) -> Fault:
    if tree is None:
        message = f"is empty; write at least `{_SCHEMA}: {version}`"
        return Fault(file=file, line=1, column=1, message=message)
    return fault_at(tree, "must be a mapping of keys to values at the top")


def _schema_faults(tree: Pairs, version: int) -> list[Fault]:
    """Take the schema key out of a layer's tree and compare it with the version in use."""
    key, node = tree.pairs.pop(_SCHEMA, (None, None))
    if key is None or node is None:
        return [fault_at(tree, f"has no schema version; write `{_SCHEMA}: {version}` at the top")]
    scratch = Check([])
    found = Integer(lo=1).check(node, _SCHEMA, scratch)
    if scratch.faults:
        return scratch.faults
    if found == version:
        return []
    what = "newer than this release; upgrade omnipilot_slurm"
    if found < version:
        what = f"older than this release; CHANGELOG.md says what schema {version} changed"
    return [fault_at(node, f"schema: must be {version}, was {found}, which is {what}")]


def _merged(under: Pairs, over: Pairs) -> Pairs:
    pairs = dict(under.pairs)
    for text, (key, node) in over.pairs.items():
        below = pairs.get(text)
        if below is not None and isinstance(below[1], Pairs) and isinstance(node, Pairs):
            pairs[text] = (key, _merged(below[1], node))
        else:
            pairs[text] = (key, node)
    return Pairs(over.file, over.line, over.column, pairs)


def _child(node: Node, step: str | int) -> Node | None:
    if isinstance(node, Pairs):
        found = node.pairs.get(str(step))
        return None if found is None else found[1]
    if isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step]
    return None


def _entries(node: Node, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(node, Scalar):
        yield path, node.text, f"{node.file}:{node.line}"
    elif not (node.items if isinstance(node, Items) else node.pairs):
        yield path, "[]" if isinstance(node, Items) else "{}", f"{node.file}:{node.line}"
    elif isinstance(node, Items):
        for position, item in enumerate(node.items):
            yield from _entries(item, f"{path}[{position}]")
    else:
        for key, (_, value) in node.pairs.items():
            yield from _entries(value, f"{path}.{key}" if path else key)
