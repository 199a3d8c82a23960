"""Predict targets with intervals for rows: the hot path, numpy on flat arrays, nothing else.

In: a `CostModel` and rows. Out: `Predictions`, arrays of bounds by target, and the support of each
row. Called by decisions (`predict_arms`), `omnipilot predict` and evaluate.

Learned targets are kernel and forest blended on the roofline, then boosted quantiles, widened by
the conformal offset, doubled in log space at low confidence; a site's correction moves the centre.
Requests/s, total tok/s, E2E and J/token are derived from them, so that all figures of a row agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict import conformal
from omnipilot_slurm.predict.blend import centre
from omnipilot_slurm.predict.features import features
from omnipilot_slurm.predict.model import LEARNED, LEVELS
from omnipilot_slurm.predict.roofline import roofline
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import LOW, OUT, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.roofline import Roofline
    from omnipilot_slurm.predict.rows import FeatureRow, FloatArray, Table
    from omnipilot_slurm.predict.support import Support


@dataclass(frozen=True, slots=True)
class Bounds:
    """lo <= mid <= hi of one target, each (n_rows,); NaN where a row is out of support."""

    lo: FloatArray
    mid: FloatArray
    hi: FloatArray


@dataclass(frozen=True, slots=True)
class Predictions:
    """Bounds by target name, and why a row is or is not supported."""

    targets: Mapping[str, Bounds]
    support: tuple[Support, ...]


def bases(rows: Table, physics: Roofline) -> FloatArray:
    """Return what the learned targets are relative to, (n_rows, n_learned)."""
    power_w = rows.numbers["tdp_w"] * rows.numbers["n_gpus"]
    return np.column_stack([physics.output_tok_s, physics.ttft_ms, physics.tpot_ms, power_w])


def calibration_groups(rows: Table) -> list[tuple[str, ...]]:
    """Return the groups of each row whose offsets apply to it, narrow to wide."""
    modes, gpus = rows.labels["load_mode"].tolist(), rows.labels["gpu"].tolist()
    return [conformal.groups_of(mode, gpu) for mode, gpu in zip(modes, gpus, strict=True)]


class Predictor:
    """A cost model ready to answer; it holds no state of its own."""

    def __init__(self, model: CostModel) -> None:
        self.model = model

    def predict(self, rows: Sequence[FeatureRow]) -> Predictions:
        """Return the bounds of every row."""
        return self.predict_table(table(rows))

    def predict_table(self, facts: Table) -> Predictions:
        """Return the bounds of every row of a table."""
        support = judge(facts, self.model.envelope)
        centres, quantiles, base = self.quantiles(facts)
        widen = np.where([each.tier == LOW for each in support], 2.0, 1.0)
        void = np.where([each.tier == OUT for each in support], np.nan, 1.0)
        offsets = self._offsets(facts)
        learned = {}
        for i, target in enumerate(LEARNED):
            q = offsets[:, i]
            mid = quantiles[:, i, 1]
            below = widen * np.maximum(mid - quantiles[:, i, 0] + q, 0.0)
            above = widen * np.maximum(quantiles[:, i, 2] + q - mid, 0.0)
            # an infinite offset is no interval: the target is not answered
            middle = base[:, i] * np.exp(centres[:, i] + mid) * np.where(np.isinf(q), np.nan, void)
            learned[target] = Bounds(middle * np.exp(-below), middle, middle * np.exp(above))
        return Predictions({**learned, **derived(facts, learned)}, support)

    def _offsets(self, rows: Table) -> FloatArray:
        """Return the conformal offset of every row and learned target."""
        groups = calibration_groups(rows)
        of = {
            names: [self.model.offsets.of(target, names) for target in LEARNED]
            for names in set(groups)
        }
        return np.array([of[names] for names in groups]).reshape(-1, len(LEARNED))

    def quantiles(self, rows: Table) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return centres, sorted quantiles of what is left over them, and bases, before offsets.

        Shapes: (n_rows, n_learned), (n_rows, n_learned, n_levels), (n_rows, n_learned).
        """
        model = self.model
        found = features(rows, model.columns, model.coefficients)
        near = model.kernel.smooth(found.matrix)
        forest = model.forest.predict(found.matrix)
        middle = centre(near.values, forest, near.density, model.kernel_shares)
        flat = model.bands.predict(middle.beside(found.matrix))
        left = np.sort(flat.reshape(len(rows), len(LEARNED), len(LEVELS)), axis=2)
        base = bases(rows, found.physics)
        if model.site is None:
            return middle.value, left, base
        physics = roofline(rows, found.load, model.site.coefficients)
        there = np.log(bases(rows, physics) / base)
        shift = model.site.shift(there, middle.value + left[:, :, 1], found.matrix)
        return middle.value + shift, left, base


def derived(rows: Table, learned: Mapping[str, Bounds]) -> dict[str, Bounds]:
    """Return the targets that follow from the learned ones.

    Requests/s = output / OSL, total = requests/s x (ISL + OSL), E2E = concurrency / requests/s
    (Little's law: each client keeps one request in flight), J/token = power / output, whose
    log-widths add in quadrature.
    """
    x = rows.numbers
    output, power = learned["output_tok_s"], learned["power_w"]
    offered_tok = 1e3 * x["concurrency"] * x["osl"]
    energy = power.mid / output.mid
    below = np.hypot(np.log(power.mid / power.lo), np.log(output.hi / output.mid))
    above = np.hypot(np.log(power.hi / power.mid), np.log(output.mid / output.lo))
    return {
        "req_s": _scaled(output, 1 / x["osl"]),
        "total_tok_s": _scaled(output, (x["isl"] + x["osl"]) / x["osl"]),
        "e2e_ms": Bounds(
            offered_tok / output.hi, offered_tok / output.mid, offered_tok / output.lo
        ),
        "energy_per_tok_j": Bounds(energy * np.exp(-below), energy, energy * np.exp(above)),
    }


def _scaled(bounds: Bounds, factor: FloatArray) -> Bounds:
    return Bounds(bounds.lo * factor, bounds.mid * factor, bounds.hi * factor)
