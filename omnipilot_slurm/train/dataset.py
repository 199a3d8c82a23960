"""Measured rows as the cost model learns from them: merged, grouped, with the catalog's GPU facts.

In: checked measurements (train/schema.py) and a way to look GPUs up. Out: `Dataset`. Called by
fit, evaluate, predict and bench-plan. Groups are those of docs/model.md: a split by any of them
never has rows of one group on both sides.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.errors import CatalogError, DataError
from omnipilot_slurm.facts import GpuFacts
from omnipilot_slurm.predict import rows as predict_rows
from omnipilot_slurm.predict.rows import FeatureRow, Table
from omnipilot_slurm.train.schema import PROMPT_TOKENS, TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omnipilot_slurm.predict.rows import FloatArray, IntArray, TextArray
    from omnipilot_slurm.train.schema import Measurement

#: what a split may keep together
GROUPS = ("cell", "workload", "architecture", "family", "gpu", "source")

_VISION = frozenset({"image-chat", "video-chat"})

#: peak of a GPU that the catalog does not know, in 10**12 operations per 10**9 bytes/s; the ratio
#: of an H100
_PEAK_PER_BANDWIDTH = 989 / 3350
#: what vLLM schedules in one step and claims of the memory where a row does not say: the values of
#: the large GPUs in most versions
_BATCHED_TOKENS, _MEM_UTIL = 8192.0, 0.9

_ARM = ("gpu", "n_gpus", "tp", "pp", "dp", "ep", "dtype")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows, what was measured on them, and the groups they belong to; arrays are (n_rows,).

    `measured` maps target names to values, NaN where not measured. `arms` names each row's arm
    within its cell. `n_repeats` counts the measurements behind a row.
    """

    rows: tuple[FeatureRow, ...]
    table: Table
    measured: Mapping[str, FloatArray]
    groups: Mapping[str, TextArray]
    arms: TextArray
    n_repeats: FloatArray
    data_hash: str

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: IntArray) -> Dataset:
        """Return the rows of these positions, in this order."""
        return Dataset(
            rows=tuple(self.rows[i] for i in chosen),
            table=self.table.take(chosen),
            measured={name: values[chosen] for name, values in self.measured.items()},
            groups={name: labels[chosen] for name, labels in self.groups.items()},
            arms=self.arms[chosen],
            n_repeats=self.n_repeats[chosen],
            data_hash=self.data_hash,
        )


def dataset(
    measurements: Sequence[Measurement], find_gpu: Callable[[str, float], GpuFacts]
) -> Dataset:
    """Merge repeats per (cell, arm, engine version) to their median and group the rows.

    `find_gpu` takes a name and the memory in GB as sold, and raises CatalogError. An arm here is
    (gpu, n_gpus, tp, pp, dp, ep, dtype, KV format): a run with an 8-bit cache repeats no other.
    Raises: DataError when there is nothing to learn from.
    """
    repeats: dict[tuple[str, ...], list[Measurement]] = {}
    for measurement in measurements:
        repeats.setdefault(_identity(measurement), []).append(measurement)
    if not repeats:
        raise DataError("there is no row of vLLM with a measured target", hint="see docs/model.md")
    firsts = [group[0] for group in repeats.values()]
    rows = tuple(
        feature_row(group[0], find_gpu, osl=_median(group, "output_len"))
        for group in repeats.values()
    )
    return Dataset(
        rows=rows,
        table=predict_rows.table(rows),
        measured={
            name: np.array([_median(group, name) for group in repeats.values()]) for name in TARGETS
        },
        groups={name: np.array([group_of(first, name) for first in firsts]) for name in GROUPS},
        arms=np.array(["|".join(identity[1:-1]) for identity in repeats]),
        n_repeats=np.array([float(len(group)) for group in repeats.values()]),
        data_hash=_hash(repeats),
    )


def group_of(row: Measurement, name: str) -> str:
    """Return the group of a row: its cell, workload, architecture, family, gpu or source."""
    if name == "workload":
        return row.texts["cell"].rsplit("|c", 1)[0]
    if name == "architecture":
        facts = ("layers", "hidden", "heads", "kv_heads", "vocab", "n_exp")
        return "/".join(f"{row.numbers[fact]:g}" for fact in facts)
    return row.texts[name]


def _identity(row: Measurement) -> tuple[str, ...]:
    """Return cell, the parts of the arm, and the engine version."""
    arm = (row.texts.get(name) or f"{row.numbers[name]:g}" for name in _ARM)
    kv_precision = predict_rows.kv_format(row.texts["kv_dtype"])
    return (row.texts["cell"], *arm, kv_precision, row.texts["engine_version"])


def _median(group: Sequence[Measurement], column: str) -> float:
    values = [row.numbers[column] for row in group if np.isfinite(row.numbers[column])]
    return float(np.median(values)) if values else float("nan")


def _hash(repeats: Mapping[tuple[str, ...], Sequence[Measurement]]) -> str:
    """Return a hash of what was measured, whatever the order of rows and files."""
    lines = sorted(
        "|".join([*identity, *(f"{_median(group, name):.6g}" for name in TARGETS)])
        for identity, group in repeats.items()
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def feature_row(
    row: Measurement,
    find_gpu: Callable[[str, float], GpuFacts],
    *,
    osl: float | None = None,
) -> FeatureRow:
    """Return the features' facts of one measurement, the GPU's from the catalog where it has it.

    Where a benchmark states no limit of the scheduler, it is assumed to be wide enough for what
    was offered, which is how benchmarks are run.
    """
    number, text = row.numbers, row.texts
    gpu = gpu_facts(row, find_gpu)
    precision = predict_rows.weight_format(text["dtype"])
    full_cache = 2 * number["layers"] * number["kv_heads"] * number["head_dim"]
    return FeatureRow(
        family=text["family"],
        gpu=gpu.id,
        vendor=gpu.vendor,
        precision=precision,
        kv_precision=predict_rows.kv_format(text["kv_dtype"]),
        load_mode=text["load_mode"],
        engine_version=text["engine_version"],
        params_b=number["params_b"],
        active_params_b=number["active_b"],
        layers=number["layers"],
        hidden=number["hidden"],
        heads=number["heads"],
        kv_heads=number["kv_heads"],
        head_dim=number["head_dim"],
        vocab=number["vocab"],
        kv_elems=number["kv_elems"],
        n_experts=number["n_exp"],
        n_active_experts=number["topk"],
        latent_kv=float(number["kv_elems"] < 0.5 * full_cache),
        mem_gib=gpu.mem_gib,
        bandwidth_gb_s=gpu.bandwidth_gb_s,
        link_gb_s=gpu.link_gb_s,
        tdp_w=gpu.tdp_w,
        peak_tflops=predict_rows.peak_tflops(gpu.peak_tflops, precision),
        n_gpus=number["n_gpus"],
        tensor_parallel=number["n_gpus"] / number["pp"] / number["dp"],
        pipeline_parallel=number["pp"],
        data_parallel=number["dp"],
        expert_parallel=float(number["ep"] > 1),
        isl=prompt_tokens(row),
        osl=number["output_len"] if osl is None else osl,
        concurrency=number["concurrency"],
        vision=float(text["workload"] in _VISION),
        max_num_seqs=number["concurrency"] / number["dp"],
        max_num_batched_tokens=max(_BATCHED_TOKENS, prompt_tokens(row)),
        mem_util=_MEM_UTIL,
    )


def prompt_tokens(row: Measurement) -> float:
    """Return the prompt length, an estimate where the source states only the kind of prompts."""
    stated = row.numbers["input_len"]
    return stated if np.isfinite(stated) else PROMPT_TOKENS[row.texts["workload"]]


def gpu_facts(row: Measurement, find_gpu: Callable[[str, float], GpuFacts]) -> GpuFacts:
    """Return the catalog's facts of a row's GPU; of an unknown one, what the row says.

    The memory is part of an unknown one's id: a card may be called as one of the catalog and be
    another (an MI250 of 128 GB is two of the catalog's dies).
    """
    name, number = row.texts["gpu"], row.numbers
    try:
        return find_gpu(name, number["gpu_mem_gb"])
    except CatalogError:
        return GpuFacts(
            id=f"{name}-{number['gpu_mem_gb']:g}gb".lower(),
            name=name,
            vendor="unknown",
            mem_gib=0.99 * number["gpu_mem_gb"],
            bandwidth_gb_s=number["gpu_bw_gbs"],
            peak_tflops={"fp16": number["gpu_bw_gbs"] * _PEAK_PER_BANDWIDTH},
            link_gb_s=number["gpu_link_gbs"],
            tdp_w=number["gpu_tdp_w"],
            capability=None,
            price_usd_per_gpu_hour=None,
        )
