"""The tidy schema of measured serving rows: a CSV file in, typed measurements out.

Every cell is checked before anything is used: all faults of all files are told at once, each with
file and line. Rows of other engines are counted and left out. Called by train/dataset.py.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import DataError, near_names
from omnipilot_slurm.predict.rows import CLOSED_LOOP, OFFLINE, SATURATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

ENGINE = "vLLM"
LOAD_MODES = (CLOSED_LOOP, OFFLINE, SATURATED)

#: what is measured, and may be missing
TARGETS = (
    "total_tok_s",
    "output_tok_s",
    "req_s",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "power_w",
)

#: prompt lengths that the source does not state: our estimates, images and video as tokens
PROMPT_TOKENS = {
    "lm-arena-chat": 200.0,
    "gpqa": 250.0,
    "sourcegraph-fim": 600.0,
    "image-chat": 1000.0,
    "video-chat": 4000.0,
}

_TEXTS = ("source", "engine", "model", "family", "gpu", "dtype", "kv_dtype", "cell", "load_mode")
_OPTIONAL_TEXTS = ("licence", "engine_version", "workload")
_POSITIVE = (
    "params_b",
    "active_b",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "kv_elems",
    "n_exp",
    "topk",
    "gpu_mem_gb",
    "gpu_bw_gbs",
    "gpu_link_gbs",
    "gpu_tdp_w",
    "n_gpus",
    "tp",
    "pp",
    "ep",
    "dp",
    "concurrency",
    "output_len",
)
_OPTIONAL_POSITIVE = ("input_len", *TARGETS)
#: columns of the schema that nothing here reads
_UNREAD = (
    "derived",
    "date",
    "arch",
    "moe",
    "request_rate",
    "itl_p99_ms",
    "energy_per_tok_j",
    "n_ok",
    "n_fail",
    "n_oom",
)
REQUIRED = (*_TEXTS, *_POSITIVE)
KNOWN = frozenset((*REQUIRED, *_OPTIONAL_TEXTS, *_OPTIONAL_POSITIVE, *_UNREAD))

#: no fact or measurement lies beyond; sums and products of these stay finite
_LEAST, _MOST = 1e-6, 1e12

#: faults told in full; a file of another schema would otherwise fill the screen
_MAX_TOLD = 50


@dataclass(frozen=True, slots=True)
class Measurement:
    """One checked row: `texts` and `numbers` by column name; an absent number is NaN."""

    file: str
    line: int
    texts: Mapping[str, str]
    numbers: Mapping[str, float]


@dataclass(slots=True)
class Reading:
    """What files said: their vLLM rows, and remarks.

    `places` has an entry for every row of the files in order: its index in `rows`, or, where it is
    not among them, the column because of which (`engine` for those of other engines).
    """

    rows: list[Measurement] = field(default_factory=list)
    places: list[int | str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def n_other_engines(self) -> int:
        """The number of rows of other engines."""
        return self.places.count("engine")


def read_csv(paths: Sequence[Path], *, drop_faulty: bool = False) -> Reading:
    """Read and check the vLLM rows of files of the tidy schema.

    With `drop_faulty` a row with faults is left out and they are remarks; a file that is none of
    this schema is refused all the same.
    Raises: DataError listing every fault as file:line: column: what it must be, what it was.
    """
    reading, faults, row_faults = Reading(), list[str](), list[str]()
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                faults += _read_file(str(path), stream, reading, row_faults)
        except OSError as error:
            faults.append(f"{path}: cannot be read: {error.strerror}")
        except UnicodeDecodeError as error:
            faults.append(f"{path}: must be UTF-8 text: {error.reason} at byte {error.start}")
        except csv.Error as error:
            faults.append(f"{path}: must be a CSV file: {error}")
    if faults or (row_faults and not drop_faulty):
        message = "\n".join(_told([*faults, *row_faults]))
        raise DataError(message, hint="mend or drop the rows named; nothing was used")
    reading.remarks += _told(row_faults)
    return reading


def _told(faults: Sequence[str]) -> list[str]:
    rest = len(faults) - _MAX_TOLD
    return [*faults[:_MAX_TOLD], *([f"... and {rest} more faults"] if rest > 0 else [])]


def _read_file(
    name: str, stream: Iterable[str], reading: Reading, row_faults: list[str]
) -> Iterator[str]:
    """Yield what is wrong with the header; with a good one, read the rows."""
    reader = csv.reader(stream)
    header = next(reader, [])
    missing = [column for column in REQUIRED if column not in header]
    if missing:
        yield f"{name}:1: the header lacks the columns {', '.join(missing)}"
        return
    twice = [column for column, count in Counter(header).items() if count > 1]
    if twice:
        yield f"{name}:1: the header has more than once {', '.join(twice)}"
        return
    reading.remarks += [_unknown(name, column) for column in header if column not in KNOWN]
    for cells in filter(None, reader):
        row = dict(zip(header, cells, strict=False))
        if row.get("engine", ENGINE) != ENGINE:
            reading.places.append("engine")
            continue
        found = list(_faults(row) if len(cells) == len(header) else _miscounted(header, cells))
        if found:
            reading.places.append(found[0][0])
            row_faults += [f"{name}:{reader.line_num}: {column}: {text}" for column, text in found]
        else:
            reading.places.append(len(reading.rows))
            reading.rows.append(_measurement(name, reader.line_num, row))


def _miscounted(header: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "row", f"must have {len(header)} cells, has {len(cells)}"


def _unknown(name: str, column: str) -> str:
    near = near_names(column, KNOWN)
    advice = f"; did you mean {near[0]!r}" if near else ""
    return f"{name}:1: column {column!r} is not of the schema and is not read{advice}"


def _measurement(name: str, line: int, row: Mapping[str, str]) -> Measurement:
    texts = {column: row.get(column, "") for column in (*_TEXTS, *_OPTIONAL_TEXTS)}
    numbers = {
        column: float(row.get(column) or "nan") for column in (*_POSITIVE, *_OPTIONAL_POSITIVE)
    }
    return Measurement(name, line, texts, numbers)


def _faults(row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a row of vLLM: the column, and what it must be."""
    for column in _TEXTS:
        if not row[column]:
            yield column, "must not be empty"
    if row["load_mode"] and row["load_mode"] not in LOAD_MODES:
        known = ", ".join(LOAD_MODES)
        yield "load_mode", f"must be one of {known}, was {row['load_mode']!r}"
    wrong = [column for column in _POSITIVE if not _is_sane(row[column])]
    wrong += [
        column for column in _OPTIONAL_POSITIVE if row.get(column) and not _is_sane(row[column])
    ]
    for column in wrong:
        yield column, f"must be a number from {_LEAST:g} to {_MOST:g}, was {row[column]!r}"
    if not row.get("input_len") and row.get("workload", "") not in PROMPT_TOKENS:
        known = ", ".join(PROMPT_TOKENS)
        yield "input_len", f"must be a number > 0 unless workload is one of {known}, was ''"
    if not wrong:
        yield from _contradictions({column: float(row[column]) for column in _POSITIVE})


def _contradictions(value: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    if value["active_b"] > value["params_b"]:
        most = value["params_b"]
        yield "active_b", f"must be <= params_b {most:g}, was {value['active_b']:g}"
    if value["topk"] > value["n_exp"]:
        yield "topk", f"must be <= n_exp {value['n_exp']:g}, was {value['topk']:g}"
    replicas = value["pp"] * value["dp"]
    if value["n_gpus"] % replicas:
        yield (
            "n_gpus",
            f"must be a multiple of pp x dp = {replicas:g}, was {value['n_gpus']:g}",
        )


def _is_sane(text: str) -> bool:
    try:
        return _LEAST <= float(text) <= _MOST
    except ValueError:
        return False
