"""Roofline with overheads: what physics says of throughput and latency, in closed form.

In: a `Table` of rows and the fitted `Coefficients`. Out: `Roofline`, arrays of estimates that rank
arms by themselves and are the base of the learned residuals (section 4 of the specification).
One decode step of one replica costs

    T_step = math + KV read + weights read + all-reduce + per layer + per request + constant

and one prompt T_prefill the same way; requests that do not fit the KV room wait their turn.
Called by features, predictor and the uncalibrated estimate of a decision (`estimate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.rows import OFFLINE, live_row, table, weight_bits

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.predict.rows import BoolArray, FloatArray, Table
    from omnipilot_slurm.records import Arm, Workload

GIB = 2.0**30
#: start-up memory of one GPU that is neither weights nor KV, in GiB; a mean, for features only
_OVERHEAD_GIB = 2.5
_ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What the data says of the hardware: factors on times at full rate, and overheads in s.

    A factor of 1 would be a GPU that reaches its peak. `amd` and `intel` multiply the factors,
    `moe` those of multiplications; `layer` and `request` are paid each step, the `offline_` ones
    by a static batch without a server; `interference` is the share of the others' prefill that
    one output token waits for, `queue` the share that a first token waits for.
    """

    math: float
    kv: float
    weights: float
    link: float
    layer: float
    offline_layer: float
    moe_layer: float
    shard_layer: float
    request: float
    offline_request: float
    prefill_math: float
    prefill_attention: float
    prefill_link: float
    prefill: float
    first_token: float
    queue: float
    interference: float
    moe: float
    amd: float
    intel: float


#: fitted by `omnipilot train` on the public rows, rounded; used where no artifact is loaded
SHIPPED = Coefficients(
    math=1.0,
    kv=1.0,
    weights=1.15,
    link=4.8,
    layer=5.5e-5,
    offline_layer=9.6e-5,
    moe_layer=4.2e-5,
    shard_layer=7.5e-6,
    request=3.9e-5,
    offline_request=1.0e-4,
    prefill_math=1.4,
    prefill_attention=2.1,
    prefill_link=3.1,
    prefill=1.6e-3,
    first_token=4.4e-2,
    queue=0.086,
    interference=0.50,
    moe=3.1,
    amd=2.7,
    intel=11.2,
)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Estimates of shape (n_rows,); throughputs are of the whole server, all replicas."""

    output_tok_s: FloatArray
    total_tok_s: FloatArray
    req_s: FloatArray
    ttft_ms: FloatArray
    tpot_ms: FloatArray
    e2e_ms: FloatArray


def roofline(rows: Table, load: Work, c: Coefficients) -> Roofline:
    """Return the estimates of every row from its work (`work(rows)`)."""
    x = rows.numbers
    offline = rows.labels["load_mode"] == OFFLINE
    device = _device_factor(rows, c)
    step_s = _step_s(rows, load, c, device, offline)
    prefill_s = _prefill_s(rows, load, c, device)
    steps = np.maximum(x["osl"] - 1, 1.0)
    behind = np.where(offline, 0.0, c.interference * load.running * prefill_s / x["osl"])
    tpot_s = step_s + behind
    alone_s = step_s + prefill_s * (1 + c.queue * (load.running - 1))
    first_s = np.where(offline, load.running * prefill_s, alone_s) + c.first_token
    served_s = first_s + steps * tpot_s
    wait_s = (load.rounds - 1) * served_s
    req_s = load.running * x["data_parallel"] / served_s
    return Roofline(
        output_tok_s=req_s * x["osl"],
        total_tok_s=req_s * (x["isl"] + x["osl"]),
        req_s=req_s,
        ttft_ms=1e3 * (first_s + wait_s),
        tpot_ms=1e3 * tpot_s,
        e2e_ms=1e3 * (served_s + wait_s),
    )


def estimate(
    model: ModelFacts,
    gpu: GpuFacts,
    arm: Arm,
    workload: Workload,
    *,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    kv_capacity_tokens: float | None = None,
    coefficients: Coefficients = SHIPPED,
) -> dict[str, float]:
    """Return the uncalibrated estimate of one arm by target name.

    `kv_capacity_tokens` is the room of one replica; without it a mean overhead is assumed.
    Throughput saturates where the offered requests exceed that room or max_num_seqs.
    """
    row = live_row(
        model,
        gpu,
        arm,
        workload,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    rows = table([row])
    capacity = None if kv_capacity_tokens is None else np.array([float(kv_capacity_tokens)])
    values = roofline(rows, work(rows, capacity), coefficients)
    return {name: float(getattr(values, name)[0]) for name in Roofline.__slots__}


def _device_factor(rows: Table, c: Coefficients) -> FloatArray:
    """Return how much slower than NVIDIA's a vendor's kernels run, against its own peak."""
    vendor = rows.labels["vendor"]
    factor: FloatArray = np.where(vendor == "amd", c.amd, np.where(vendor == "intel", c.intel, 1.0))
    return factor


def _math_factor(rows: Table, c: Coefficients) -> FloatArray:
    factor: FloatArray = np.where(rows.numbers["n_experts"] > 1, c.moe, 1.0)
    return factor


def _step_s(
    rows: Table, load: Work, c: Coefficients, device: FloatArray, offline: BoolArray
) -> FloatArray:
    """Return the time of one decode step of one replica, in s."""
    mixed = rows.numbers["n_experts"] > 1
    moved = c.kv * load.step_kv_s + c.weights * load.step_weights_s + c.link * load.step_link_s
    multiplied = c.math * _math_factor(rows, c) * load.step_math_s
    layer = np.where(offline, c.offline_layer, c.layer) + c.moe_layer * mixed
    request = np.where(offline, c.offline_request, c.request)
    overhead = load.layers * (layer + c.shard_layer * load.sharded) + request * load.running
    step: FloatArray = device * (multiplied + moved) + overhead
    return step


def _prefill_s(rows: Table, load: Work, c: Coefficients, device: FloatArray) -> FloatArray:
    """Return the time of one prompt's prefill alone on one replica, in s."""
    multiplied = c.prefill_math * _math_factor(rows, c) * load.prefill_math_s
    attention = c.prefill_attention * load.prefill_attention_s
    return device * (multiplied + attention + c.prefill_link * load.prefill_link_s) + c.prefill


@dataclass(frozen=True, slots=True)
class Work:
    """What one replica has to move and multiply, as times at full rate in s, arrays (n_rows,).

    `running` requests are in flight per replica, `rounds` = offered / running >= 1 is how often
    the running set is replaced, `kv_pressure` = KV demand / KV capacity.
    """

    running: FloatArray
    rounds: FloatArray
    kv_pressure: FloatArray
    kv_capacity_tokens: FloatArray
    weight_frac: FloatArray
    step_math_s: FloatArray
    step_kv_s: FloatArray
    step_weights_s: FloatArray
    step_link_s: FloatArray
    prefill_math_s: FloatArray
    prefill_attention_s: FloatArray
    prefill_link_s: FloatArray
    layers: FloatArray
    sharded: FloatArray


def work(rows: Table, kv_capacity_tokens: FloatArray | None = None) -> Work:
    """Return the work of every row; `kv_capacity_tokens` (per replica) overrides the estimate."""
    x = rows.numbers
    weights = _Weights.of(rows)
    kv_bytes = _kv_bytes_per_token(rows)
    capacity = (
        _kv_capacity_tokens(rows, weights, kv_bytes)
        if kv_capacity_tokens is None
        else kv_capacity_tokens
    )
    offered = np.maximum(x["concurrency"] / x["data_parallel"], 1.0)
    tokens = x["isl"] + x["osl"]
    held = x["isl"] + x["osl"] / 2
    room = np.maximum(capacity / held, 1.0)
    running = np.minimum(np.minimum(offered, x["max_num_seqs"]), room)
    bandwidth = x["bandwidth_gb_s"] * 1e9
    peak = x["peak_tflops"] * 1e12
    shards = x["tensor_parallel"]
    kv_read = running * held * kv_bytes
    attention = 2 * x["layers"] * x["heads"] * x["head_dim"] * x["isl"] ** 2
    link = _link_s_per_token(rows)
    return Work(
        running=running,
        rounds=offered / running,
        kv_pressure=offered * tokens / np.maximum(capacity, 1.0),
        kv_capacity_tokens=capacity,
        weight_frac=weights.resident_bytes / (x["mem_gib"] * GIB),
        step_math_s=2 * x["active_params_b"] * 1e9 * running / shards / peak,
        step_kv_s=kv_read / bandwidth,
        step_weights_s=weights.read_bytes(rows, running) / bandwidth,
        step_link_s=link * running,
        prefill_math_s=2 * x["active_params_b"] * 1e9 * x["isl"] / shards / peak,
        prefill_attention_s=attention / shards / peak,
        prefill_link_s=link * x["isl"],
        layers=x["layers"],
        sharded=np.log2(shards * x["pipeline_parallel"]),
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """Bytes of weights: `dense` and `experts` of the whole model, their shards, and residence."""

    dense: FloatArray
    experts: FloatArray
    expert_shards: FloatArray
    resident_bytes: FloatArray

    @classmethod
    def of(cls, rows: Table) -> _Weights:
        """Split the parameters: params = D + n E and active = D + k E give D and E."""
        x = rows.numbers
        per_param = np.array([weight_bits(p) for p in rows.labels["precision"].tolist()]) * 1e9 / 8
        spare = np.maximum(x["n_experts"] - x["n_active_experts"], 1.0)
        expert = np.maximum(x["params_b"] - x["active_params_b"], 0.0) / spare
        experts = expert * x["n_experts"] * (x["n_experts"] > 1)
        dense = np.maximum(x["params_b"] - experts, 0.05 * x["active_params_b"])
        shards = x["tensor_parallel"]
        everywhere = shards * x["data_parallel"]
        expert_shards = np.where(x["expert_parallel"] > 0, everywhere, shards)
        resident = (dense / shards + experts / expert_shards) / x["pipeline_parallel"]
        return cls(dense * per_param, experts * per_param, expert_shards, resident * per_param)

    def read_bytes(self, rows: Table, running: FloatArray) -> FloatArray:
        """Return the bytes one GPU reads in a step: of the experts only those that are hit.

        A batch of b tokens hits 1 - (1 - k/n)**b of n experts when each token takes k.
        """
        x = rows.numbers
        pooled = np.where(x["expert_parallel"] > 0, running * x["data_parallel"], running)
        missed = (1 - np.minimum(x["n_active_experts"] / x["n_experts"], 1.0)) ** pooled
        hit: FloatArray = self.experts * (1 - missed) / self.expert_shards
        return hit + self.dense / x["tensor_parallel"]


def _kv_bytes_per_token(rows: Table) -> FloatArray:
    """Return the KV bytes of one token on one GPU; a latent cache is not divided by TP."""
    x = rows.numbers
    heads_split = np.where(x["latent_kv"] > 0, 1.0, np.minimum(x["tensor_parallel"], x["kv_heads"]))
    element = np.where(rows.labels["kv_precision"] == "fp8", 1.0, 2.0)
    return x["kv_elems"] * element / heads_split / x["pipeline_parallel"]


def _kv_capacity_tokens(rows: Table, weights: _Weights, kv_bytes: FloatArray) -> FloatArray:
    """Return the tokens of KV cache of one replica, at least those of one request."""
    x = rows.numbers
    free = (x["mem_gib"] * x["mem_util"] - _OVERHEAD_GIB) * GIB - weights.resident_bytes
    capacity: FloatArray = np.maximum(free / kv_bytes, x["isl"] + x["osl"])
    return capacity


def _link_s_per_token(rows: Table) -> FloatArray:
    """Return the time of two ring all-reduces a layer for one token, at full link rate."""
    x = rows.numbers
    shards = x["tensor_parallel"]
    volume = 2 * x["layers"] * x["hidden"] * _ACTIVATION_BYTES * 2 * (shards - 1) / shards
    return volume / (x["link_gb_s"] * 1e9)
