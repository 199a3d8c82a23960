"""Predict the arms of one decision, and remember the last ones.

In: a predictor, facts of a model, arms with their GPUs and effective limits, a workload. Out: one
`records.Prediction` an arm. Called by the decision. What is remembered depends on nothing but its
key, so a repeated workload gets the same answer, faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.predict.rows import CLOSED_LOOP, live_table
from omnipilot_slurm.predict.support import OUT
from omnipilot_slurm.records import Interval, Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.predict.predictor import Predictions, Predictor
    from omnipilot_slurm.records import Arm, Workload

#: decisions remembered by one predictor
_REMEMBERED = 64


class ArmSetup(NamedTuple):
    """An arm, its GPU, and the limits in force there."""

    arm: Arm
    gpu: GpuFacts
    max_num_seqs: int
    max_num_batched_tokens: int
    mem_util: float


class _Answer(NamedTuple):
    model: ModelFacts
    gpus: tuple[GpuFacts, ...]
    predictions: tuple[Prediction, ...]


class ArmPredictor:
    """A predictor for decisions; threads may share it."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._answers: dict[object, _Answer] = {}

    def predict(
        self,
        model: ModelFacts,
        arms: Sequence[ArmSetup],
        workload: Workload,
        *,
        engine_version: str | None = None,
        load_mode: str = CLOSED_LOOP,
    ) -> tuple[Prediction, ...]:
        """Return the prediction of every arm."""
        load = (workload.isl, workload.osl, workload.concurrency, engine_version, load_mode)
        places = tuple((each.arm, each.gpu.id, *each[2:]) for each in arms)
        gpus = tuple(each.gpu for each in arms)
        key = (model.id, load, places)
        known = self._answers.get(key)
        if known is not None and known.model == model and known.gpus == gpus:
            return known.predictions
        found = predict_arms(
            self.predictor,
            model,
            arms,
            workload,
            engine_version=engine_version,
            load_mode=load_mode,
        )
        while len(self._answers) >= _REMEMBERED:
            self._answers.pop(next(iter(self._answers)), None)
        self._answers[key] = _Answer(model, gpus, found)
        return found


def predict_arms(
    predictor: Predictor,
    model: ModelFacts,
    arms: Sequence[ArmSetup],
    workload: Workload,
    *,
    engine_version: str | None = None,
    load_mode: str = CLOSED_LOOP,
) -> tuple[Prediction, ...]:
    """Return the prediction of every arm, without remembering."""
    if not arms:
        return ()
    rows = live_table(model, arms, workload, engine_version=engine_version, load_mode=load_mode)
    return as_records(predictor.predict_table(rows))


def as_records(found: Predictions) -> tuple[Prediction, ...]:
    """Return one record a row; a row out of support has no targets, only its axes and notes."""
    bounds = {
        name: list(zip(each.lo.tolist(), each.mid.tolist(), each.hi.tolist(), strict=True))
        for name, each in found.targets.items()
    }
    return tuple(
        Prediction(
            targets={}
            if support.tier == OUT
            else {
                name: Interval(lo=rows[i][0], mid=rows[i][1], hi=rows[i][2])
                for name, rows in bounds.items()
                if rows[i][1] == rows[i][1]
            },
            calibrated=True,
            tier=support.tier,
            axes=support.axes,
            notes=tuple(finding.note for finding in support.findings),
        )
        for i, support in enumerate(found.support)
    )
