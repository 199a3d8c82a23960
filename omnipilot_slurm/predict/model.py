"""The cost model as plain values: everything a prediction needs, nothing of how it was fitted.

Read and written by artifact.py, fitted by train/fit.py, evaluated by predictor.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.predict.conformal import Offsets
    from omnipilot_slurm.predict.correction import Correction
    from omnipilot_slurm.predict.features import Columns
    from omnipilot_slurm.predict.kernel import Kernel
    from omnipilot_slurm.predict.roofline import Coefficients
    from omnipilot_slurm.predict.rows import FloatArray
    from omnipilot_slurm.predict.support import Envelope
    from omnipilot_slurm.predict.trees import Trees

#: what is learned, in the order of the models' outputs; everything else is derived from these
LEARNED = ("output_tok_s", "ttft_ms", "tpot_ms", "power_w")
#: levels of the quantile trees, in the order of their models within a target
LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Roofline, then kernel and forest blended, then boosted quantiles of what is left.

    `kernel_shares` (n_learned,) weigh the kernel against the forest, which has one model a learned
    target; `bands` has one a target and level, in that order. `site` is what a site's own rows
    added (train/adapt.py), None in the shipped model.
    """

    coefficients: Coefficients
    columns: Columns
    kernel: Kernel
    kernel_shares: FloatArray
    forest: Trees
    bands: Trees
    offsets: Offsets
    envelope: Envelope
    site: Correction | None = None
