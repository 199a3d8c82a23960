"""What the prediction of one decision costs, against scikit-learn's predict on the same trees.

Called by benchmarks/model.py. The trees are those of one fit on all rows: as packed into the model,
and as scikit-learn has them. Both are timed in turns, in one thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.predict.blend import centre
from omnipilot_slurm.predict.features import features
from omnipilot_slurm.predict.live import ArmPredictor, ArmSetup
from omnipilot_slurm.predict.model import LEVELS
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.predict.rows import live_row, table
from omnipilot_slurm.records import Arm, Workload
from omnipilot_slurm.train import ensembles
from omnipilot_slurm.train.fit import fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.ensembles import Settings

GPUS = ("a100-40g", "a100-80g", "h100", "h200", "b200")
MODEL = "meta-llama/Llama-3.1-70B-Instruct"
N_ROUNDS = 200


class Latency(NamedTuple):
    """Medians in ms, and the largest difference between the two sets of trees."""

    uncached_ms: float
    repeated_ms: float
    sklearn_ms: float
    difference: float


def latency(data: Dataset, settings: Settings) -> Latency:
    """Fit on all rows and time 40 arms of one workload after another."""
    made: dict[str, Any] = {}
    with_models_kept = {name: getattr(ensembles, name) for name in ("forests", "bands")}
    for name, original in with_models_kept.items():
        setattr(ensembles, name, _keeping(made, name, original))
    try:
        model = fit(data, settings).model
    finally:
        for name, original in with_models_kept.items():
            setattr(ensembles, name, original)
    return _timed(model, made["forests"], made["bands"])


def _keeping(made: dict[str, Any], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that keeps what it returned last: the final trees come last."""

    def keeping(*arguments: Any) -> Any:
        made[name] = original(*arguments)
        return made[name]

    return keeping


def _timed(model: CostModel, forests: list[Any], bands: list[Any]) -> Latency:
    catalog = Catalog.load(site=None)
    facts = catalog.model(MODEL).facts
    arms = [
        ArmSetup(
            Arm(partition=None, gpu=gpu, gres_type=None, n_gpus=n, tensor_parallel=n, precision=p),
            catalog.gpu(gpu),
            1024,
            8192,
            0.9,
        )
        for gpu in GPUS
        for n in (1, 2, 4, 8)
        for p in ("bf16", "fp8")
    ]
    predictor = ArmPredictor(Predictor(model))
    loads = [Workload(isl=1024, osl=128 + i, concurrency=32) for i in range(N_ROUNDS)]
    rows = table(
        [
            live_row(facts, e.gpu, e.arm, loads[0], max_num_seqs=1024, max_num_batched_tokens=8192)
            for e in arms
        ]
    )
    matrix, beside = _matrices(model, rows)
    for each in (each for each in forests if each is not None):
        each.set_params(n_jobs=1)
    ours = [model.forest.predict(matrix), model.bands.predict(beside)]
    theirs = _sklearn(forests, bands, matrix, beside)
    uncached, repeated, sklearn = [], [], []
    for load in loads:
        uncached.append(_ms(lambda load=load: predictor.predict(facts, arms, load)))
        repeated.append(_ms(lambda load=load: predictor.predict(facts, arms, load)))
        sklearn.append(_ms(lambda: _sklearn(forests, bands, matrix, beside)))
    difference = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    return Latency(*(float(np.median(t)) for t in (uncached, repeated, sklearn)), difference)


def _matrices(model: CostModel, rows: Any) -> tuple[Any, Any]:
    found = features(rows, model.columns, model.coefficients)
    near = model.kernel.smooth(found.matrix)
    forest = model.forest.predict(found.matrix)
    middle = centre(near.values, forest, near.density, model.kernel_shares)
    return found.matrix, middle.beside(found.matrix)


def _sklearn(forests: list[Any], bands: list[Any], matrix: Any, beside: Any) -> list[Any]:
    """Return what scikit-learn's ensembles say; a target that is not learned is 0."""
    nothing = np.zeros(len(matrix))
    return [
        np.column_stack([nothing if each is None else each.predict(matrix) for each in forests]),
        np.column_stack(
            [
                each.predict(beside) if each is not None else nothing
                for models in bands
                for each in (models or [None] * len(LEVELS))
            ]
        ),
    ]


def _ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)
