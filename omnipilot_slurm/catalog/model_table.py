"""models.yaml as a table: ids to ModelFacts, built when asked for.

In: the layers of models.yaml. Out: ModelTable. A site's file adds shapes and models or changes
single fields of them. Called by the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.errors import ConfigError, Fault, near_names
from omnipilot_slurm.facts import Experts, LatentAttention, ModelFacts, Quantization, Tower
from omnipilot_slurm.strict_yaml import (
    Flag,
    Integer,
    Layer,
    ListOf,
    Loaded,
    MapOf,
    Number,
    Section,
    Text,
    load,
)
from omnipilot_slurm.vllm.weights import parameter_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA_VERSION = 1

_WIDTH = Integer(lo=0, hi=10**7)
_COUNT = Integer(lo=0, hi=10_000)
_TOKENS = Integer(lo=1, hi=10**9)
_PARAMS = Number(lo=0, hi=1e14)
_NAME = Text(means="a name", max_length=200)

_EXPERTS = Section(
    keys={
        "n_experts": Integer(lo=2, hi=10_000),
        "n_active": Integer(lo=1, hi=10_000),
        "intermediate": _WIDTH,
        "shared_intermediate": _WIDTH,
        "n_dense_layers": _COUNT,
        "every_n_layers": Integer(lo=1, hi=1000),
    },
    optional=frozenset({"shared_intermediate", "n_dense_layers", "every_n_layers"}),
    into=Experts,
)
_LATENT = Section(
    keys={
        "kv_lora_rank": _WIDTH,
        "q_lora_rank": _WIDTH,
        "qk_nope_head_dim": _WIDTH,
        "qk_rope_head_dim": _WIDTH,
        "v_head_dim": _WIDTH,
    },
    optional=frozenset({"q_lora_rank"}),
    into=lambda **values: LatentAttention(q_lora_rank=values.pop("q_lora_rank", None), **values),
)
_QUANTIZATION = Section(
    keys={
        "method": _NAME,
        "bits": Number(above=0, hi=32),
        "scheme": _NAME,
        "group_size": Integer(lo=-1, hi=10**6),
        "block": ListOf(item=Integer(lo=1, hi=10**6), min_items=2, max_items=2),
        "quantizes_head": Flag(),
        "quantizes": ListOf(item=Text(choices=("attention", "mlp", "experts", "mixer"))),
    },
    optional=frozenset({"scheme", "group_size", "block", "quantizes_head", "quantizes"}),
    into=Quantization,
)
_TOWER = Section(
    keys={
        "hidden": _WIDTH,
        "intermediate": _WIDTH,
        "layers": _COUNT,
        "patch_values": _WIDTH,
        "image_patches": _WIDTH,
        "image_tokens": _WIDTH,
        "video_patches": _WIDTH,
        "video_tokens": _WIDTH,
        "n_frames": Integer(lo=1, hi=10**7),
        "n_outputs": Integer(lo=1, hi=100),
        "heads": _COUNT,
        "gated": Flag(),
        "rotary": Flag(),
        "normed": Flag(),
        "one_by_one": Flag(),
        "masked": Flag(),
        "sized": Flag(),
    },
    optional=frozenset(
        {
            "image_patches", "image_tokens", "video_patches", "video_tokens", "n_frames",
            "n_outputs", "heads", "gated", "rotary", "normed", "one_by_one", "masked", "sized",
        }
    ),
    into=Tower,
)  # fmt: skip
_SHAPE = Section(
    keys={
        "family": _NAME,
        "architecture": _NAME,
        "kind": Text(choices=("text", "multimodal", "pooling")),
        "layers": Integer(lo=1, hi=10_000),
        "hidden": Integer(lo=1, hi=10**7),
        "heads": Integer(lo=1, hi=10_000),
        "kv_heads": Integer(lo=1, hi=10_000),
        "head_dim": Integer(lo=1, hi=100_000),
        "intermediate": _WIDTH,
        "vocab": Integer(lo=1, hi=10**8),
        "params": Number(above=0, hi=1e14),
        "tied_embeddings": Flag(),
        "experts": _EXPERTS,
        "mla": _LATENT,
        "sliding_window": _TOKENS,
        "n_sliding_layers": _COUNT,
        "n_state_layers": _COUNT,
        "state_bytes_per_layer": _PARAMS,
        "tower_params": _PARAMS,
        "tower": _TOWER,
        "extra": MapOf(value=Number(lo=0, hi=1e14), key=_NAME),
    },
    optional=frozenset(
        {
            "architecture", "kind", "intermediate", "tied_embeddings", "experts", "mla",
            "sliding_window", "n_sliding_layers", "n_state_layers", "state_bytes_per_layer",
            "tower_params", "tower", "extra",
        }
    ),
)  # fmt: skip
_MODEL = Section(
    keys={
        "shape": _NAME,
        "max_model_len": _TOKENS,
        "dtype": Text(choices=("bfloat16", "float16", "float32", "unknown")),
        "quantization": _NAME,
        "aliases": ListOf(item=_NAME),
        "source": _NAME,
    },
    optional=frozenset({"max_model_len", "dtype", "quantization", "aliases"}),
)
SPEC = Section(
    keys={
        "sources": MapOf(value=Text(means="a sentence"), key=_NAME),
        "quantizations": MapOf(value=_QUANTIZATION, key=_NAME),
        "shapes": MapOf(value=_SHAPE, key=_NAME),
        "models": MapOf(value=_MODEL, key=_NAME),
    }
)


@dataclass(frozen=True, slots=True)
class ModelTable:
    """What models.yaml says, by id; facts are built on demand and kept."""

    shapes: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    quantizations: dict[str, Quantization]
    _built: dict[str, ModelFacts] = field(default_factory=dict)

    def ids(self) -> Iterator[str]:
        """Yield every id, without aliases."""
        return iter(self.models)

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield (alias, id)."""
        for model_id, row in self.models.items():
            for alias in row.get("aliases", ()):
                yield alias, model_id

    def shape_of(self, model_id: str) -> str:
        """Return the name of a model's shape, which it may state as another model's id."""
        name: str = self.models[model_id]["shape"]
        return name if name in self.shapes else str(self.models[name]["shape"])

    def facts(self, model_id: str) -> ModelFacts:
        """Return the facts of an id of this table."""
        found = self._built.get(model_id)
        if found is None:
            found = self._built[model_id] = self._build(model_id)
        return found

    def _build(self, model_id: str) -> ModelFacts:
        row = self.models[model_id]
        name = row.get("quantization")
        facts = ModelFacts(
            id=model_id,
            active_params=0.0,
            max_model_len=row.get("max_model_len"),
            dtype=row.get("dtype", "bfloat16"),
            quantization=None if name is None else self.quantizations[name],
            source=row["source"],
            aliases=row.get("aliases", ()),
            **({"intermediate": 0} | self.shapes[self.shape_of(model_id)]),
        )
        return with_active(facts)


def with_active(facts: ModelFacts) -> ModelFacts:
    """Return the facts with the parameters that one token goes through."""
    return replace(facts, active_params=parameter_count(facts).active)


def load_models(layers: Sequence[Layer]) -> tuple[ModelTable, Loaded]:
    """Read models.yaml.

    Raises: ConfigError, also for a model whose shape or quantisation is not defined.
    """
    loaded = load(layers, SPEC, version=SCHEMA_VERSION)
    value = loaded.value
    table = ModelTable(value["shapes"], value["models"], value["quantizations"])
    faults = [
        fault
        for model_id, row in table.models.items()
        for fault in _undefined(loaded, table, model_id, row)
    ]
    if faults:
        raise ConfigError(faults)
    return table, loaded


def _undefined(
    loaded: Loaded, table: ModelTable, model_id: str, row: dict[str, Any]
) -> Iterator[Fault]:
    defined: dict[str, dict[str, Any]] = {
        "shape": table.shapes,
        "quantization": table.quantizations,
    }
    for key, names in defined.items():
        name = row.get(key)
        if name is None or name in names or (key == "shape" and _has_shape(table, name)):
            continue
        near = near_names(name, names, n=1)
        advice = f"; did you mean {near[0]!r}" if near else ""
        message = f"models.{model_id}.{key}: {name!r} is not defined under {key}s{advice}"
        yield loaded.fault(("models", model_id, key), message)


def _has_shape(table: ModelTable, model_id: str) -> bool:
    row = table.models.get(model_id)
    return row is not None and row["shape"] in table.shapes
