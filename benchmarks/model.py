"""Print every figure that the cost model is held to, with its bar, and whether it is met.

    python benchmarks/model.py DATA.csv --scenario FILE [--keep FOLDER]
        [--splits workload architecture source]

All figures are out of fold, on the vLLM rows. What a prediction costs is printed by
benchmarks/predict_latency.py, which `make bench-model` runs as well. --keep holds the predictions
out of fold, an hour's work; they are made again when rows or code change. By cell is always
printed, --splits chooses among the others.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from threadpoolctl import threadpool_limits

from omnipilot_slurm.predict.support import IN, LOW, OUT
from omnipilot_slurm.train.decisions import OURS
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import tiers_out_of_fold
from omnipilot_slurm.train.evaluation import (
    EVERY,
    NVIDIA,
    evaluation,
    group_coverage,
)
from omnipilot_slurm.train.kept import kept
from omnipilot_slurm.train.load import load_dataset
from omnipilot_slurm.train.scenario import load_scenario
from omnipilot_slurm.train.scoring import COVERAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held
    from omnipilot_slurm.train.evaluation import Evaluation

TRIPLE = "A100/H100/H200"
SPLITS = ("workload", "architecture", "source")


class Figure(NamedTuple):
    """One line of the table; `met` is None where there is no bar."""

    name: str
    value: str
    bar: str
    met: bool | None


#: target, rows, split, highest mean and median error in percent
ERRORS = (
    ("output_tok_s", TRIPLE, "cell", 4.8, 2.2),
    ("output_tok_s", NVIDIA, "cell", 6.2, 3.0),
    ("output_tok_s", TRIPLE, "workload", 7.5, 3.2),
    ("output_tok_s", NVIDIA, "workload", 7.5, 3.2),
    ("ttft_ms", "H100/H200", "cell", 22.0, 7.5),
    ("tpot_ms", "H100/H200", "cell", 8.5, 4.6),
    ("e2e_ms", TRIPLE, "cell", 4.3, 1.8),
    ("e2e_ms", NVIDIA, "cell", 4.3, 1.8),
    ("power_w", "H100/B200", "cell", 3.4, 2.4),
    ("output_tok_s", TRIPLE, "architecture", None, 10.0),
    ("output_tok_s", NVIDIA, "architecture", None, 10.0),
    ("output_tok_s", EVERY, "architecture", None, 10.0),
)
COVERED = ("output_tok_s", "ttft_ms", "tpot_ms", "power_w", "e2e_ms")


def errors(found: Mapping[str, Evaluation]) -> Iterator[Figure]:
    """Yield the error of each target against its bar."""
    for target, rows, split, mean, median in ERRORS:
        if split not in found:
            continue
        score = found[split].score(target, rows)
        bars = [f"<= {bar:g} {name}" for bar, name in ((mean, "mean"), (median, "median")) if bar]
        is_met = score.median <= median and (mean is None or score.mape <= mean)
        value = f"{score.mape:.2f} / {score.median:.2f} %  ({score.n_rows} rows)"
        yield Figure(f"{target}, {rows}, by {split}", value, ", ".join(bars), is_met)


def coverages(data: Dataset, held: Held, by_cell: Evaluation) -> Iterator[Figure]:
    """Yield the pooled coverage of each target, its worst group, and the sharpness."""
    for target in COVERED:
        score = by_cell.score(target, EVERY)
        reach = 3 * score.standard_error
        inside = all(
            abs(share - COVERAGE) <= reach for share in (score.coverage, score.cell_coverage)
        )
        value = f"{score.coverage:.3f} of rows, {score.cell_coverage:.3f} of cells"
        yield Figure(f"{target}: 80 % interval, pooled", value, f"0.80 +- {reach:.3f}", inside)
        groups = group_coverage(data, held, target)
        name, worst = min(
            groups.items(),
            key=lambda pair: (pair[1].cell_coverage - COVERAGE) / pair[1].standard_error,
        )
        floor = COVERAGE - 2.5 * worst.standard_error
        value = f"{worst.cell_coverage:.3f} ({name}, {worst.n_cells} cells)"
        is_met = worst.cell_coverage >= floor
        yield Figure(f"{target}: its worst GPU or source", value, f">= {floor:.3f}", is_met)
    width = by_cell.score("output_tok_s", EVERY).width
    yield Figure("output_tok_s: median hi/lo", f"{width:.3f}", "<= 1.25", width <= 1.25)


def tiers(data: Dataset, found: Mapping[str, Evaluation]) -> Iterator[Figure]:
    """Yield how rows of what was left out are answered."""
    for split in ("family", "gpu"):
        counts = Counter(tiers_out_of_fold(data, split).tolist())
        value = ", ".join(f"{counts[tier]} {tier}" for tier in (IN, LOW, OUT))
        yield Figure(f"left out by {split}: rows by tier", value, "0 in", counts[IN] == 0)
    for group in found["source"].groups if "source" in found else ():
        answered = 1 - group.tiers[OUT] / group.n_rows
        counts = ", ".join(f"{count} {tier}" for tier, count in group.tiers.items())
        name = f"left out: {group.group}"
        yield Figure(name, f"{answered:.0%} answered ({counts})", ">= 50 %", answered >= 0.5)
        for tier in (IN, LOW):
            if tier in group.scores:
                score = group.scores[tier]
                value = f"{score.mape:.1f} / {score.median:.1f} %, {score.coverage:.2f} inside"
                yield Figure(f"    {tier}: error, coverage", value, "", None)
    counts = found["cell"].tiers
    share = counts[OUT] / sum(counts.values())
    yield Figure("falsely out, by cell", f"{share:.2%}", "<= 3 %", share <= 0.03)


def decisions(by_cell: Evaluation) -> Iterator[Figure]:
    """Yield top-1 and regret of ours, and the nearest rival, at each worth of a token."""
    for i, (value, policies) in enumerate(by_cell.decisions.items()):
        ours = next(each for each in policies if each.policy == OURS)
        rival = min(
            (each for each in policies if each.policy != OURS),
            key=lambda each: each.regret_percent,
        )
        name = f"decisions at {value:g} $/token"
        if i == 0:
            is_met = ours.top_1 >= 0.90
            yield Figure(f"{name}: top-1", f"{ours.top_1:.3f}", ">= 0.90", is_met)
            text = f"{ours.regret_percent:.2f} %, {ours.regret_usd_per_h:.3f} $/h"
            yield Figure(f"{name}: regret", text, "<= 5 %", ours.regret_percent <= 5)
        low, extra, high = rival.extra_percent
        text = (
            f"{ours.regret_percent:.2f} %; next {rival.policy} {extra:+.2f} [{low:.2f}, {high:.2f}]"
        )
        bar = "lowest of all"
        yield Figure(
            f"{name}: against others", text, bar, rival.regret_percent > ours.regret_percent
        )


def main() -> None:
    """Read the arguments, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS)
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario)
    data = load_dataset(arguments.data, say)
    settings = Settings(n_jobs=1)
    held, found = {}, {}
    with threadpool_limits(1):
        for split in ("cell", *arguments.splits):
            held[split] = kept(arguments.keep, data, split, settings, progress=say)
            priced = scenario if split == "cell" else None
            found[split] = evaluation(data, held[split], split, priced)
        rows = [
            *errors(found),
            *coverages(data, held["cell"], found["cell"]),
            *tiers(data, found),
            *decisions(found["cell"]),
        ]
    for row in rows:
        verdict = "" if row.met is None else "met" if row.met else "MISSED"
        print(f"{row.name:46s} {row.value:52s} {row.bar:26s} {verdict}")
    n_met, n_missed = (sum(row.met is each for row in rows) for each in (True, False))
    print(f"{n_met} met, {n_missed} missed")


def say(text: str) -> None:
    """Talk on standard error."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
