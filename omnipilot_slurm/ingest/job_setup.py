"""What is known of the server of a job: from whoever watched it start, or from its decision.

In: a connection of the store and a job's id. Out: a Setup. Called by `omnipilot ingest bench` for
results that name their job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.records import Arm
from omnipilot_slurm.store.setups import COLUMNS, Setup, Software, setup_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


def setup_of_job(connection: sqlite3.Connection, job_id: str) -> Setup | None:
    """Return the server of the latest job of this id, None where nothing tells its arm."""
    watched = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM server_starts WHERE job_id = ? "  # noqa: S608 (constants)
        "ORDER BY started_at DESC LIMIT 1",
        (job_id,),
    ).fetchone()
    if watched is not None:
        return setup_of(watched)
    decided = connection.execute(
        "SELECT gpu, n_gpus, tensor_parallel, precision, engine_version, "
        "coalesce(own.record, first.record) FROM launches "
        "LEFT JOIN decisions AS own ON own.id = launches.decision_id "
        "LEFT JOIN decisions AS first ON first.id = own.repeats "
        "WHERE job_id = ? ORDER BY submitted_at DESC LIMIT 1",
        (job_id,),
    ).fetchone()
    return None if decided is None else _decided(decided)


def _decided(row: Sequence[Any]) -> Setup:
    gpu, n_gpus, tensor_parallel, precision, version, record = row
    launch = (json.loads(record) if record else {}).get("launch") or {}
    return Setup(
        model=launch.get("model") or "",
        arm=Arm(
            partition=None,
            gpu=gpu,
            gres_type=None,
            n_gpus=n_gpus,
            tensor_parallel=tensor_parallel,
            pipeline_parallel=launch.get("pipeline_parallel") or 1,
            data_parallel=launch.get("data_parallel") or 1,
            expert_parallel=bool(launch.get("expert_parallel")),
            precision=precision,
            kv_cache_dtype=launch.get("kv_cache_dtype") or "auto",
        ),
        software=Software(vllm=version),
    )
