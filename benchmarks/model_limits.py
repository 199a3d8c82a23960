"""Print what limits the cost model: how rough measured curves are, and where regret comes from.

    python benchmarks/model_limits.py DATA.csv --scenario FILE --keep FOLDER

Roughness: of each curve (one arm and workload, rising concurrency) every inner point is compared
with the straight line between its two measured neighbours in log-log, and with the model's
prediction out of fold by cell, which has seen neither the point nor more than such neighbours.
Regret: that of the headline value by source and number of arms, in points of the whole, with a
bootstrap interval over cells. Then the error of an unseen architecture by family, and how much of
each source left out is answered by vendor of the GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from omnipilot_slurm.predict.support import OUT
from omnipilot_slurm.train.curves import errors_by_axis
from omnipilot_slurm.train.decisions import (
    OURS,
    POLICIES,
    cells_of,
    utility_usd,
)
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import tiers_out_of_fold
from omnipilot_slurm.train.kept import kept
from omnipilot_slurm.train.load import load_dataset
from omnipilot_slurm.train.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held
    from omnipilot_slurm.train.scenario import Scenario

TARGETS = ("output_tok_s", "ttft_ms", "tpot_ms", "power_w")
#: neighbours further apart than this factor of concurrency say nothing of what is between
WIDEST = 20.0
MIN_POINTS = 20
N_BOOTSTRAP = 2000


def inner_points(data: Dataset, target: str) -> Iterator[tuple[int, float]]:
    """Yield each inner row and the error in percent of interpolating its neighbours."""
    curves: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.isfinite(data.measured[target])).tolist():
        version = data.rows[row].engine_version
        curves[str(data.groups["workload"][row]), str(data.arms[row]), version].append(row)
    load = np.log(data.table.numbers["concurrency"])
    logs = np.log(data.measured[target])
    for curve in curves.values():
        rows = sorted(curve, key=load.__getitem__)
        for before, row, after in zip(rows, rows[1:], rows[2:], strict=False):
            span = load[after] - load[before]
            if 0 < span <= np.log(WIDEST):
                share = (load[row] - load[before]) / span
                between = (1 - share) * logs[before] + share * logs[after]
                yield row, 100 * abs(np.expm1(between - logs[row]))


def roughness(data: Dataset, held: Held) -> Iterator[str]:
    """Yield a line a target, source and GPU with at least MIN_POINTS inner points."""
    for target in TARGETS:
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for row, rough in inner_points(data, target):
            own = 100 * abs(held.targets[target].mid[row] / data.measured[target][row] - 1)
            found[str(data.groups["source"][row]), str(data.groups["gpu"][row])].append(
                (rough, own)
            )
        for (source, gpu), pairs in sorted(found.items()):
            if len(pairs) >= MIN_POINTS:
                rough, own = np.array(pairs).T
                yield (
                    f"{target:13s} {source:28s} {gpu:10s} {len(pairs):5d} "
                    f"{rough.mean():7.2f} / {np.median(rough):5.2f}   "
                    f"{own.mean():7.2f} / {np.median(own):5.2f}   {(rough > 20).mean():6.1%}"
                )


def regrets(data: Dataset, held: Held, scenario: Scenario) -> Iterator[str]:
    """Yield how many points of regret each source and number of arms contributes."""
    choose = POLICIES[OURS]
    lost: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cell, arms in cells_of(data, held, scenario).items():
        worth = [utility_usd(scenario, arm, arm.measured) for arm in arms]
        spread = max(worth) - min(worth)
        own = 100 * (max(worth) - worth[choose(scenario, arms)]) / spread if spread else 0.0
        lost[cell.partition("|")[0], "2" if len(arms) == 2 else "3+"].append(own)
    everything = np.concatenate([np.array(values) for values in lost.values()])
    for (source, arms), values in sorted(lost.items()):
        points, right = sum(values) / len(everything), np.mean(np.array(values) <= 0)
        yield (
            f"{source:28s} {arms:>3s} arms {len(values):4d} cells, "
            f"regret {np.mean(values):6.2f} %, "
            f"{points:5.2f} points of all, right in {right:.3f}"
        )
    draws = np.random.default_rng(0).choice(everything, size=(N_BOOTSTRAP, len(everything)))
    for name, values in (("regret, %", draws), ("top-1", draws <= 0)):
        low, high = np.quantile(values.mean(axis=1), [0.025, 0.975])
        yield f"{name}: {values.mean():.3f}, 95 % by resampling cells [{low:.3f}, {high:.3f}]"


def unseen(data: Dataset, held: Held) -> Iterator[str]:
    """Yield the error of output tok/s by family where architectures were held out."""
    for each in errors_by_axis(data, held, "output_tok_s"):
        if each.axis == "family":
            yield (
                f"unseen architecture, {each.value:10s} {each.n_rows:5d} rows "
                f"{each.mape:7.2f} / {each.median:5.2f}"
            )


def answered(data: Dataset) -> Iterator[str]:
    """Yield the share of each left-out source's rows that is answered, by vendor of the GPU."""
    tiers = tiers_out_of_fold(data, "source")
    names = data.table.labels["gpu"]
    is_nvidia = data.table.labels["vendor"] == "nvidia"
    for source in np.unique(data.groups["source"]).tolist():
        for chosen, vendor in ((is_nvidia, "NVIDIA"), (~is_nvidia, "other vendors")):
            rows = chosen & (data.groups["source"] == source)
            if rows.any():
                gpus = ", ".join(np.unique(names[rows]).tolist())
                share = (tiers[rows] != OUT).mean()
                where = f"{source:28s} {vendor:13s} {rows.sum():5d} rows"
                yield f"left out: {where} {share:5.0%} answered; {gpus}"


def main() -> None:
    """Read the arguments, print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    arguments = parser.parse_args()
    data = load_dataset(arguments.data, say)
    with threadpool_limits(1):
        held, unseen_held = (
            kept(arguments.keep, data, split, Settings(n_jobs=1), progress=say)
            for split in ("cell", "architecture")
        )
    print("target, source, GPU, points; mean / median % between neighbours, ours; jumps > 20 %")
    print("\n".join(roughness(data, held)))
    print("\n".join(regrets(data, held, load_scenario(arguments.scenario))))
    print("\n".join([*unseen(data, unseen_held), *answered(data)]))


def say(text: str) -> None:
    """Talk on standard error."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
