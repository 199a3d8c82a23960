"""Runs in a CSV file, one row each, under our own names: docs/site-data.md lists them.

In: the text of a file. Out: Results. Every cell is checked; all faults of a file are told at once.
Called by benchmark_files.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import DataError, near_names
from omnipilot_slurm.ingest.result import TOO_MUCH, Result, mode_of
from omnipilot_slurm.ingest.told import TELLABLE
from omnipilot_slurm.predict.rows import CLOSED_LOOP, OFFLINE, SATURATED
from omnipilot_slurm.records import TARGET_UNITS
from omnipilot_slurm.store.benchmarks import Load, RunOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOAD: Final = ("isl", "osl", "concurrency", "requests_per_s", "n_requests", "n_failed")
_MODES: Final = (CLOSED_LOOP, OFFLINE, SATURATED)
COLUMNS: Final = (
    "model", "load_mode", *_LOAD, *TARGET_UNITS, "outcome", "measured_at", "note", *TELLABLE,
)  # fmt: skip
REQUIRED: Final = ("model", "isl", "osl")
_MAX_TOLD: Final = 20


def is_table(text: str) -> bool:
    """Return whether a text is a CSV file of runs: by its header."""
    header = next(csv.reader(io.StringIO(text.partition("\n")[0])), [])
    return "model" in header and len(set(header) & set(COLUMNS)) >= len(REQUIRED)


def read_table(text: str) -> Iterator[Result]:
    """Yield the runs of a CSV file.

    Raises: DataError with every fault of every row.
    """
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    faults = list(_header_faults(header))
    results = []
    for cells in reader:
        if not cells:
            continue
        where = f"line {reader.line_num}"
        if len(cells) != len(header):
            faults.append(f"{where}: must have {len(header)} cells, has {len(cells)}")
            continue
        row = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
        found = list(_faults(row))
        faults += [f"{where}: {fault}" for fault in found]
        if not found and not faults:
            results.append(_result(row, where))
    if faults:
        more = len(faults) - _MAX_TOLD
        told = [*faults[:_MAX_TOLD], *([f"... and {more} more"] if more > 0 else [])]
        raise DataError("\n".join(told))
    yield from results


def _header_faults(header: list[str]) -> Iterator[str]:
    for name in REQUIRED:
        if name not in header:
            yield f"line 1: the column {name} must be there, is not"
    for name in header:
        if name not in COLUMNS:
            near = near_names(name, COLUMNS, n=1)
            yield f"line 1: column {name!r} is not known" + (
                f"; did you mean {near[0]!r}" if near else ""
            )
        elif header.count(name) > 1:
            yield f"line 1: column {name!r} must stand there once"


def _faults(row: Mapping[str, str]) -> Iterator[str]:
    if not row.get("model"):
        yield "model: must not be empty"
    for name in ("isl", "osl"):
        if not row.get(name):
            yield f"{name}: must be a number, was ''"
    for name in (*_LOAD, *TARGET_UNITS):
        text = row.get(name)
        if text and not _is_number(text):
            yield f"{name}: must be a number not below 0, was {text!r}"
    mode, outcome = row.get("load_mode"), row.get("outcome")
    if mode and mode not in _MODES:
        yield f"load_mode: must be one of {', '.join(_MODES)}, was {mode!r}"
    if outcome and outcome not in set(RunOutcome):
        yield f"outcome: must be one of {', '.join(RunOutcome)}, was {outcome!r}"
    measured = [name for name in TARGET_UNITS if row.get(name)]
    if (outcome or RunOutcome.OK) == RunOutcome.OK and not measured:
        yield f"one of {', '.join(TARGET_UNITS)} must be measured"
    if row.get("measured_at") and _time(row["measured_at"]) is None:
        yield f"measured_at: must be a time as 2026-11-29T17:45:00, was {row['measured_at']!r}"


def _is_number(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return 0 <= value < TOO_MUCH


def _result(row: Mapping[str, str], where: str) -> Result:
    numbers = {name: float(row[name]) for name in (*_LOAD, *TARGET_UNITS) if row.get(name)}
    concurrency, rate = numbers.get("concurrency"), numbers.get("requests_per_s")
    n_requests, n_failed = (numbers.get(name) for name in ("n_requests", "n_failed"))
    return Result(
        where=where,
        source="csv",
        content={name: text for name, text in row.items() if text},
        model=row["model"],
        load=Load(
            mode=row.get("load_mode") or mode_of(concurrency, rate),
            isl=numbers["isl"],
            osl=numbers["osl"],
            concurrency=concurrency or None,
            requests_per_s=rate or None,
            n_requests=None if n_requests is None else int(n_requests),
            n_failed=None if n_failed is None else int(n_failed),
        ),
        targets={name: value for name, value in numbers.items() if name in TARGET_UNITS},
        outcome=RunOutcome(row.get("outcome") or RunOutcome.OK),
        measured_at=_time(row.get("measured_at", "")),
        told={name: row[name] for name in TELLABLE if row.get(name)},
        details={"note": row["note"]} if row.get("note") else {},
    )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        return None
