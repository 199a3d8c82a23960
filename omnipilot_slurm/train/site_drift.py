"""The drift of the model in force on what the site has measured since it was made.

In: the model with its card, runs of the store. Out: outcomes, for predict/drift.py. Called by
`omnipilot drift`, the site's report and adapt. Rows that the model learned from say nothing of it
and are left out, as are rows off its support, for which it gives no number.
"""

from __future__ import annotations

from math import isfinite, log
from typing import TYPE_CHECKING

from omnipilot_slurm.predict.drift import Group, Outcome
from omnipilot_slurm.predict.features import engine_minor
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train.site_rows import row_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.site_update import Learned


def outcomes(
    model: CostModel, data: Dataset, measured_at: Sequence[float], learned: Learned
) -> list[Outcome]:
    """Return an outcome for each learned target that a row measures; `measured_at` (n_rows,)."""
    found = Predictor(model).predict_table(data.table)
    keys = row_keys(data)
    made = []
    for target in LEARNED:
        bounds, values = found.targets[target], data.measured[target]
        for i, key in enumerate(keys):
            if key in learned.rows or not (isfinite(values[i]) and isfinite(bounds.mid[i])):
                continue
            made.append(
                Outcome(
                    group=Group(target, str(data.arms[i]), _engine(data, i)),
                    at=measured_at[i],
                    log_miss=log(values[i] / bounds.mid[i]),
                    is_inside=bool(bounds.lo[i] <= values[i] <= bounds.hi[i]),
                )
            )
    return made


def _engine(data: Dataset, row: int) -> str:
    minor = engine_minor(str(data.table.labels["engine_version"][row]))
    return f"0.{minor:.0f}" if minor >= 0 else ""
