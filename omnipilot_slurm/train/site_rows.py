"""A site's measured rows from its database, as the cost model learns from them.

In: runs of the benchmarks table. Out: a `Dataset`, to be joined with one from CSV files. Called by
`omnipilot adapt`, drift and the site's report. Runs whose model no catalog knew, that failed, or
that state no concurrency teach nothing and are counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.catalog.facts_json import facts_from_json
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.predict.rows import live_row, table
from omnipilot_slurm.records import Workload
from omnipilot_slurm.store.benchmarks import RunOutcome, cell_of
from omnipilot_slurm.train.dataset import Dataset
from omnipilot_slurm.train.schema import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.predict.rows import FeatureRow
    from omnipilot_slurm.store.benchmarks import Benchmark

#: what a server schedules where a row does not say, as in train/dataset.py
_BATCHED_TOKENS, _MEM_UTIL = 8192.0, 0.9


@dataclass(frozen=True, slots=True)
class SiteRows:
    """The rows that teach, when each was measured (Unix time, s), and how many runs do not.

    A run that does not say when it was measured is as old as can be: 0.
    """

    data: Dataset | None
    measured_at: tuple[float, ...]
    n_left_out: int


def site_rows(runs: Iterable[Benchmark], catalog: Catalog) -> SiteRows:
    """Return the rows of runs that measured a target."""
    taken = []
    n_left_out = 0
    for run in runs:
        row = feature_row_of(run, catalog)
        if row is None or run.outcome is not RunOutcome.OK or not set(TARGETS) & set(run.targets):
            n_left_out += 1
        else:
            taken.append((run, row))
    measured_at = tuple(run.measured_at or 0.0 for run, _ in taken)
    return SiteRows(_dataset(taken) if taken else None, measured_at, n_left_out)


def feature_row_of(run: Benchmark, catalog: Catalog) -> FeatureRow | None:
    """Return the row of a run; None where its model, GPU or concurrency is not known."""
    setup, load = run.setup, run.load
    if setup.model_facts is None or not load.concurrency or load.isl <= 0 or load.osl <= 0:
        return None
    try:
        gpu = catalog.gpu(setup.arm.gpu)
    except CatalogError:
        return None
    flags = setup.flags
    concurrency = load.concurrency
    return live_row(
        facts_from_json(dict(setup.model_facts)),
        gpu,
        setup.arm,
        Workload(isl=round(load.isl), osl=round(load.osl), concurrency=round(concurrency) or 1),
        max_num_seqs=round(_number(flags.get("max_num_seqs"), concurrency)),
        max_num_batched_tokens=round(
            _number(flags.get("max_num_batched_tokens"), max(_BATCHED_TOKENS, load.isl))
        ),
        mem_util=_number(flags.get("gpu_memory_utilization"), _MEM_UTIL),
        engine_version=setup.software.vllm,
        load_mode=load.mode,
    )


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float | str) and value else otherwise


def _dataset(taken: Sequence[tuple[Benchmark, FeatureRow]]) -> Dataset:
    runs, rows = [run for run, _ in taken], tuple(row for _, row in taken)
    columns = table(rows)
    hashes = sorted(run.content_hash for run in runs)
    facts = ("layers", "hidden", "heads", "kv_heads", "vocab", "n_experts")
    cells = [cell_of(run.setup, run.load) for run in runs]
    return Dataset(
        rows=rows,
        table=columns,
        measured={
            name: np.array([run.targets.get(name, np.nan) for run in runs], dtype=np.float64)
            for name in TARGETS
        },
        groups={
            "cell": np.array(cells),
            "workload": np.array([cell.rsplit("|c", 1)[0] for cell in cells]),
            "architecture": np.array(
                ["/".join(f"{getattr(row, fact):g}" for fact in facts) for row in rows]
            ),
            "family": columns.labels["family"],
            "gpu": columns.labels["gpu"],
            "source": np.array([run.source for run in runs]),
        },
        arms=np.array([arm_of(run) for run in runs]),
        n_repeats=np.ones(len(runs)),
        data_hash=hashlib.sha256("\n".join(hashes).encode()).hexdigest(),
    )


def arm_of(run: Benchmark) -> str:
    """Return the name of a run's arm within its cell."""
    arm = run.setup.arm
    sizes = (arm.n_gpus, arm.tensor_parallel, arm.pipeline_parallel, arm.data_parallel)
    parts = (arm.gpu, *sizes, int(arm.expert_parallel), arm.precision, arm.kv_cache_dtype)
    return "|".join(str(part) for part in parts)


def joined(parts: Sequence[Dataset]) -> Dataset:
    """Return the rows of all parts, of which there is at least one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows = tuple(row for part in parts for row in part.rows)
    return Dataset(
        rows=rows,
        table=table(rows),
        measured={
            name: np.concatenate([part.measured[name] for part in parts]) for name in TARGETS
        },
        groups={
            name: np.concatenate([part.groups[name] for part in parts]) for name in first.groups
        },
        arms=np.concatenate([part.arms for part in parts]),
        n_repeats=np.concatenate([part.n_repeats for part in parts]),
        data_hash=hashlib.sha256("".join(part.data_hash for part in parts).encode()).hexdigest(),
    )


def row_keys(data: Dataset) -> list[str]:
    """Return a key a row: what was measured on which arm; the same row again has the same."""
    return [
        hashlib.sha256(
            "|".join(
                [
                    str(data.groups["cell"][i]),
                    str(data.arms[i]),
                    str(data.table.labels["engine_version"][i]),
                    *(f"{data.measured[name][i]:.6g}" for name in TARGETS),
                ]
            ).encode()
        ).hexdigest()[:16]
        for i in range(len(data))
    ]
