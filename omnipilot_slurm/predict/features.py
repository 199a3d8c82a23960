"""The one list of columns: rows of facts in, the feature matrix of every model out.

Feature before data: an axis has its column here before rows with it exist (pipeline parallelism,
memory utilisation, prompts longer than a step). Called with measured rows and with live arms alike.
A benchmark states neither max_num_seqs nor max_num_batched_tokens, so these enter as what they
do (the running batch, passes of a prompt), never as a number that would only name the GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.roofline import Coefficients, Roofline, roofline, work
from omnipilot_slurm.predict.rows import OFFLINE, SATURATED, weight_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.predict.roofline import Work
    from omnipilot_slurm.predict.rows import FloatArray, Table

#: labels with one column per known value; an unknown value has zeros in all of them
ONE_HOT = ("family", "gpu", "precision")

#: what enters as a natural logarithm: facts of the row, of its load, and the estimates of physics
_LOG_FACTS = (
    "params_b",
    "active_params_b",
    "layers",
    "hidden",
    "kv_elems",
    "vocab",
    "n_experts",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "n_gpus",
    "concurrency",
    "isl",
    "osl",
    "mem_gib",
    "bandwidth_gb_s",
    "peak_tflops",
    "link_gb_s",
)
_LOG_LOAD = (
    "kv_pressure",
    "rounds",
    "running",
    "step_math_s",
    "step_kv_s",
    "step_weights_s",
    "prefill_math_s",
)
_LOG_ESTIMATES = ("output_tok_s", "ttft_ms", "tpot_ms")
#: what enters as it is
_FACTS = ("n_active_experts", "latent_kv", "expert_parallel", "vision", "mem_util")
_DERIVED = (
    "kv_heads_per_gpu",
    "weight_bits",
    "kv_fp8",
    "weight_frac",
    "prefill_passes",
    "offline",
    "saturated",
    "engine_minor",
    "engine_known",
)
#: the numeric columns, in order
NUMERIC = (
    *(f"log_{name}" for name in _LOG_FACTS),
    "log_context",
    *(f"log_{name}" for name in _LOG_LOAD),
    "log_step_link_s",
    *(f"log_roofline_{name}" for name in _LOG_ESTIMATES),
    *_FACTS,
    *_DERIVED,
)
_NO_LINK_S = 1e-6
_LOG_PRESSURE = NUMERIC.index("log_kv_pressure")
_PRESSURE_RANGE = (-4.0, 3.0)


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns; `known` lists the values of each one-hot label, in order."""

    known: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, rows: Table) -> Columns:
        """Return the columns for the labels that rows have."""
        return cls({label: tuple(sorted(set(rows.labels[label].tolist()))) for label in ONE_HOT})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the matrix's columns, in order."""
        one_hot = [f"{label}={value}" for label in ONE_HOT for value in self.known[label]]
        return (*NUMERIC, *one_hot)


@dataclass(frozen=True, slots=True)
class Features:
    """The matrix of shape (n_rows, n_columns), and the physics that it was made with."""

    matrix: FloatArray
    physics: Roofline
    load: Work


def features(rows: Table, columns: Columns, coefficients: Coefficients) -> Features:
    """Return the features of rows.

    Values are rounded to 32 bit, the precision in which scikit-learn's trees compare.
    """
    load = work(rows)
    physics = roofline(rows, load, coefficients)
    x = rows.numbers
    positive = [
        *(x[name] for name in _LOG_FACTS),
        x["isl"] + x["osl"],
        *(getattr(load, name) for name in _LOG_LOAD),
        load.step_link_s + _NO_LINK_S,
        *(getattr(physics, name) for name in _LOG_ESTIMATES),
    ]
    logs = np.log(np.stack(positive))
    # beyond these ends a cache is simply roomy, or simply full
    np.clip(logs[_LOG_PRESSURE], *_PRESSURE_RANGE, out=logs[_LOG_PRESSURE])
    one_hot = [np.array(columns.known[label])[:, None] == rows.labels[label] for label in ONE_HOT]
    plain = [*(x[name] for name in _FACTS), *_derived(rows, load)]
    matrix = np.vstack([logs, np.stack(plain), *one_hot]).T
    return Features(matrix.astype(np.float32).astype(np.float64), physics, load)


def _derived(rows: Table, load: Work) -> tuple[FloatArray, ...]:
    """Return the columns of _DERIVED, in its order."""
    x, labels = rows.numbers, rows.labels
    minors = np.array([engine_minor(version) for version in labels["engine_version"].tolist()])
    return (
        x["kv_heads"] / x["tensor_parallel"],
        np.array([weight_bits(precision) for precision in labels["precision"].tolist()]),
        (labels["kv_precision"] == "fp8").astype(np.float64),
        load.weight_frac,
        np.ceil(x["isl"] / x["max_num_batched_tokens"]),
        (labels["load_mode"] == OFFLINE).astype(np.float64),
        (labels["load_mode"] == SATURATED).astype(np.float64),
        np.maximum(minors, 0.0),
        (minors >= 0).astype(np.float64),
    )


@lru_cache(maxsize=1024)
def engine_minor(version: str) -> float:
    """Return the minor number of a 0.x version of vLLM, -1 where it is unknown."""
    found = re.match(r"v?0\.(\d+)", version)
    return float(found.group(1)) if found else -1.0
