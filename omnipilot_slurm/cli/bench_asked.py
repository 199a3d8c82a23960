"""Which arm a benchmark is planned for: from options, a decision printed before, or a job script.

In: what was written on the command line. Out: `Asked` records. Called by `omnipilot bench-plan`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.cli.job_question import JobOptions, job_question
from omnipilot_slurm.decide.arms import precision_of
from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.errors import DataError, UsageError
from omnipilot_slurm.predict.rows import live_row
from omnipilot_slurm.records import Arm, EngineArgs, Starts, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.predict.rows import FeatureRow

_ARM = (
    *("gpu", "n_gpus", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("expert_parallel", "precision", "kv_cache_dtype"),
)
_LOAD = ("isl", "osl", "concurrency")
#: the scheduler's limits are no axis of support, and do not bind in a benchmark
_BATCHED_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One arm to bring into support, with the load it is asked for."""

    model: ModelFacts
    gpu: GpuFacts
    arm: Arm
    workload: Workload
    vllm_version: str | None

    def row(self, concurrency: int | None = None) -> FeatureRow:
        """Return the arm as a row of features, at the asked concurrency or another."""
        load = replace(self.workload, concurrency=concurrency or self.workload.concurrency)
        return live_row(
            self.model,
            self.gpu,
            self.arm,
            load,
            max_num_seqs=load.concurrency,
            max_num_batched_tokens=max(_BATCHED_TOKENS, load.isl),
            engine_version=self.vllm_version,
        )


def from_options(catalog: Catalog, told: Mapping[str, Any]) -> Asked:
    """Return the arm that options name: one server on GPUs of one type.

    Raises: UsageError without a GPU, CatalogError for a name that is not known.
    """
    if told["gpu"] is None:
        raise UsageError("--model needs --gpu")
    facts, gpu = catalog.model(told["model"]).facts, catalog.gpu(told["gpu"])
    n_gpus = told["tensor_parallel"]
    arm = Arm(
        partition=None,
        gpu=gpu.id,
        gres_type=None,
        n_gpus=n_gpus,
        tensor_parallel=n_gpus,
        precision=told["precision"] or precision_of(facts, EngineArgs()),
    )
    workload = Workload(**{name: told[name] for name in _LOAD})
    return Asked(
        model=facts, gpu=gpu, arm=arm, workload=workload, vllm_version=told["vllm_version"]
    )


def of_job(job: Path, *, cluster: Path | None, config: Path | None) -> Mapping[str, Any]:
    """Return the decision on a job, as plain values."""
    options = JobOptions(
        job=job,
        args=(),
        cluster=cluster,
        config=config,
        variables=(),
        user=None,
        account=None,
    )
    with job_question(options) as question:
        return as_json(question.decided())


def of_file(decision: TextIO) -> Mapping[str, Any]:
    """Return a decision that was printed before.

    Raises: DataError for anything else.
    """
    try:
        record = json.load(decision)
    except ValueError as error:
        raise DataError(f"{decision.name}: must be JSON: {error}") from error
    if not isinstance(record, dict) or "launch" not in record or "workload" not in record:
        raise DataError(
            f"{decision.name}: must be a decision, has no launch and workload",
            hint="it is what `omnipilot advise JOB.sh --json` prints",
        )
    return record


def from_record(catalog: Catalog, record: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield the arm asked for, or where it is open every arm that may start.

    Raises: UsageError where there is none.
    """
    launch, load = record["launch"], record["workload"]
    if launch is None or load is None:
        raise UsageError(
            f"there is no arm to measure: {record['reason']['text']}",
            hint="name it with --model and --gpu",
        )
    open_arms = [arm for arm in record["arms"] if arm["starts"] != str(Starts.FAILS)]
    chosen = [record["asked"]] if record["asked"] is not None else open_arms
    if not chosen:
        raise UsageError("no arm of this job would start, so there is none to measure")
    facts = catalog.model(launch["model"]).facts
    for arm in chosen:
        yield Asked(
            model=facts,
            gpu=catalog.gpu(arm["gpu"]),
            arm=Arm(partition=None, gres_type=None, **{name: arm[name] for name in _ARM}),
            workload=Workload(**{name: load[name] for name in _LOAD}),
            vllm_version=launch["vllm_version"],
        )
