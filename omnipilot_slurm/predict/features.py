"""The one list of columns: rows of facts in, the feature matrix of every model out.

Feature before data: an axis has its column here before rows with it exist (pipeline parallelism,
memory utilisation, prompts longer than a step). Called with measured rows and with live arms alike.
A benchmark states neither max_num_seqs nor max_num_batched_tokens, so these enter as what they
do (the running batch, passes of a prompt), never as a number that would only name the GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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

#: facts that enter as natural logarithms
_LOGS = (
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
#: facts that enter as they are
_PLAIN = ("n_active_experts", "latent_kv", "expert_parallel", "vision", "mem_util")
_WORK_TIMES = ("step_math_s", "step_kv_s", "step_weights_s", "prefill_math_s")
_ESTIMATES = ("output_tok_s", "ttft_ms", "tpot_ms")
_NO_LINK_S = 1e-6
_KV_PRESSURE_RANGE = (-4.0, 3.0)


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
    numeric = {**_facts(rows), **_load_facts(rows, load), **_engine(rows)}
    numeric |= {f"log_{name}": np.log(getattr(load, name)) for name in _WORK_TIMES}
    numeric["log_step_link_s"] = np.log(load.step_link_s + _NO_LINK_S)
    numeric |= {f"log_roofline_{name}": np.log(getattr(physics, name)) for name in _ESTIMATES}
    one_hot = [rows.labels[label][:, None] == np.array(columns.known[label]) for label in ONE_HOT]
    matrix = np.hstack([np.column_stack([numeric[name] for name in NUMERIC]), *one_hot])
    return Features(matrix.astype(np.float32).astype(np.float64), physics, load)


def _facts(rows: Table) -> dict[str, FloatArray]:
    x = rows.numbers
    found = {f"log_{name}": np.log(x[name]) for name in _LOGS}
    found |= {name: x[name] for name in _PLAIN}
    found["log_context"] = np.log(x["isl"] + x["osl"])
    found["kv_heads_per_gpu"] = x["kv_heads"] / x["tensor_parallel"]
    found["weight_bits"] = np.array([weight_bits(p) for p in rows.labels["precision"].tolist()])
    found["kv_fp8"] = (rows.labels["kv_precision"] == "fp8").astype(np.float64)
    return found


def _load_facts(rows: Table, load: Work) -> dict[str, FloatArray]:
    x, mode = rows.numbers, rows.labels["load_mode"]
    return {
        "log_kv_pressure": np.clip(np.log(load.kv_pressure), *_KV_PRESSURE_RANGE),
        "log_rounds": np.log(load.rounds),
        "log_running": np.log(load.running),
        "weight_frac": load.weight_frac,
        "prefill_passes": np.ceil(x["isl"] / x["max_num_batched_tokens"]),
        "offline": (mode == OFFLINE).astype(np.float64),
        "saturated": (mode == SATURATED).astype(np.float64),
    }


def _engine(rows: Table) -> dict[str, FloatArray]:
    minors = np.array([engine_minor(v) for v in rows.labels["engine_version"].tolist()])
    return {"engine_minor": np.maximum(minors, 0.0), "engine_known": (minors >= 0).astype(float)}


def engine_minor(version: str) -> float:
    """Return the minor number of a 0.x version of vLLM, -1 where it is unknown."""
    found = re.match(r"v?0\.(\d+)", version)
    return float(found.group(1)) if found else -1.0


#: the numeric columns, in order
NUMERIC = (
    *(f"log_{name}" for name in _LOGS),
    *_PLAIN,
    "log_context",
    "kv_heads_per_gpu",
    "weight_bits",
    "kv_fp8",
    "log_kv_pressure",
    "log_rounds",
    "log_running",
    "weight_frac",
    "prefill_passes",
    "offline",
    "saturated",
    "engine_minor",
    "engine_known",
    *(f"log_{name}" for name in _WORK_TIMES),
    "log_step_link_s",
    *(f"log_roofline_{name}" for name in _ESTIMATES),
)
