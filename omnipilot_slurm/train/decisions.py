"""Score decisions: which arm each policy chooses in a cell, and what that costs.

In: rows with predictions out of fold, a scenario. Out: for each policy its top-1 share and regret,
and the paired bootstrap interval of how much less ours regrets. Called by evaluate and the
benchmark. Only cells with at least two measured arms count; an arm's figures are medians over its
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.decide.utility import utility_terms
from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omnipilot_slurm.predict.rows import FloatArray, IntArray
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held
    from omnipilot_slurm.train.scenario import Scenario

OURS = "omnipilot"
_TIE = 1e-9
_N_BOOTSTRAP = 2000
_LATENCIES = ("ttft_ms", "tpot_ms")
#: the size-threshold rule: GPUs for a model of up to so many billion parameters
_SIZE_RULE = ((20.0, 1), (40.0, 2), (80.0, 4), (float("inf"), 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One arm of a cell: facts, what was measured, and what each source says of its throughput.

    `says` maps a source (omnipilot, roofline, nearest) to its targets; a source that does not
    answer is absent.
    """

    gpu: str
    n_gpus: int
    tensor_parallel: float
    precision: str
    params_b: float
    price_usd_per_hour: float
    measured: Mapping[str, Interval]
    says: Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One policy over all cells; regret in $/h and in percent of best - worst."""

    policy: str
    n_cells: int
    top_1: float
    regret_usd_per_h: float
    regret_percent: float
    extra_percent: tuple[float, float, float]


def cells_of(data: Dataset, held: Held, scenario: Scenario) -> dict[str, list[Candidate]]:
    """Return by cell its arms where there are at least two, priced ones only."""
    names = [f"{cell}#{arm}" for cell, arm in zip(data.groups["cell"], data.arms, strict=True)]
    priced = [gpu in scenario.prices_usd_per_gpu_hour for gpu in data.groups["gpu"].tolist()]
    rows_of: dict[str, dict[str, list[int]]] = {}
    for row, (cell, name) in enumerate(zip(data.groups["cell"].tolist(), names, strict=True)):
        if priced[row]:
            arm = name.rsplit("|", 1)[0]  # the scenario's arm has no KV format
            rows_of.setdefault(cell, {}).setdefault(arm, []).append(row)
    return {
        cell: [_candidate(data, held, scenario, np.array(rows)) for rows in arms.values()]
        for cell, arms in rows_of.items()
        if len(arms) > 1
    }


def _candidate(data: Dataset, held: Held, scenario: Scenario, rows: IntArray) -> Candidate:
    first = data.rows[rows[0]]
    gpu = str(data.groups["gpu"][rows[0]])
    targets = ("output_tok_s", *_LATENCIES)
    measured = {name: _point(data.measured[name][rows]) for name in targets}
    known = [name for name in targets if np.isfinite(measured[name].mid)]
    near = held.nearest[rows]
    says = {
        OURS: {
            name: Interval(
                lo=_median(held.targets[name].lo[rows]),
                mid=_median(held.targets[name].mid[rows]),
                hi=_median(held.targets[name].hi[rows]),
            )
            for name in known
        },
        "roofline": {name: _point(held.physics[name][rows]) for name in known},
        "nearest cell": {
            name: _point(np.where(near < 0, np.nan, data.measured[name][near])) for name in known
        },
    }
    return Candidate(
        gpu=gpu,
        n_gpus=int(first.n_gpus),
        tensor_parallel=first.tensor_parallel,
        precision=first.precision,
        params_b=first.params_b,
        price_usd_per_hour=first.n_gpus * scenario.prices_usd_per_gpu_hour[gpu],
        measured={name: measured[name] for name in known},
        says={
            source: values
            for source, values in says.items()
            if np.isfinite(values["output_tok_s"].mid)
        },
    )


def _median(values: FloatArray) -> float:
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else float("nan")


def _point(values: FloatArray) -> Interval:
    middle = _median(values)
    return Interval(lo=middle, mid=middle, hi=middle)


def utility_usd(scenario: Scenario, arm: Candidate, targets: Mapping[str, Interval]) -> float:
    """Return what an arm is worth by these targets; a latency that nobody measured misses no SLO.

    Both the truth and every prediction are valued by this function.
    """
    latencies = (targets.get(name) for name in _LATENCIES)
    ttft_ms, tpot_ms = (
        each if each is not None and np.isfinite(each.mid) else None for each in latencies
    )
    run = scenario.run(
        arm.gpu,
        arm.n_gpus,
        arm.params_b,
        output_tok_s=targets["output_tok_s"],
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
    )
    return utility_terms(run, scenario.utility).total


def _by_source(source: str) -> Callable[[Scenario, Sequence[Candidate]], int]:
    def choose(scenario: Scenario, arms: Sequence[Candidate]) -> int:
        worth = [
            utility_usd(scenario, arm, arm.says[source]) if source in arm.says else -np.inf
            for arm in arms
        ]
        return int(np.argmax(worth)) if max(worth) > -np.inf else cheapest(scenario, arms)

    return choose


def cheapest(_: Scenario, arms: Sequence[Candidate]) -> int:
    """Choose the lowest price, then fewer GPUs, then a lower tensor-parallel degree."""
    return min(range(len(arms)), key=lambda i: _cost(arms[i]))


def _cost(arm: Candidate) -> tuple[float, int, float]:
    return (arm.price_usd_per_hour, arm.n_gpus, arm.tensor_parallel)


def size_threshold(_: Scenario, arms: Sequence[Candidate]) -> int:
    """Choose the GPU count of the model's size class, or the nearest to it, then the cheapest."""
    wanted = next(n for limit, n in _SIZE_RULE if arms[0].params_b <= limit)
    return min(
        range(len(arms)), key=lambda i: (abs(np.log2(arms[i].n_gpus / wanted)), _cost(arms[i]))
    )


def h100_fp8(_: Scenario, arms: Sequence[Candidate]) -> int:
    """Choose an H100 before others and FP8 before other formats, then the cheapest."""
    return min(
        range(len(arms)),
        key=lambda i: (arms[i].gpu != "H100", arms[i].precision != "fp8", _cost(arms[i])),
    )


def throughput_max(_: Scenario, arms: Sequence[Candidate]) -> int:
    """Choose the highest predicted throughput, whatever it costs."""
    return max(
        range(len(arms)),
        key=lambda i: arms[i].says[OURS]["output_tok_s"].mid if OURS in arms[i].says else 0.0,
    )


POLICIES = {
    OURS: _by_source(OURS),
    "cheapest that fits": cheapest,
    "size threshold": size_threshold,
    "H100/FP8 recipe": h100_fp8,
    "throughput max": throughput_max,
    "nearest cell": _by_source("nearest cell"),
    "roofline alone": _by_source("roofline"),
}


def outcomes(
    cells: Sequence[Sequence[Candidate]], scenario: Scenario, seed: int = 0
) -> list[Outcome]:
    """Return what each policy achieves, ours first.

    `extra_percent` is (2.5 %, mean, 97.5 %) of the policy's regret above ours over the same cells,
    by resampling cells.
    """
    truth = [[utility_usd(scenario, arm, arm.measured) for arm in arms] for arms in cells]
    lost = {
        name: np.array(
            [
                (max(worth) - worth[choose(scenario, arms)], max(worth) - min(worth))
                for arms, worth in zip(cells, truth, strict=True)
            ]
        )
        for name, choose in POLICIES.items()
    }
    shares = {name: 100 * _ratio(values) for name, values in lost.items()}
    drawn = np.random.default_rng(seed).integers(len(cells), size=(_N_BOOTSTRAP, len(cells)))
    return [
        Outcome(
            policy=name,
            n_cells=len(cells),
            top_1=float((values[:, 0] <= _TIE).mean()),
            regret_usd_per_h=float(values[:, 0].mean() / scenario.hours),
            regret_percent=float(shares[name].mean()),
            extra_percent=_interval((shares[name] - shares[OURS])[drawn].mean(axis=1)),
        )
        for name, values in lost.items()
    ]


def _ratio(values: FloatArray) -> FloatArray:
    """Return regret over best - worst, 0 where all arms are worth the same."""
    spread = np.maximum(values[:, 1], _TIE)
    ratio: FloatArray = values[:, 0] / spread
    return ratio


def _interval(draws: FloatArray) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(draws.mean()), float(high)
