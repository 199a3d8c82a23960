"""The benchmarks table: what servers delivered, one row for each run or steady stretch.

In: Benchmarks, from result files, the collector or a probe. Out: the same again, oldest first.
Written by `omnipilot ingest bench`, collect and probe; read by adapt, drift and the reports.
Spec section 8, the personal store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import TARGET_UNITS
from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.redact import clean_json
from omnipilot_slurm.store.setups import COLUMNS as SETUP_COLUMNS
from omnipilot_slurm.store.setups import Setup, setup_of, values_of
from omnipilot_slurm.store.upsert import upsert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

#: what the columns mean; a change of meaning counts it up
ROW_SCHEMA: Final = 1
_TARGETS: Final = tuple(TARGET_UNITS)
_LOAD: Final = (
    "load_mode",
    "isl",
    "osl",
    "concurrency",
    "requests_per_s",
    "n_requests",
    "n_failed",
)
_ORIGIN: Final = ("row_schema", "source", "file", "ingested_at", "measured_at", "job_id")
_END: Final = ("outcome", "window_start", "window_end", "n_power_samples", "details")
_COLUMNS: Final = ("content_hash", *_ORIGIN, *SETUP_COLUMNS, "cell", *_LOAD, *_TARGETS, *_END)
#: of one file read again under another name
_SILENT: Final = ("ingested_at", "file")


class RunOutcome(StrEnum):
    """How a measured run ended."""

    OK = "ok"
    OOM = "oom"
    INCOMPATIBLE = "incompatible"
    TIMEOUT = "timeout"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a server was asked: means over the requests; `requests_per_s` is what was offered.

    `mode` is one of predict.rows (offline_static_batch, online_closed_loop, online_saturated).
    """

    mode: str
    isl: float
    osl: float
    concurrency: float | None = None
    requests_per_s: float | None = None
    n_requests: int | None = None
    n_failed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steady stretch, in Unix time (s), and how many power samples lie wholly inside."""

    start: float
    end: float
    n_power_samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One measured run; times are Unix seconds, `targets` by name as in records.TARGET_UNITS.

    `content_hash` (see setups) is of what the source says of the run: a row of the same hash is the
    same run, and the later reading of it counts. A target that was not measured is absent.
    """

    content_hash: str
    source: str
    setup: Setup
    load: Load
    targets: Mapping[str, float]
    outcome: RunOutcome = RunOutcome.OK
    file: str | None = None
    measured_at: float | None = None
    job_id: str | None = None
    window: Window | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def cell_of(setup: Setup, load: Load) -> str:
    """Return the cell of a run: model x context x concurrency; rows of one are not independent."""
    rate = "" if load.requests_per_s is None else f"|r{load.requests_per_s:g}"
    n = "" if load.concurrency is None else f"|c{load.concurrency:g}"
    return f"{setup.model}|in{load.isl:g}|out{load.osl:g}{n}{rate}"


def record_benchmarks(
    connection: sqlite3.Connection, benchmarks: Iterable[Benchmark], *, at: float
) -> int:
    """Write runs in one transaction at a Unix time; return how many are new or say something new.

    Raises: sqlite3.Error; nothing is written then.
    """
    rows = [_row(one, at) for one in benchmarks]
    with transaction(connection):
        return upsert(connection, "benchmarks", _COLUMNS, rows, n_key=1, silent=_SILENT)


def benchmarks(connection: sqlite3.Connection, *, after_row: int = 0) -> Iterator[Benchmark]:
    """Yield the runs, in the order in which they were first written, behind a row_id.

    Raises: StoreError.
    """
    names = [*_COLUMNS, "row_id"]
    sql = f"SELECT {', '.join(names)} FROM benchmarks WHERE row_id > ? ORDER BY row_id"  # noqa: S608
    for row in fetched(connection, "benchmarks", sql, (after_row,)):
        yield _benchmark(dict(zip(names, row, strict=True)))


def _row(one: Benchmark, at: float) -> tuple[object, ...]:
    unknown = one.targets.keys() - TARGET_UNITS.keys()
    if unknown:
        raise KeyError(f"{', '.join(sorted(unknown))} are not targets")
    load, window = one.load, one.window
    return (
        one.content_hash,
        *(ROW_SCHEMA, one.source, one.file, at, one.measured_at, one.job_id),
        *values_of(one.setup),
        cell_of(one.setup, load),
        *(load.mode, load.isl, load.osl, load.concurrency, load.requests_per_s),
        *(load.n_requests, load.n_failed),
        *(one.targets.get(name) for name in _TARGETS),
        one.outcome.value,
        *((None,) * 3 if window is None else (window.start, window.end, window.n_power_samples)),
        clean_json(one.details),
    )


def _benchmark(cells: dict[str, object]) -> Benchmark:
    load = {name.removeprefix("load_"): cells[name] for name in _LOAD}
    start, end, n = (cells[name] for name in ("window_start", "window_end", "n_power_samples"))
    window = None if start is None else Window(start=start, end=end, n_power_samples=n or 0)  # type: ignore[arg-type]
    same = ("content_hash", "source", "file", "measured_at", "job_id")
    return Benchmark(
        **{name: cells[name] for name in same},  # type: ignore[arg-type]  # the schema's types
        setup=setup_of([cells[name] for name in SETUP_COLUMNS]),
        load=Load(**load),  # type: ignore[arg-type]  # as above
        targets={name: cells[name] for name in _TARGETS if cells[name] is not None},  # type: ignore[misc]
        outcome=RunOutcome(str(cells["outcome"])),
        window=window,
        details=json.loads(str(cells["details"])),
    )
