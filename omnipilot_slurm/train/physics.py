"""Fit the roofline's coefficients to measured rows.

In: a `Table` and the measured targets. Out: `Coefficients`. Called by train/fit.py,
and by train/correct.py, which starts from the shipped model's.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from omnipilot_slurm.predict.roofline import Coefficients, roofline, work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.predict.rows import FloatArray, Table

#: where the search starts and what a term that no row shows keeps: peaks half reached, overheads of
#: tens of microseconds, every vendor alike. No figure here was taken from the rows
_START = Coefficients(
    math=2.0,
    kv=1.5,
    weights=1.5,
    link=2.0,
    layer=5e-5,
    offline_layer=5e-5,
    moe_layer=5e-5,
    shard_layer=1e-5,
    request=5e-5,
    offline_request=5e-5,
    prefill_math=2.0,
    prefill_attention=2.0,
    prefill_link=2.0,
    prefill=2e-3,
    first_token=2e-2,
    queue=0.1,
    interference=0.5,
    moe=2.0,
    amd=1.0,
    intel=1.0,
)

#: how much a target's log error counts; time to first token is noisy and half queueing
_TARGET_WEIGHTS = {"output_tok_s": 1.0, "tpot_ms": 1.0, "ttft_ms": 0.5}
#: log errors beyond this count linearly: the tail is other software, not other physics
_ROBUST_FROM = 0.2
#: pull towards the starting values, so that a term that no row shows stays where it was
_PULL = 0.02


def fit_coefficients(
    rows: Table,
    measured: Mapping[str, FloatArray],
    around: Coefficients = _START,
    pull: float = _PULL,
) -> Coefficients:
    """Return the coefficients with the least robust squared log error over all targets.

    `measured` maps target names to arrays of shape (n_rows,), NaN where not measured. All
    coefficients are positive: the search runs over their logarithms, pulled towards `around`.
    """
    load = work(rows)
    start = np.log(astuple(around))

    def residuals(log_values: FloatArray) -> FloatArray:
        values = roofline(rows, load, Coefficients(*np.exp(log_values)))
        errors = [
            weight * _log_errors(measured[name], getattr(values, name))
            for name, weight in _TARGET_WEIGHTS.items()
        ]
        return np.concatenate([*errors, pull * (log_values - start)])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=_ROBUST_FROM)
    return Coefficients(*(float(value) for value in np.exp(found.x)))


def _log_errors(measured: FloatArray, estimated: FloatArray) -> FloatArray:
    seen = np.isfinite(measured)
    errors: FloatArray = np.log(measured[seen] / estimated[seen])
    return errors
