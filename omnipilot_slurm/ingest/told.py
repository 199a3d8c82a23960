"""What can be told of the server that a result is of: names, other spellings, and their Setup.

In: texts by name, from the command line, the file and the job, in this order of weight. Out: a
Setup. Pure but for the catalog that is handed in. Called by benchmark_files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.catalog.facts_json import facts_to_json
from omnipilot_slurm.decide.arms import precision_of
from omnipilot_slurm.errors import CatalogError, DataError
from omnipilot_slurm.records import Arm, EngineArgs
from omnipilot_slurm.store.setups import Setup, Software

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.facts import ModelFacts

_COUNTS: Final = (
    "n_gpus", "n_nodes", "tensor_parallel", "pipeline_parallel", "data_parallel",
)  # fmt: skip
_VERSIONS: Final = ("vllm_version", "torch_version", "cuda_version", "driver_version")
#: engine options that the cost model's features look at
_FLAGS: Final = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "max_model_len",
)
TELLABLE: Final = (
    "job_id", "gpu", *_COUNTS, "expert_parallel", "precision", "kv_cache_dtype", *_VERSIONS,
    *_FLAGS,
)  # fmt: skip
#: other spellings, as of vLLM's options and of common metadata
_SPELLINGS: Final = {
    "tp": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pp": "pipeline_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "dp": "data_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
    "quantization": "precision",
    "gpu_type": "gpu",
    "vllm": "vllm_version",
    "slurm_job_id": "job_id",
}
_YES: Final = frozenset(("1", "true", "yes"))
_NO: Final = frozenset(("0", "false", "no", ""))


def named(told: Mapping[str, str]) -> dict[str, str]:
    """Return what is told under our names, whatever else stands there left out."""
    plain = {name.lower().strip().replace("-", "_"): text.strip() for name, text in told.items()}
    spelt = {_SPELLINGS.get(name, name): text for name, text in plain.items()}
    return {name: spelt[name] for name in TELLABLE if spelt.get(name)}


def setup_told(
    told: Mapping[str, str], model: str | None, known: Setup | None, catalog: Catalog
) -> Setup:
    """Return the server: what is told of it over what is `known` of its job.

    Raises: DataError naming what must be told and is not.
    """
    name = model or (known.model if known is not None else "")
    if not name:
        raise DataError("the model must be told: --model")
    facts = _facts(name, catalog)
    arm = _arm(told, known, catalog)
    if "precision" not in told and known is None:
        if facts is None:
            raise DataError(
                f"the precision must be told, model {name!r} is not in the catalog: --precision"
            )
        arm = replace(arm, precision=precision_of(facts, EngineArgs(model=name)))
    software = known.software if known is not None else Software()
    versions = {one.removesuffix("_version"): told[one] for one in _VERSIONS if one in told}
    before = known.flags if known is not None else {}
    return Setup(
        model=name,
        arm=arm,
        software=replace(software, **versions),
        model_facts=None if facts is None else facts_to_json(facts),
        flags={**before, **{flag: _number(told, flag) for flag in _FLAGS if flag in told}},
    )


def _facts(model: str, catalog: Catalog) -> ModelFacts | None:
    try:
        return catalog.model(model).facts
    except CatalogError:
        return None


def _arm(told: Mapping[str, str], known: Setup | None, catalog: Catalog) -> Arm:
    if known is None and "gpu" not in told:
        raise DataError(
            "the GPU type must be told: --gpu, a metadata of the file, or --job of a known job"
        )
    arm = known.arm if known is not None else Arm(partition=None, gpu="", gres_type=None, n_gpus=1)
    counts = {name: int(_number(told, name)) for name in _COUNTS if name in told}
    texts = {name: told[name] for name in ("precision", "kv_cache_dtype") if name in told}
    arm = replace(arm, **counts, **texts)  # type: ignore[arg-type]  # fields of those types
    if "gpu" in told:
        try:
            arm = replace(arm, gpu=catalog.gpu(told["gpu"]).id)
        except CatalogError as error:
            raise DataError(f"gpu: {error}") from error
    if "expert_parallel" in told:
        arm = replace(arm, expert_parallel=_flag(told["expert_parallel"]))
    n_used = arm.tensor_parallel * arm.pipeline_parallel * arm.data_parallel
    if "n_gpus" not in told and (known is None or counts):
        arm = replace(arm, n_gpus=n_used)
    if arm.n_gpus < n_used:
        raise DataError(
            f"n_gpus must be at least tensor x pipeline x data parallel = {n_used}, "
            f"was {arm.n_gpus}"
        )
    return arm


def _number(told: Mapping[str, str], name: str) -> float:
    text = told[name]
    is_count = name != "gpu_memory_utilization"
    try:
        value = int(text) if is_count else float(text)
    except ValueError as error:
        kind = "a whole number" if is_count else "a number"
        raise DataError(f"{name} must be {kind}, was {text!r}") from error
    if value <= 0:
        raise DataError(f"{name} must be above 0, was {text!r}")
    return value


def _flag(text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise DataError(f"expert_parallel must be true or false, was {text!r}")
    return text.lower() in _YES
