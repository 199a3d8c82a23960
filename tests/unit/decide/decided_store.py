"""A store filled by real decisions on the sandbox's cluster, as omnipilotd writes it.

They are made with the shipped cost model, whose figures change; tests hold on to what follows from
prices and rules alone.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from site_for_tests import site, submit

from omnipilot_slurm.daemon.source import decider
from omnipilot_slurm.records import Mode
from omnipilot_slurm.site_files import read_files
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.decisions import Decided, Subject, insert, row_of, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from omnipilot_slurm.predict.live import ArmPredictor
    from omnipilot_slurm.store.decisions import Row

LLAMA_70B = "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192"
LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"


def script(gres: str, launch: str) -> str:
    return f"#!/bin/bash\n#SBATCH --gres={gres}\n#SBATCH --time=10:00:00\n{launch}\n"


#: fails for certain and is moved; TP is filled in; fails and is refused; not known; opted out
JOBS = {
    "moved": script("gpu:a100:1", LLAMA_70B),
    "filled": script("gpu:a100:2", LLAMA_8B),
    "refused": script("gpu:a100:3", f"{LLAMA_8B} -tp 3"),
    "unknown": script("gpu:a100:1", "vllm serve nobody/has-this-one"),
    "off": script("gpu:a100:1", f"#OMNIPILOT off\n{LLAMA_70B}"),
}
#: worth more on cheaper GPUs, whatever the model's figures, where tokens are worth nothing
CHEAPER = script("gpu:h100:4", f"#OMNIPILOT auto concurrency=8\n{LLAMA_8B} -tp 4")


@lru_cache
def predictor() -> ArmPredictor | None:
    return read_files([]).predictor


def row(
    decision_id: str,
    text: str,
    *,
    at: float,
    mode: Mode = Mode.OBSERVE,
    repeats: str | None = None,
    usd_per_token: float = 2e-6,
    **fields: Any,
) -> Row:
    """Return the row of a real decision on a script."""
    submission = submit(text, **fields)
    plain = site(mode)
    utility = replace(plain.utility, value_usd_per_output_token=usd_per_token)
    where = replace(plain, predictor=predictor(), utility=utility)
    outcome = decider(where, budget=lambda: lambda: False)(submission)
    words = words_of(outcome)
    subject = Subject(
        user_name=submission.user_name,
        account=submission.account,
        partition=submission.partition,
        job_name=submission.name,
        script_sha256="ab" * 32,
        script_bytes=len(text),
    )
    return row_of(
        Decided(
            id=decision_id,
            at=at,
            subject=subject,
            verdict=str(outcome.verdict),
            would_be=words.would_be,
            code=outcome.code,
            generation=1,
            elapsed_ms=1.0,
            words=words if repeats is None else repeats,
        )
    )


def written(path: Path, rows: Iterable[Row]) -> Path:
    """Write rows into a new store and return its path."""
    with closing(open_for_writing(path)) as connection:
        insert(connection, list(rows))
    return path
