"""The server_starts table: what watched servers took to come up, in memory and in time.

In: ServerStarts from the collector. Out: the same again. Written by `omnipilot collect`; read by
adapt, which learns cold start and start-up memory from it: no public data has them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.redact import clean_json
from omnipilot_slurm.store.setups import COLUMNS as SETUP_COLUMNS
from omnipilot_slurm.store.setups import Setup, setup_of, values_of
from omnipilot_slurm.store.site_tables import LaunchOutcome
from omnipilot_slurm.store.upsert import upsert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

_FIGURES: Final = (
    "weights_gib", "activation_gib", "non_torch_gib", "graphs_gib", "kv_cache_gib", "n_kv_tokens",
    "kv_block_size", "load_s", "compile_s", "graphs_s", "engine_s", "cold_start_s",
)  # fmt: skip
_ORIGIN: Final = ("job_id", "decision_id", "started_at", "observed_at")
_COLUMNS: Final = ("content_hash", *_ORIGIN, *SETUP_COLUMNS, "outcome", *_FIGURES, "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFigures:
    """Memory of one GPU and times of a start, as its log says them; None: not said.

    `engine_s` is profiling, cache and warm-up together, `cold_start_s` process to first answer.
    """

    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    graphs_gib: float | None = None
    kv_cache_gib: float | None = None
    n_kv_tokens: int | None = None
    kv_block_size: int | None = None
    load_s: float | None = None
    compile_s: float | None = None
    graphs_s: float | None = None
    engine_s: float | None = None
    cold_start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """One start that was watched; times are Unix seconds.

    `content_hash` (see setups) says which start it is: of the same hash the later word counts.
    """

    content_hash: str
    started_at: float
    observed_at: float
    setup: Setup
    outcome: LaunchOutcome
    figures: StartFigures = StartFigures()
    job_id: str | None = None
    decision_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def record_server_starts(connection: sqlite3.Connection, starts: Iterable[ServerStart]) -> int:
    """Write starts in one transaction and return how many are new or say something new.

    Raises: sqlite3.Error; nothing is written then.
    """
    rows = [
        (
            one.content_hash,
            *(getattr(one, name) for name in _ORIGIN),
            *values_of(one.setup),
            one.outcome.value,
            *(getattr(one.figures, name) for name in _FIGURES),
            clean_json(one.details),
        )
        for one in starts
    ]
    with transaction(connection):
        return upsert(connection, "server_starts", _COLUMNS, rows, n_key=1, silent=("observed_at",))


def server_starts(connection: sqlite3.Connection, since: float) -> Iterator[ServerStart]:
    """Yield the starts at a Unix time or later, in order.

    Raises: StoreError.
    """
    sql = (
        f"SELECT {', '.join(_COLUMNS)} FROM server_starts "  # noqa: S608 (constants)
        "WHERE started_at >= ? ORDER BY started_at, content_hash"
    )
    for row in fetched(connection, "server_starts", sql, (since,)):
        cells = dict(zip(_COLUMNS, row, strict=True))
        yield ServerStart(
            **{name: cells[name] for name in ("content_hash", *_ORIGIN)},
            setup=setup_of([cells[name] for name in SETUP_COLUMNS]),
            outcome=LaunchOutcome(cells["outcome"]),
            figures=StartFigures(**{name: cells[name] for name in _FIGURES}),
            details=json.loads(cells["details"]),
        )
