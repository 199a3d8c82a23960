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
SOFT = ("architecture", "engine_version", "load_mode", "kv_precision")
#: numeric axes, measured given the GPU, and the octaves outside that are still low confidence;
#: pipelines were never measured at all
LOW_OCTAVES = {
    "model_size": 2.0,
    "context": 2.0,
    "concurrency": 2.0,
    "tensor_parallel": 1.0,
    "pipeline_parallel": 0.0,
}
_ARCHITECTURE = ("layers", "hidden", "heads", "kv_heads", "vocab", "n_experts")
_MODEL_HULL = ("params_b", "active_params_b", "layers", "hidden", "kv_elems")
_GPU_HULL = ("mem_gib", "bandwidth_gb_s", "peak_tflops")
_FACTS = (*_MODEL_HULL, *_GPU_HULL, "isl", "osl")
#: octaves of prompt or output length to the nearest workload of the same architecture: half a step
#: of the usual benchmark grids. Held-out workloads miss their intervals twice as often as held-out
#: concurrencies of a known one (docs/model.md)
_WORKLOAD_OCTAVES = 0.5
#: octaves that a new family's or GPU's facts may lie beyond the measured ones and still be low
_HULL_OCTAVES = 1.0
EVERY_GPU = ""
#: the facts whose range a hull has: that of models, and those of GPUs by vendor
HULLS = {"model": _MODEL_HULL, EVERY_GPU: _GPU_HULL}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What was measured, as plain lists.

    `seen` lists the values of each categorical axis, `together` the pairs and the triple of
    CATEGORIES that occur, `values` the sorted log2 of each numeric axis by GPU (and of all GPUs
    under ""), `hulls` the (lowest, highest) of each fact of models and, by vendor, of GPUs,
    `workloads` by architecture the log2 (prompt, output) lengths that it was measured with.
    """

    seen: Mapping[str, frozenset[str]]
    together: frozenset[tuple[str, ...]]
    values: Mapping[str, Mapping[str, tuple[float, ...]]]
    hulls: Mapping[str, Mapping[str, tuple[float, float]]]
    workloads: Mapping[str, frozenset[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One axis outside: how far, and the sentence that says so."""

    axis: str
    tier: str
    note: str


@dataclass(frozen=True, slots=True)
class Support:
    """The tier of one row and every axis outside, first those for which it is out."""

    tier: str
    findings: tuple[Finding, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes outside."""
        return tuple(finding.axis for finding in self.findings)


def envelope_of(rows: Table, cells: Sequence[str]) -> Envelope:
    """Return what rows (n_rows,) of cells (n_rows,) support."""
    x, labels = rows.numbers, _labels(rows)
    seen = {
        name: _often(values, cells) if name in CATEGORIES else frozenset(values)
        for name, values in labels.items()
        if name != "vendor"
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
            axis: {EVERY_GPU: _distinct(value)}
            | {gpu: _distinct(value[gpus == gpu]) for gpu in set(labels["gpu"])}
            for axis, value in numbers.items()
        },
        hulls={"model": {fact: _range(x[fact]) for fact in _MODEL_HULL}}
        | {
            vendor: {fact: _range(x[fact][vendors == vendor]) for fact in _GPU_HULL}
            for vendor in set(vendors.tolist())
        },
        workloads=_workloads(rows, labels["architecture"]),
    )


def _workloads(
    rows: Table, architectures: Sequence[str]
) -> dict[str, frozenset[tuple[float, float]]]:
    lengths = np.round(np.log2(np.stack([rows.numbers["isl"], rows.numbers["osl"]])), 2).T.tolist()
    found: dict[str, set[tuple[float, float]]] = {}
    for architecture, (prompt, output) in zip(architectures, lengths, strict=True):
        found.setdefault(architecture, set()).add((prompt, output))
    return {architecture: frozenset(pairs) for architecture, pairs in found.items()}


def _labels(rows: Table) -> dict[str, list[str]]:
    """Return the categorical axes of every row; an architecture is its sizes, whatever its name."""
    sizes = list(zip(*(rows.numbers[fact].tolist() for fact in _ARCHITECTURE), strict=True))
    written = {row: "/".join(f"{size:g}" for size in row) for row in set(sizes)}
    labels: dict[str, list[str]] = {
        name: rows.labels[name].tolist() for name in (*CATEGORIES, "vendor")
    }
    labels |= {name: rows.labels[name].tolist() for name in SOFT if name != "architecture"}
    return labels | {"architecture": [written[row] for row in sizes]}


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
    names = _labels(rows)
    facts = {fact: rows.numbers[fact].tolist() for fact in _FACTS}
    numbers = {axis: np.log2(_number(rows, axis)).tolist() for axis in LOW_OCTAVES}
    labels_of = [names[name] for name in (*CATEGORIES, *SOFT, "vendor")]
    judged = _Judge(envelope)
    return tuple(
        judged.row(*row)
        for row in zip(
            zip(*labels_of, strict=True),
            zip(*facts.values(), strict=True),
            zip(*numbers.values(), strict=True),
            strict=True,
        )
    )


_SUPPORTED = Support(IN, ())


class _Judge:
    """Judges rows one by one, remembering what rows of a decision share."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self._of_names: dict[object, tuple[Finding, ...]] = {}
        self._of_numbers: dict[object, tuple[Finding, ...]] = {}
        self._of_number: dict[object, tuple[Finding, ...]] = {}
        self._of_workload: dict[object, tuple[Finding, ...]] = {}

    def row(
        self, names: tuple[str, ...], facts: tuple[float, ...], numbers: tuple[float, ...]
    ) -> Support:
        """Judge one row: values of CATEGORIES, SOFT and vendor, of _FACTS, of LOW_OCTAVES."""
        about = (names, facts)
        findings = self._of_names.get(about)
        if findings is None:
            findings = self._of_names[about] = tuple(self._names(*about))
        where = (names[0], numbers)
        found = self._of_numbers.get(where)
        if found is None:
            found = self._of_numbers[where] = tuple(self._numbers(*where))
        if not findings and not found:
            return _SUPPORTED
        worst_first = sorted(findings + found, key=lambda finding: -_RANK[finding.tier])
        return Support(worst_first[0].tier, tuple(worst_first))

    def _names(self, names: tuple[str, ...], facts: tuple[float, ...]) -> Iterator[Finding]:
        labels = dict(zip((*CATEGORIES, *SOFT, "vendor"), names, strict=True))
        fact = dict(zip(_FACTS, facts, strict=True))
        yield from self._new_names(labels, fact)
        yield from self._never_together(labels)
        yield from self._workload(labels["architecture"], fact["isl"], fact["osl"])
        for axis in SOFT:
            if labels[axis] and labels[axis] not in self.envelope.seen[axis]:
                yield Finding(axis, LOW, f"{axis} {labels[axis]!r} was not measured")

    def _workload(self, architecture: str, isl: float, osl: float) -> tuple[Finding, ...]:
        """Judge prompt and output lengths, which the rows of a decision share."""
        key = (architecture, isl, osl)
        if key not in self._of_workload:
            measured = self.envelope.workloads.get(architecture)
            found = () if measured is None else _workload_finding(log2(isl), log2(osl), measured)
            self._of_workload[key] = tuple(found)
        return self._of_workload[key]

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
            is_near = hull is not None and _is_inside(facts, hull)
            near = ", though what is alike was" if is_near else ""
            note = f"{axis} {labels[axis]!r} was not measured{near}; measured were {known}"
            yield Finding(axis, LOW if is_near else OUT, note)

    def _never_together(self, labels: Mapping[str, str]) -> Iterator[Finding]:
        old = [axis for axis in CATEGORIES if labels[axis] in self.envelope.seen[axis]]
        for size in (2, 3):
            for axes in combinations(old, size):
                key = tuple(f"{axis}={labels[axis]}" for axis in axes)
                if key not in self.envelope.together:
                    what = " with ".join(labels[axis] for axis in axes)
                    yield Finding(" x ".join(axes), LOW, f"{what} was never measured together")
                    return

    def _numbers(self, gpu: str, numbers: tuple[float, ...]) -> Iterator[Finding]:
        for axis, value in zip(LOW_OCTAVES, numbers, strict=True):
            key = (gpu, axis, value)
            if key not in self._of_number:
                given = self.envelope.values[axis]
                where = f" on {gpu}" if gpu in given else ""
                found = _finding(axis, value, given.get(gpu, given[EVERY_GPU]), where)
                self._of_number[key] = tuple(found)
            yield from self._of_number[key]


def _is_inside(facts: Mapping[str, float], hull: Mapping[str, tuple[float, float]]) -> bool:
    """Tell whether every fact lies within _HULL_OCTAVES of its measured range."""
    return all(
        max(log2(lowest / facts[fact]), log2(facts[fact] / highest)) <= _HULL_OCTAVES
        for fact, (lowest, highest) in hull.items()
    )


def _finding(axis: str, value: float, measured: Sequence[float], where: str) -> Iterator[Finding]:
    """Yield what is wrong with a number (log2): nothing where measured values are close."""
    at = bisect_left(measured, value)
    below, above = measured[max(at - 1, 0)], measured[min(at, len(measured) - 1)]
    near = below if value - below <= above - value else above
    distance = abs(value - near)
    inside = GAP_OCTAVES if measured[0] <= value <= measured[-1] else IN_OCTAVES
    if distance > inside:
        tier = LOW if distance <= LOW_OCTAVES[axis] else OUT
        unit = " billion parameters" if axis == "model_size" else ""
        asked, there = (f"{float(f'{2**each:.4g}'):.12g}" for each in (value, near))
        note = f"{axis} {asked}{unit}{where}: the nearest measured is {there}"
        yield Finding(axis, tier, note)


def _workload_finding(
    prompt: float, output: float, measured: frozenset[tuple[float, float]]
) -> Iterator[Finding]:
    """Yield what is wrong with a pair of lengths (log2) of one architecture."""
    near = min(measured, key=lambda other: max(abs(other[0] - prompt), abs(other[1] - output)))
    if max(abs(near[0] - prompt), abs(near[1] - output)) > _WORKLOAD_OCTAVES:
        asked, there = (
            f"{2 ** pair[0]:.0f} in and {2 ** pair[1]:.0f} out" for pair in ((prompt, output), near)
        )
        note = f"this model was not measured near {asked}; the nearest is {there}"
        yield Finding("workload", LOW, note)
