"""One row of the cost model: everything a prediction may depend on, before any formula.

In: measured rows (train/dataset.py) or live arms (`live_row`). Out: `FeatureRow` records, and
`Table`, the same facts as one array a column, which roofline, features and support read. Both
worlds meet here, so that a live arm and a measured row with equal facts give equal features.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.predict.live import ArmSetup
    from omnipilot_slurm.records import Arm, Workload

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
RealArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
TextArray = npt.NDArray[np.str_]

#: load modes of the measured rows: a static batch without a server, clients that each keep one
#: request in flight, a server whose queue never empties
OFFLINE, CLOSED_LOOP, SATURATED = "offline_static_batch", "online_closed_loop", "online_saturated"

#: other spellings of a weight or KV format; fp16 and bf16 are one format (same bytes, same speed)
_FORMATS = {"fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "half": "bf16", "fp4": "nvfp4"}

#: bits a weight takes, scales of the groups included
_WEIGHT_BITS = {
    "fp32": 32.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "nvfp4": 4.5,
    "mxfp4": 4.25,
    "int4": 4.25,
    "awq": 4.25,
    "gptq": 4.25,
}

#: the format in which a GPU multiplies, where that is not 16 bit (weight-only formats unpack)
_COMPUTE = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """A model on an arm under a load; parameters in 10**9, GPU units as in `GpuFacts`.

    `tensor_parallel` is the number of GPUs that share one layer of one replica, so that
    n_gpus = tensor_parallel x pipeline_parallel x data_parallel. `kv_elems` counts the cache
    elements of one token over all layers on an unsharded model, `peak_tflops` is the rate at the
    format in which the GPU multiplies this row's weights. `vision` says that requests carry
    images or video. An `engine_version` of "" is unknown.
    """

    family: str
    gpu: str
    vendor: str
    precision: str
    kv_precision: str
    load_mode: str
    engine_version: str
    params_b: float
    active_params_b: float
    layers: float
    hidden: float
    heads: float
    kv_heads: float
    head_dim: float
    vocab: float
    kv_elems: float
    n_experts: float
    n_active_experts: float
    latent_kv: float
    mem_gib: float
    bandwidth_gb_s: float
    link_gb_s: float
    tdp_w: float
    peak_tflops: float
    n_gpus: float
    tensor_parallel: float
    pipeline_parallel: float
    data_parallel: float
    expert_parallel: float
    isl: float
    osl: float
    concurrency: float
    vision: float
    max_num_seqs: float
    max_num_batched_tokens: float
    mem_util: float


LABELS = ("family", "gpu", "vendor", "precision", "kv_precision", "load_mode", "engine_version")
NUMBERS = tuple(name for name in FeatureRow.__slots__ if name not in LABELS)

#: what an ArmSetup says after arm and GPU
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "mem_util")

_labels_of = attrgetter(*LABELS)
_numbers_of = attrgetter(*NUMBERS)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as columns: `numbers[name]` and `labels[name]` are arrays of shape (n_rows,)."""

    numbers: Mapping[str, FloatArray]
    labels: Mapping[str, TextArray]

    def __len__(self) -> int:
        return len(self.numbers["isl"])

    def take(self, chosen: IntArray) -> Table:
        """Return the rows of these positions, in this order."""
        return Table(
            numbers={name: values[chosen] for name, values in self.numbers.items()},
            labels={name: values[chosen] for name, values in self.labels.items()},
        )


def table(rows: Sequence[FeatureRow]) -> Table:
    """Turn rows into columns."""
    numbers = np.array([_numbers_of(row) for row in rows], dtype=np.float64)
    labels = np.array([_labels_of(row) for row in rows], dtype=np.str_)
    return Table(
        numbers=dict(zip(NUMBERS, numbers.reshape(-1, len(NUMBERS)).T, strict=True)),
        labels=dict(zip(LABELS, labels.reshape(-1, len(LABELS)).T, strict=True)),
    )


def weight_format(name: str) -> str:
    """Return the one name of a weight or KV format (fp16 is bf16, fp4 is nvfp4)."""
    return _FORMATS.get(name, name)


def weight_bits(precision: str) -> float:
    """Return the bits one weight takes in a format; an unknown format counts as 16 bit."""
    return _WEIGHT_BITS.get(precision, 16.0)


def peak_tflops(peaks: Mapping[str, float], precision: str) -> float:
    """Return the multiply rate of a GPU for weights of a format, in 10**12 operations/s."""
    sixteen_bit = peaks.get("bf16", peaks.get("fp16", max(peaks.values(), default=1.0)))
    return peaks.get(_COMPUTE.get(precision, "bf16"), sixteen_bit)


def live_row(
    model: ModelFacts,
    gpu: GpuFacts,
    arm: Arm,
    workload: Workload,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    mem_util: float = 0.9,
    engine_version: str | None = None,
    load_mode: str = CLOSED_LOOP,
) -> FeatureRow:
    """Return the row of one arm of a decision; vLLM's limits are the effective values."""
    return FeatureRow(
        **_of_model(model),
        **_of_load(workload, engine_version, load_mode),
        **_of_place(gpu, arm),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        mem_util=mem_util,
    )


def live_table(
    model: ModelFacts,
    arms: Sequence[ArmSetup],
    workload: Workload,
    *,
    engine_version: str | None = None,
    load_mode: str = CLOSED_LOOP,
) -> Table:
    """Return the rows of all arms of a decision (`live_row`), what they share written once."""
    shared = _of_model(model) | _of_load(workload, engine_version, load_mode)
    own = [
        _of_place(each.gpu, each.arm) | dict(zip(_LIMITS, each[2:], strict=True)) for each in arms
    ]

    values = {
        name: [shared[name]] * len(own) if name in shared else [each[name] for each in own]
        for name in (*NUMBERS, *LABELS)
    }
    numbers = np.array([values[name] for name in NUMBERS], dtype=np.float64)
    return Table(
        numbers=dict(zip(NUMBERS, numbers, strict=True)),
        labels={name: np.array(values[name], dtype=np.str_) for name in LABELS},
    )


def _of_model(model: ModelFacts) -> dict[str, Any]:
    experts = model.experts
    return {
        "family": model.family,
        "params_b": model.params / 1e9,
        "active_params_b": model.active_params / 1e9,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocab,
        "kv_elems": kv_elements(model),
        "n_experts": experts.n_experts if experts else 1,
        "n_active_experts": experts.n_active if experts else 1,
        "latent_kv": float(model.mla is not None),
    }


def _of_load(workload: Workload, engine_version: str | None, load_mode: str) -> dict[str, Any]:
    return {
        "load_mode": load_mode,
        "engine_version": engine_version or "",
        "isl": workload.isl,
        "osl": workload.osl,
        "concurrency": workload.concurrency,
        "vision": 0.0,
    }


def _of_place(gpu: GpuFacts, arm: Arm) -> dict[str, Any]:
    precision = weight_format(arm.precision)
    return {
        "gpu": gpu.id,
        "vendor": gpu.vendor.lower(),
        "precision": precision,
        "kv_precision": kv_format(arm.kv_cache_dtype),
        "mem_gib": gpu.mem_gib,
        "bandwidth_gb_s": gpu.bandwidth_gb_s,
        "link_gb_s": gpu.link_gb_s,
        "tdp_w": gpu.tdp_w,
        "peak_tflops": peak_tflops(gpu.peak_tflops, precision),
        "n_gpus": arm.tensor_parallel * arm.pipeline_parallel * arm.data_parallel,
        "tensor_parallel": arm.tensor_parallel,
        "pipeline_parallel": arm.pipeline_parallel,
        "data_parallel": arm.data_parallel,
        "expert_parallel": float(arm.expert_parallel),
    }


def kv_format(kv_cache_dtype: str) -> str:
    """Return "fp8" for an 8-bit KV cache, else "bf16"."""
    return "fp8" if "fp8" in kv_cache_dtype else "bf16"


def kv_elements(model: ModelFacts) -> float:
    """Return the KV elements of one token over all layers that keep keys and values."""
    layers = model.layers - model.n_state_layers
    if model.mla is not None:
        return float(layers * (model.mla.kv_lora_rank + model.mla.qk_rope_head_dim))
    return float(2 * layers * model.kv_heads * model.head_dim)
