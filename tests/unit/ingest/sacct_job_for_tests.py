"""One job of the accounting, for tests to vary."""

from __future__ import annotations

from omnipilot_slurm.ingest.sacct_job import SacctJob

NOON = 1_800_000_000.0
JOB = SacctJob(
    job_id="4711",
    raw_id="4711",
    user="alice",
    name="serve",
    partition="gpu",
    gres_type="h100",
    n_gpus=4,
    n_nodes=1,
    submitted_at=NOON,
    eligible_at=NOON + 1.0,
    started_at=NOON + 60.0,
    ended_at=NOON + 3660.0,
    time_limit_min=120.0,
    state="COMPLETED",
    exit_code=0,
    signal=0,
)
