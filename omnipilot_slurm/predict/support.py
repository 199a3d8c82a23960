"""Where the cost model has ground under it: three tiers, by the axes of specification section 5.

In: rows and the envelope of the measured ones. Out: a tier a row, the axes outside, and a sentence
for each with the nearest value that is inside. Called by the predictor; train/fit.py makes the
envelope.

in    every axis measured close by.
low   a new family or GPU whose facts lie inside the measured hull, values measured apart but never
      together, a number within LOW_OCTAVES, an engine version or load mode never seen:
      answered, with log-widths doubled.
out   anything further. An out row has no number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from math import log2
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnipilot_slurm.predict.rows import FloatArray, Table

IN, LOW, OUT = "in", "low", "out"
_RANK = {IN: 0, LOW: 1, OUT: 2}

#: octaves beyond the measured range that are still inside
IN_OCTAVES = 0.15
#: octaves to the nearest measured value, between two of them, that are still inside
GAP_OCTAVES = 1.0
#: a name counts as seen when this many cells have it
MIN_CELLS = 3

#: the categorical axes, and what they are called in a row
CATEGORIES = ("gpu", "family", "precision")
#: axes where a new value is low confidence, never out
SOFT = ("engine_version", "load_mode", "kv_precision")
#: numeric axes, measured given the GPU, and the octaves outside that are still low confidence;
#: pipelines were never measured at all
LOW_OCTAVES = {
    "model_size": 1.0,
    "context": 2.0,
    "concurrency": 2.0,
    "tensor_parallel": 1.0,
    "pipeline_parallel": 0.0,
}
_MODEL_HULL = ("params_b", "active_params_b", "layers", "hidden", "kv_elems")
_GPU_HULL = ("mem_gib", "bandwidth_gb_s", "peak_tflops")
_EVERY_GPU = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What was measured, as plain lists.

    `seen` lists the values of each categorical axis, `together` the pairs and the triple of
    CATEGORIES that occur, `values` the sorted log2 of each numeric axis by GPU (and of all GPUs
    under ""), `hulls` the (lowest, highest) of each fact of models and, by vendor, of GPUs.
    """

    seen: Mapping[str, frozenset[str]]
    together: frozenset[tuple[str, ...]]
    values: Mapping[str, Mapping[str, tuple[float, ...]]]
    hulls: Mapping[str, Mapping[str, tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One axis outside: how far, and the sentence that says so."""

    axis: str
    tier: str
    note: str


@dataclass(frozen=True, slots=True)
class Support:
    """The tier of one row and every axis outside, in the order of the specification."""

    tier: str
    findings: tuple[Finding, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes outside."""
        return tuple(finding.axis for finding in self.findings)


def envelope_of(rows: Table, cells: Sequence[str]) -> Envelope:
    """Return what rows (n_rows,) of cells (n_rows,) support."""
    x, labels = rows.numbers, {name: rows.labels[name].tolist() for name in (*CATEGORIES, *SOFT)}
    seen = {
        name: _often(values, cells) if name in CATEGORIES else frozenset(values)
        for name, values in labels.items()
    }
    together = {
        tuple(f"{name}={value}" for name, value in chosen)
        for values in set(zip(*(labels[name] for name in CATEGORIES), strict=True))
        for size in (2, 3)
        for chosen in combinations(zip(CATEGORIES, values, strict=True), size)
    }
    numbers = {axis: np.log2(_number(rows, axis)) for axis in LOW_OCTAVES}
    gpus = np.array(labels["gpu"])
    vendors = rows.labels["vendor"]
    return Envelope(
        seen=seen,
        together=frozenset(together),
        values={
            axis: {_EVERY_GPU: _distinct(value)}
            | {gpu: _distinct(value[gpus == gpu]) for gpu in set(labels["gpu"])}
            for axis, value in numbers.items()
        },
        hulls={"model": {fact: _range(x[fact]) for fact in _MODEL_HULL}}
        | {
            vendor: {fact: _range(x[fact][vendors == vendor]) for fact in _GPU_HULL}
            for vendor in set(vendors.tolist())
        },
    )


def _often(values: Sequence[str], cells: Sequence[str]) -> frozenset[str]:
    """Return the values that occur in at least MIN_CELLS cells."""
    pairs = Counter(value for value, _ in set(zip(values, cells, strict=True)))
    return frozenset(value for value, count in pairs.items() if count >= MIN_CELLS)


def _number(rows: Table, axis: str) -> FloatArray:
    x = rows.numbers
    if axis == "context":
        return x["isl"] + x["osl"]
    return x["params_b"] if axis == "model_size" else x[axis]


def _distinct(values: FloatArray) -> tuple[float, ...]:
    return tuple(sorted({round(value, 4) for value in values.tolist()}))


def _range(values: FloatArray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def judge(rows: Table, envelope: Envelope) -> tuple[Support, ...]:
    """Return the support of every row."""
    numbers = {axis: np.log2(_number(rows, axis)).tolist() for axis in LOW_OCTAVES}
    names = (*CATEGORIES, *SOFT, "vendor")
    labels = {name: rows.labels[name].tolist() for name in names}
    facts = {fact: rows.numbers[fact].tolist() for fact in (*_MODEL_HULL, *_GPU_HULL)}
    judged = _Judge(envelope)
    return tuple(
        judged.row(
            {name: values[i] for name, values in labels.items()},
            {axis: values[i] for axis, values in numbers.items()},
            {fact: values[i] for fact, values in facts.items()},
        )
        for i in range(len(rows))
    )


class _Judge:
    """Judges rows one by one, remembering findings that rows of a decision share."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.known: dict[tuple[str, str, float], Finding | None] = {}

    def row(
        self, labels: Mapping[str, str], numbers: Mapping[str, float], facts: Mapping[str, float]
    ) -> Support:
        findings = [
            *self._new_names(labels, facts),
            *self._never_together(labels),
            *self._numbers(labels["gpu"], numbers),
            *self._soft(labels),
        ]
        worst = max((finding.tier for finding in findings), key=_RANK.__getitem__, default=IN)
        return Support(worst, tuple(findings))

    def _new_names(
        self, labels: Mapping[str, str], facts: Mapping[str, float]
    ) -> Iterator[Finding]:
        hulls = self.envelope.hulls
        hull_of = {"gpu": hulls.get(labels["vendor"]), "family": hulls["model"], "precision": None}
        for axis in CATEGORIES:
            if labels[axis] in self.envelope.seen[axis]:
                continue
            known = ", ".join(sorted(self.envelope.seen[axis]))
            hull = hull_of[axis]
            outside = "it" if hull is None else _first_outside(facts, hull)
            if outside is None:
                note = f"{axis} {labels[axis]!r} was not measured, its size was; measured: {known}"
                yield Finding(axis, LOW, note)
            else:
                yield Finding(axis, OUT, f"{axis} {labels[axis]!r} was not measured: {known} were")

    def _never_together(self, labels: Mapping[str, str]) -> Iterator[Finding]:
        old = [axis for axis in CATEGORIES if labels[axis] in self.envelope.seen[axis]]
        for size in (2, 3):
            for axes in combinations(old, size):
                key = tuple(f"{axis}={labels[axis]}" for axis in axes)
                if key not in self.envelope.together:
                    what = " with ".join(labels[axis] for axis in axes)
                    yield Finding(" x ".join(axes), LOW, f"{what} was never measured together")
                    return

    def _numbers(self, gpu: str, numbers: Mapping[str, float]) -> Iterator[Finding]:
        for axis, value in numbers.items():
            key = (axis, gpu, value)
            if key not in self.known:
                given = self.envelope.values[axis]
                measured = given.get(gpu, given[_EVERY_GPU])
                where = f" on {gpu}" if gpu in given else ""
                self.known[key] = _finding(axis, value, measured, where)
            found = self.known[key]
            if found is not None:
                yield found

    def _soft(self, labels: Mapping[str, str]) -> Iterator[Finding]:
        for axis in SOFT:
            if labels[axis] and labels[axis] not in self.envelope.seen[axis]:
                yield Finding(axis, LOW, f"{axis} {labels[axis]!r} was not measured")


def _first_outside(
    facts: Mapping[str, float], hull: Mapping[str, tuple[float, float]]
) -> str | None:
    """Return the first fact outside its measured range by more than IN_OCTAVES, None if none."""
    for fact, (lowest, highest) in hull.items():
        beyond = max(log2(lowest / facts[fact]), log2(facts[fact] / highest))
        if beyond > IN_OCTAVES:
            return fact
    return None


def _finding(axis: str, value: float, measured: Sequence[float], where: str) -> Finding | None:
    """Return what is wrong with a number (log2), None where measured values are close."""
    at = bisect_left(measured, value)
    near = min(measured[max(at - 1, 0) : at + 1], key=lambda other: abs(other - value))
    distance = abs(value - near)
    inside = GAP_OCTAVES if measured[0] <= value <= measured[-1] else IN_OCTAVES
    if distance <= inside:
        return None
    tier = LOW if distance <= LOW_OCTAVES[axis] else OUT
    unit = "B parameters" if axis == "model_size" else ""
    note = f"{axis} {2**value:.4g}{unit}{where}: the nearest measured is {2**near:.4g}"
    return Finding(axis, tier, note)
