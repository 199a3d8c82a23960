"""A cost model on disk: `model.npz` (arrays) and `card.json` (everything else). No pickle.

In: a folder. Out: a `CostModel` and its card; or an ArtifactError that says why this folder must
not be used, whereupon the caller keeps the model it has. Called by `omnipilot train` (write) and by
whoever predicts (read).

The card carries the hash of the arrays, so that two halves of different fits are told apart, and a
schema version, so that a model of another layout is refused instead of misread.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from omnipilot_slurm.errors import ArtifactError
from omnipilot_slurm.predict.conformal import Offsets
from omnipilot_slurm.predict.features import ONE_HOT, Columns
from omnipilot_slurm.predict.kernel import Kernel
from omnipilot_slurm.predict.model import LEARNED, LEVELS, CostModel
from omnipilot_slurm.predict.roofline import Coefficients
from omnipilot_slurm.predict.support import Envelope
from omnipilot_slurm.predict.trees import Trees

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
ARRAYS, CARD = "model.npz", "card.json"

_RETRAIN = "train one with `omnipilot train`, or reinstall the package for the shipped one"
#: types on disk; a smaller integer holds every index, and thresholds and anchors are 32 bit anyway
_COMPACT = {"column": "int16", "child": "int32", "roots": "int32", "starts": "int32"}


def write(folder: Path, model: CostModel, about: Mapping[str, Any]) -> None:
    """Write a model into a folder; `about` (data, settings, metrics) goes into the card as it is.

    Each file appears whole or not at all; the card, which names the arrays' hash, comes last.
    """
    stream = io.BytesIO()
    np.savez_compressed(stream, **_arrays(model))
    data = stream.getvalue()
    card = {
        "schema": SCHEMA_VERSION,
        "arrays_sha256": hashlib.sha256(data).hexdigest(),
        **_plain(model),
        **about,
    }
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / ARRAYS, data)
    _replace(folder / CARD, (json.dumps(card, indent=1, sort_keys=True) + "\n").encode())


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)


def read(folder: Path) -> tuple[CostModel, dict[str, Any]]:
    """Return the model of a folder and its card.

    Raises: ArtifactError with the reason: a file is missing or cut off, the halves do not belong
    together, the layout is another version's, or a number is not finite.
    """
    card = _card(folder / CARD)
    data = _bytes(folder / ARRAYS)
    found = hashlib.sha256(data).hexdigest()
    if found != card.get("arrays_sha256"):
        raise ArtifactError(
            f"{folder / ARRAYS}: must be the file that {CARD} was written with "
            f"(sha256 {str(card.get('arrays_sha256'))[:12]}), was {found[:12]}",
            hint=_RETRAIN,
        )
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        model = _model(arrays, card)
    except (KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ArtifactError(
            f"{folder}: must hold a cost model of schema {SCHEMA_VERSION}: {error}", hint=_RETRAIN
        ) from error
    _check(folder, model, arrays)
    return model, card


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(_bytes(path), parse_constant=_refused)
    except ValueError as error:
        raise ArtifactError(f"{path}: must be JSON: {error}", hint=_RETRAIN) from error
    schema = card.get("schema") if isinstance(card, dict) else None
    if schema != SCHEMA_VERSION:
        raise ArtifactError(
            f"{path}: schema must be {SCHEMA_VERSION}, was {schema!r}",
            hint="the model was written by another version of omnipilot; " + _RETRAIN,
        )
    assert isinstance(card, dict)
    return card


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no number of a card")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}", hint=_RETRAIN) from error


def _arrays(model: CostModel) -> dict[str, Any]:
    """Return every array by the name it has in the file."""
    found = {f"kernel.{name}": getattr(model.kernel, name) for name in _names(Kernel)}
    for part in ("forest", "bands"):
        for name in _names(Trees):
            values = np.asarray(getattr(getattr(model, part), name))
            found[f"{part}.{name}"] = values.astype(_COMPACT.get(name, values.dtype))
    return found | {"kernel_shares": model.kernel_shares}


def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


def _plain(model: CostModel) -> dict[str, Any]:
    """Return what is no array, as JSON."""
    envelope = model.envelope
    return {
        "learned": LEARNED,
        "levels": LEVELS,
        "columns": model.columns.names,
        "known": {label: model.columns.known[label] for label in ONE_HOT},
        "coefficients": asdict(model.coefficients),
        "offsets": {
            target: {group: q if math.isfinite(q) else None for group, q in groups.items()}
            for target, groups in model.offsets.by_target.items()
        },
        "calibration_cells": model.offsets.n_cells,
        "support": {
            "seen": {axis: sorted(values) for axis, values in envelope.seen.items()},
            "together": sorted(envelope.together),
            "values": envelope.values,
            "hulls": envelope.hulls,
            "workloads": {name: sorted(pairs) for name, pairs in envelope.workloads.items()},
        },
    }


def _model(arrays: Mapping[str, Any], card: Mapping[str, Any]) -> CostModel:
    columns = Columns({label: tuple(card["known"][label]) for label in ONE_HOT})
    if list(columns.names) != card["columns"] or list(LEARNED) != card["learned"]:
        raise ValueError("its columns or targets are not those of this version")
    return CostModel(
        coefficients=Coefficients(**card["coefficients"]),
        columns=columns,
        kernel=Kernel(**{name: arrays[f"kernel.{name}"] for name in _names(Kernel)}),
        kernel_shares=arrays["kernel_shares"],
        forest=_trees(arrays, "forest"),
        bands=_trees(arrays, "bands"),
        offsets=Offsets(
            by_target={
                target: {group: math.inf if q is None else float(q) for group, q in groups.items()}
                for target, groups in card["offsets"].items()
            },
            n_cells=card["calibration_cells"],
        ),
        envelope=_envelope(card["support"]),
    )


def _trees(arrays: Mapping[str, Any], part: str) -> Trees:
    found = {name: arrays[f"{part}.{name}"] for name in _names(Trees)}
    found |= {name: found[name].astype(np.int64) for name in _COMPACT}
    return Trees(**(found | {"common_levels": int(found["common_levels"])}))


def _envelope(support: Mapping[str, Any]) -> Envelope:
    return Envelope(
        seen={axis: frozenset(values) for axis, values in support["seen"].items()},
        together=frozenset(tuple(names) for names in support["together"]),
        values={
            axis: {gpu: tuple(values) for gpu, values in by_gpu.items()}
            for axis, by_gpu in support["values"].items()
        },
        hulls={
            name: {fact: (ends[0], ends[1]) for fact, ends in facts.items()}
            for name, facts in support["hulls"].items()
        },
        workloads={
            name: frozenset((pair[0], pair[1]) for pair in pairs)
            for name, pairs in support["workloads"].items()
        },
    )


def _check(folder: Path, model: CostModel, arrays: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite and indices that point outside."""
    for name, values in arrays.items():
        # a leaf's threshold is +inf, and nothing else may be infinite
        limit = np.isnan(values) if name.endswith(".threshold") else ~np.isfinite(values)
        if limit.any():
            raise ArtifactError(
                f"{folder / ARRAYS}: {name}: must be finite, has {int(limit.sum())} numbers that "
                "are not",
                hint=_RETRAIN,
            )
    width = len(model.columns.names)
    for part, columns in (("forest", width), ("bands", width + 3 * len(LEARNED))):
        trees: Trees = getattr(model, part)
        n_nodes = len(trees.column)
        inside = (
            _within(trees.column, columns)
            and _within(trees.child, n_nodes)
            and _within(trees.roots, n_nodes)
            and _within(trees.starts, len(trees.roots))
        )
        if not inside:
            raise ArtifactError(
                f"{folder / ARRAYS}: {part}: must have indices inside its arrays", hint=_RETRAIN
            )


def _within(indices: Any, size: int) -> bool:
    return bool(((indices >= 0) & (indices < size)).all())
