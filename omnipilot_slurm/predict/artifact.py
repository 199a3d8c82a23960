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
import os
import zipfile
import zlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from omnipilot_slurm.errors import ArtifactError
from omnipilot_slurm.predict import soundness
from omnipilot_slurm.predict.conformal import Offsets
from omnipilot_slurm.predict.correction import Correction
from omnipilot_slurm.predict.features import ONE_HOT, Columns
from omnipilot_slurm.predict.kernel import Kernel
from omnipilot_slurm.predict.model import LEARNED, LEVELS, CostModel
from omnipilot_slurm.predict.roofline import Coefficients
from omnipilot_slurm.predict.support import (
    CATEGORIES,
    EVERY_GPU,
    HULLS,
    LOW_OCTAVES,
    SOFT,
    Envelope,
)
from omnipilot_slurm.predict.trees import Trees, packed_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
ARRAYS, CARD = "model.npz", "card.json"
#: ten times and more what a model of all public rows takes
MAX_BYTES, MAX_CARD_BYTES, MAX_UNPACKED_BYTES = 2**25, 2**24, 2**27

_RETRAIN = "train one with `omnipilot train`, or reinstall the package for the shipped one"
#: what reading a file of any content raises
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, MemoryError, OverflowError, SyntaxError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error),
)
#: types on disk; a smaller integer holds every index, and thresholds and anchors are 32 bit anyway
_COMPACT = {"column": "int16", "child": "int32", "roots": "int32", "starts": "int32"}
_TREE_ARRAYS = (
    *("column", "threshold", "child", "value", "roots", "starts", "factors", "offsets"),
    "common_levels",
)


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
    data = _bytes(folder / ARRAYS, MAX_BYTES)
    found = hashlib.sha256(data).hexdigest()
    if found != card.get("arrays_sha256"):
        raise ArtifactError(
            f"{folder / ARRAYS}: must be the file that {CARD} was written with "
            f"(sha256 {str(card.get('arrays_sha256'))[:12]}), was {found[:12]}",
            hint=_RETRAIN,
        )
    arrays = _unpacked(folder / ARRAYS, data)
    try:
        columns = _columns(card)
        wrong = list(soundness.faults(arrays, len(columns.names)))
        if not wrong:
            return _model(arrays, card, columns), card
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{folder / CARD}: must describe a cost model of schema {SCHEMA_VERSION}: "
            f"{type(error).__name__}: {error}",
            hint=_RETRAIN,
        ) from error
    raise ArtifactError("\n".join(f"{folder / ARRAYS}: {fault}" for fault in wrong), hint=_RETRAIN)


def _unpacked(path: Path, data: bytes) -> dict[str, Any]:
    """Return the arrays of a file, which may have any content: its hash proves nobody honest."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > MAX_UNPACKED_BYTES:
            raise ValueError(f"would unpack to {size} bytes, more than {MAX_UNPACKED_BYTES}")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except _UNREADABLE as error:
        raise ArtifactError(
            f"{path}: must hold plain arrays: {type(error).__name__}: {error}", hint=_RETRAIN
        ) from error


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(_bytes(path, MAX_CARD_BYTES), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
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


def _bytes(path: Path, most: int) -> bytes:
    try:
        # asking for `most` at once would have the C library keep arrays of that size for itself
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            data = stream.read(min(size, most) + 1)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}", hint=_RETRAIN) from error
    if len(data) > most:
        raise ArtifactError(f"{path}: must have at most {most} bytes, has more", hint=_RETRAIN)
    return data


def _arrays(model: CostModel) -> dict[str, Any]:
    """Return every array by the name it has in the file."""
    found = {f"kernel.{name}": getattr(model.kernel, name) for name in _names(Kernel)}
    for part in ("forest", "bands"):
        for name in _TREE_ARRAYS:
            values = np.asarray(getattr(getattr(model, part), name))
            found[f"{part}.{name}"] = values.astype(_COMPACT.get(name, values.dtype))
    if model.site is not None:
        found |= {f"site.{name}": getattr(model.site.kernel, name) for name in _names(Kernel)}
        found["site.shares"] = model.site.shares
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
        **({} if model.site is None else {"site": asdict(model.site.coefficients)}),
    }


def _columns(card: Mapping[str, Any]) -> Columns:
    columns = Columns({label: _texts(card["known"][label]) for label in ONE_HOT})
    layout = {"columns": list(columns.names), "learned": list(LEARNED), "levels": list(LEVELS)}
    for name, ours in layout.items():
        if card[name] != ours:
            raise ValueError(f"its {name} are not those of this version")
    return columns


def _model(arrays: Mapping[str, Any], card: Mapping[str, Any], columns: Columns) -> CostModel:
    return CostModel(
        coefficients=_coefficients(card["coefficients"]),
        columns=columns,
        kernel=Kernel(**{name: arrays[f"kernel.{name}"] for name in _names(Kernel)}),
        kernel_shares=arrays["kernel_shares"],
        forest=_trees(arrays, "forest"),
        bands=_trees(arrays, "bands"),
        offsets=Offsets(
            by_target={
                target: {
                    group: math.inf if q is None else _finite(q)
                    for group, q in card["offsets"][target].items()
                }
                for target in LEARNED
            },
            n_cells=card["calibration_cells"],
        ),
        envelope=_envelope(card["support"]),
        site=_correction(arrays, card["site"]) if "site" in card else None,
    )


def _coefficients(values: Mapping[str, Any]) -> Coefficients:
    return Coefficients(**{name: _positive(value) for name, value in values.items()})


def _correction(arrays: Mapping[str, Any], coefficients: Mapping[str, float]) -> Correction:
    return Correction(
        coefficients=_coefficients(coefficients),
        shares=arrays["site.shares"],
        kernel=Kernel(**{name: arrays[f"site.{name}"] for name in _names(Kernel)}),
    )


def _trees(arrays: Mapping[str, Any], part: str) -> Trees:
    found = {name: arrays[f"{part}.{name}"] for name in _TREE_ARRAYS}
    facts = (found[name] for name in ("column", "threshold", "child", "value"))
    nodes, values = packed_nodes(*facts)
    return Trees(
        nodes=nodes,
        values=values,
        roots=found["roots"].astype(np.int64),
        starts=found["starts"].astype(np.int64),
        factors=found["factors"],
        offsets=found["offsets"],
        common_levels=int(found["common_levels"]),
    )


def _envelope(support: Mapping[str, Any]) -> Envelope:
    """Return what was measured; each axis that judging a row looks up must be there."""
    return Envelope(
        seen={axis: frozenset(_texts(support["seen"][axis])) for axis in (*CATEGORIES, *SOFT)},
        together=frozenset(_texts(names) for names in support["together"]),
        values={
            axis: {gpu: _rising(values) for gpu, values in support["values"][axis].items()}
            | {EVERY_GPU: _rising(support["values"][axis][EVERY_GPU])}
            for axis in LOW_OCTAVES
        },
        hulls={
            name: {fact: _range(facts[fact]) for fact in HULLS.get(name, HULLS[EVERY_GPU])}
            for name, facts in {"model": support["hulls"]["model"], **support["hulls"]}.items()
        },
        workloads={
            name: frozenset((_finite(prompt), _finite(output)) for prompt, output in pairs)
            for name, pairs in support["workloads"].items()
            if pairs
        },
    )


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"must be a list of texts, was {values!r:.60}")
    return tuple(values)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must be a finite number, was {value!r:.60}")
    return float(value)


def _positive(value: Any) -> float:
    if _finite(value) <= 0:
        raise ValueError(f"must be a number > 0, was {value!r}")
    return float(value)


def _range(ends: Any) -> tuple[float, float]:
    lowest, highest = ends
    return _positive(lowest), _positive(highest)


def _rising(values: Any) -> tuple[float, ...]:
    numbers = tuple(_finite(value) for value in values)
    if not numbers or list(numbers) != sorted(numbers):
        raise ValueError(f"must be numbers in rising order, was {values!r:.60}")
    return numbers
