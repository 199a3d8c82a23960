"""Options that tell the arm of a server that was measured, for the commands that store rows.

In: a command's function. Out: the same with the options; the texts by the names of ingest/told.py.
Called by ingest bench and collect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnipilot_slurm.ingest.told import named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: what may be told of the arm: option, and what it says
_ARM = {
    "job": "Slurm's job id: the arm is what was decided, or watched, of that job.",
    "gpu": "GPU type, as gpus.yaml knows it.",
    "n-gpus": "GPUs of the server. [default: tensor x pipeline x data parallel]",
    "n-nodes": "Nodes of the server. [default: 1]",
    "tensor-parallel": "[default: 1]",
    "pipeline-parallel": "[default: 1]",
    "data-parallel": "[default: 1]",
    "expert-parallel": "true or false. [default: false]",
    "precision": "bf16, fp8, awq, ... of the weights. [default: the checkpoint's]",
    "kv-cache-dtype": "[default: auto]",
    "vllm-version": "Version of vLLM.",
    "max-num-seqs": "As the server was told.",
    "max-num-batched-tokens": "As the server was told.",
    "gpu-memory-utilization": "As the server was told.",
}


def arm_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the options."""
    for name, text in reversed(_ARM.items()):
        command = click.option(f"--{name}", help=text)(command)
    return command


def told_of(arm: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the options tell, by the names of ingest/told.py."""
    return named({"job_id" if name == "job" else name: text for name, text in arm.items() if text})
