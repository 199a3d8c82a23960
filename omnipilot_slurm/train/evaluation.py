"""The protocol of specification section 9 for one split: errors, tiers, baselines, decisions.

In: a dataset, its predictions out of fold, a scenario or none. Out: `Evaluation`, plain records.
Called by `omnipilot evaluate` and the benchmark. Every baseline is scored on the same rows in the
same run as the model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.predict.support import IN, LOW, OUT
from omnipilot_slurm.train.decisions import OURS, Outcome, cells_of, outcomes
from omnipilot_slurm.train.scoring import Score, score

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnipilot_slurm.predict.rows import BoolArray, FloatArray
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held
    from omnipilot_slurm.train.scenario import Scenario

#: the targets that are scored, learned ones first
SCORED = ("output_tok_s", "ttft_ms", "tpot_ms", "power_w", "e2e_ms", "req_s", "total_tok_s")
ROOFLINE, NEAREST = "roofline alone", "nearest cell"
#: below this many cells a group's coverage says nothing
MIN_GROUP_CELLS = 20

_GPUS = {
    "A100/H100/H200": ("a100-40g", "h100", "h200"),
    "H100/H200": ("h100", "h200"),
    "H100/B200": ("h100", "b200"),
}
EVERY, NVIDIA = "all", "NVIDIA"
SUBSETS = (EVERY, NVIDIA, *_GPUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The score of one predictor for one target on some rows."""

    target: str
    rows: str
    by: str
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTiers:
    """How the rows of one group were answered; `scores` of output tok/s by tier."""

    group: str
    n_rows: int
    n_cells: int
    tiers: Mapping[str, int]
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All figures of one split; `decisions` by the worth of an output token, headline first."""

    split: str
    n_rows: int
    n_cells: int
    n_folds: int
    lines: tuple[Line, ...]
    tiers: Mapping[str, int]
    groups: tuple[GroupTiers, ...]
    decisions: Mapping[float, tuple[Outcome, ...]]

    def score(self, target: str, rows: str, by: str = OURS) -> Score:
        """Return one score.

        Raises: KeyError where no such row was measured and answered.
        """
        for line in self.lines:
            if (line.target, line.rows, line.by) == (target, rows, by):
                return line.score
        raise KeyError(f"{target} of {rows} by {by}")


def evaluation(
    data: Dataset, held: Held, split: str, scenario: Scenario | None = None
) -> Evaluation:
    """Return every figure of a split."""
    decisions: dict[float, tuple[Outcome, ...]] = {}
    if scenario is not None:
        cells = list(cells_of(data, held, scenario).values())
        for value in (scenario.utility.value_usd_per_output_token, *scenario.sensitivity):
            decisions[value] = tuple(outcomes(cells, scenario.valued_at(value)))
    return Evaluation(
        split=split,
        n_rows=len(data),
        n_cells=_n_distinct(data, "cell", np.ones(len(data), dtype=bool)),
        n_folds=len(np.unique(held.folds)),
        lines=tuple(_lines(data, held)),
        tiers=_tiers(held, np.ones(len(data), dtype=bool)),
        groups=tuple(_by_group(data, held, split)),
        decisions=decisions,
    )


def subset(data: Dataset, name: str) -> BoolArray:
    """Return which rows belong to one of SUBSETS."""
    if name == EVERY:
        return np.ones(len(data), dtype=bool)
    if name == NVIDIA:
        return np.isin(data.table.labels["vendor"], "nvidia")
    return np.isin(data.table.labels["gpu"], _GPUS[name])


def predictors(data: Dataset, held: Held, target: str) -> dict[str, Bounds]:
    """Return what the model and each baseline say of a target; a baseline has no interval."""
    found = {OURS: held.targets[target]}
    if target in held.physics:
        found[ROOFLINE] = _point(held.physics[target])
    near = np.where(held.nearest < 0, np.nan, data.measured[target][held.nearest])
    found[NEAREST] = _point(near)
    return found


def _point(values: FloatArray) -> Bounds:
    return Bounds(values, values, values)


def _lines(data: Dataset, held: Held) -> Iterator[Line]:
    cells = data.groups["cell"]
    chosen = {name: subset(data, name) for name in SUBSETS}
    for target in SCORED:
        for by, bounds in predictors(data, held, target).items():
            for name, rows in chosen.items():
                found = score(data.measured[target], bounds, cells, rows)
                if found is not None:
                    yield Line(target=target, rows=name, by=by, score=found)


def _by_group(data: Dataset, held: Held, split: str) -> Iterator[GroupTiers]:
    """Yield how each group was answered where one is left out at a time, worst answered first."""
    groups = data.groups[split]
    names = np.unique(groups).tolist()
    if len(names) != len(np.unique(held.folds)):
        return
    for name in sorted(names, key=lambda name: (held.tiers[groups == name] != OUT).mean()):
        rows = groups == name
        scores = {
            tier: score(
                data.measured["output_tok_s"],
                held.targets["output_tok_s"],
                data.groups["cell"],
                rows & (held.tiers == tier),
            )
            for tier in (IN, LOW)
        }
        yield GroupTiers(
            group=name,
            n_rows=int(rows.sum()),
            n_cells=_n_distinct(data, "cell", rows),
            tiers=_tiers(held, rows),
            scores={tier: found for tier, found in scores.items() if found is not None},
        )


def _n_distinct(data: Dataset, group: str, rows: BoolArray) -> int:
    return len(np.unique(data.groups[group][rows]))


def _tiers(held: Held, rows: BoolArray) -> dict[str, int]:
    counts = Counter(held.tiers[rows].tolist())
    return {tier: counts[tier] for tier in (IN, LOW, OUT)}


def group_coverage(data: Dataset, held: Held, target: str) -> dict[str, Score]:
    """Return the score of each GPU and each source with at least MIN_GROUP_CELLS cells."""
    found: dict[str, Score] = {}
    for kind in ("gpu", "source"):
        for name in np.unique(data.groups[kind]).tolist():
            each = score(
                data.measured[target],
                held.targets[target],
                data.groups["cell"],
                data.groups[kind] == name,
            )
            if each is not None and each.n_cells >= MIN_GROUP_CELLS:
                found[name] = each
    return found
