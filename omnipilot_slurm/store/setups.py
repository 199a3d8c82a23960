"""What of a server belongs to every row that was measured on it: software, model, arm, flags.

In: a Setup, or the columns of a row. Out: the same as columns, and back. Used by the benchmarks and
server_starts tables.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Arm
from omnipilot_slurm.store.redact import clean_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: the columns of a setup, in order
COLUMNS: Final = (
    "vllm_version", "torch_version", "cuda_version", "driver_version", "model", "model_facts",
    "gpu", "n_gpus", "n_nodes", "tensor_parallel", "pipeline_parallel", "data_parallel",
    "expert_parallel", "precision", "kv_cache_dtype", "flags",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The versions that a server runs with; None where they are not known."""

    vllm: str | None = None
    torch: str | None = None
    cuda: str | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A server: `model` as it was told, `model_facts` as catalog.facts_json writes them, its arm.

    `arm.n_gpus` are those of the server; partition and gres_type of the arm are not kept. `flags`
    are engine options by name (max_num_seqs, gpu_memory_utilization, ...) as far as they are known.
    """

    model: str
    arm: Arm
    software: Software = Software()
    model_facts: Mapping[str, object] | None = None
    flags: Mapping[str, object] = field(default_factory=dict)


def values_of(setup: Setup) -> tuple[object, ...]:
    """Return a setup as the values of COLUMNS."""
    software, arm = setup.software, setup.arm
    return (
        software.vllm,
        software.torch,
        software.cuda,
        software.driver,
        setup.model,
        None if setup.model_facts is None else clean_json(setup.model_facts),
        arm.gpu,
        arm.n_gpus,
        arm.n_nodes,
        arm.tensor_parallel,
        arm.pipeline_parallel,
        arm.data_parallel,
        int(arm.expert_parallel),
        arm.precision,
        arm.kv_cache_dtype,
        clean_json(setup.flags),
    )


def setup_of(values: Sequence[object]) -> Setup:
    """Return the setup that values_of wrote."""
    cells = dict(zip(COLUMNS, values, strict=True))
    versions = {name.removesuffix("_version"): cells.pop(name) for name in COLUMNS[:4]}
    model, facts, flags = (cells.pop(name) for name in ("model", "model_facts", "flags"))
    cells["expert_parallel"] = bool(cells["expert_parallel"])
    return Setup(
        model=str(model),
        arm=Arm(partition=None, gres_type=None, **cells),  # type: ignore[arg-type]  # the schema's
        software=Software(**versions),  # type: ignore[arg-type]  # as above
        model_facts=None if facts is None else json.loads(str(facts)),
        flags=json.loads(str(flags)),
    )


def content_hash(content: object) -> str:
    """Return the SHA-256 of JSON values, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
