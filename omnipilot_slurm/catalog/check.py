"""What `omnipilot config check` says of gpus.yaml and models.yaml: does each entry hold together.

In: the site's folder. Out: every Fault, with file:line:col. The strict loader has seen to types
and ranges by then; here the fields of an entry are held against each other and against the
parameters they imply. Called by the command and by the tests that guard the shipped files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.gpu_table import GpuTable, load_gpus
from omnipilot_slurm.catalog.model_table import ModelTable, load_models
from omnipilot_slurm.errors import ConfigError, Fault
from omnipilot_slurm.resources import SITE_FOLDER, etc_layers
from omnipilot_slurm.vllm.weights import n_moe_layers, parameter_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.strict_yaml import Loaded

#: how far the parameters that the fields imply may be from the stated ones
PARAMS_TOLERANCE_FRAC = 0.02
#: FP8 arithmetic came with Ada (8.9)
_FP8_CAPABILITY = (8, 9)
_SMALLEST_VOCAB = 256
_WIDEST_HEAD = 1024


def check_catalogs(*, site: Path | None = SITE_FOLDER) -> list[Fault]:
    """Return every fault of both catalogs, the site's files over the shipped ones."""
    faults: list[Fault] = []
    try:
        gpus, loaded_gpus = load_gpus(etc_layers("gpus.yaml", site=site))
        faults += check_gpus(gpus, loaded_gpus)
    except ConfigError as error:
        faults += error.faults
    try:
        models, loaded_models = load_models(etc_layers("models.yaml", site=site))
        faults += check_models(models, loaded_models)
    except ConfigError as error:
        faults += error.faults
    return faults


def check_gpus(table: GpuTable, loaded: Loaded) -> list[Fault]:
    """Return what is wrong with the entries of gpus.yaml."""
    return [
        loaded.fault(("gpus", gpu.id, key), f"gpus.{gpu.id}.{key}: {message}")
        for gpu in table.gpus.values()
        for key, message in _gpu_faults(gpu)
    ]


def _gpu_faults(gpu: GpuFacts) -> Iterator[tuple[str, str]]:
    if (gpu.vendor == "nvidia") != (gpu.capability is not None):
        yield "capability", f"must be [major, minor] for nvidia and null else, was {gpu.capability}"
    if "fp16" not in gpu.peak_tflops:
        yield "peak_tflops", "must have fp16"
    if gpu.capability is not None and gpu.capability < _FP8_CAPABILITY and "fp8" in gpu.peak_tflops:
        yield "peak_tflops", "must not have fp8 below capability 8.9; leave it out"


def check_models(table: ModelTable, loaded: Loaded) -> list[Fault]:
    """Return what is wrong with the shapes and models of models.yaml."""
    users: dict[str, str] = {}
    for model_id in table.ids():
        users.setdefault(table.shape_of(model_id), model_id)
    return [
        loaded.fault(("shapes", shape, key), f"shapes.{shape}.{key}: {message}")
        for shape, model_id in users.items()
        for key, message in shape_faults(table.facts(model_id))
    ]


def shape_faults(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for what does not hold together in a model's architecture."""
    yield from _head_faults(facts)
    yield from _layer_faults(facts)
    yield from _width_faults(facts)
    yield from _tower_faults(facts)
    implied = parameter_count(facts).total
    if abs(implied - facts.params) > PARAMS_TOLERANCE_FRAC * facts.params:
        yield "params", f"must be within 2 % of the {implied:.4g} that the fields imply"


def _head_faults(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.heads % facts.kv_heads:
        yield "kv_heads", f"must divide heads ({facts.heads}), was {facts.kv_heads}"
    if facts.head_dim > _WIDEST_HEAD:
        yield "head_dim", f"must be at most {_WIDEST_HEAD}, was {facts.head_dim}"


def _layer_faults(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.n_sliding_layers + facts.n_state_layers > facts.layers:
        yield "layers", "must be at least n_sliding_layers + n_state_layers"
    if bool(facts.n_sliding_layers) != (facts.sliding_window is not None):
        yield "sliding_window", "must be there exactly where n_sliding_layers is"
    experts = facts.experts
    if experts is not None and experts.n_active > experts.n_experts:
        yield "experts", f"n_active must be at most n_experts ({experts.n_experts})"
    if experts is not None and experts.n_dense_layers > facts.layers:
        yield "experts", f"n_dense_layers must be at most layers ({facts.layers})"


def _width_faults(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.vocab < _SMALLEST_VOCAB:
        yield "vocab", f"must be at least {_SMALLEST_VOCAB}, was {facts.vocab}"
    n_dense = facts.extra.get("n_mlp_layers", facts.layers) - n_moe_layers(facts)
    if n_dense > 0 and facts.intermediate == 0:
        yield "intermediate", f"must be above 0 for the {n_dense:g} dense layers"


def _tower_faults(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    if facts.tower_params and facts.kind == "text":
        yield "tower_params", "must be absent where kind is text"
    tower = facts.tower
    if tower is None:
        return
    if not facts.tower_params:
        yield "tower", "must be absent where tower_params is"
    if bool(tower.image_patches) != bool(tower.image_tokens):
        yield "tower", "image_tokens must be there exactly where image_patches is"
    if bool(tower.video_patches) != bool(tower.video_tokens):
        yield "tower", "video_tokens must be there exactly where video_patches is"
