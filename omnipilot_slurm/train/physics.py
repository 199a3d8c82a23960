"""Fit the roofline's coefficients to measured rows.

In: a `Table` and the measured targets. Out: `Coefficients`. Called by train/fit.py.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from omnipilot_slurm.predict.roofline import SHIPPED, Coefficients, roofline, work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.predict.rows import FloatArray, Table

#: how much a target's log error counts; time to first token is noisy and half queueing
_TARGET_WEIGHTS = {"output_tok_s": 1.0, "tpot_ms": 1.0, "ttft_ms": 0.5}
#: log errors beyond this count linearly: the tail is other software, not other physics
_ROBUST_FROM = 0.2
#: pull towards the starting values, so that a term that no row shows stays where it was
_PULL = 0.02


def fit_coefficients(rows: Table, measured: Mapping[str, FloatArray]) -> Coefficients:
    """Return the coefficients with the least robust squared log error over all targets.

    `measured` maps target names to arrays of shape (n_rows,), NaN where not measured. All
    coefficients are positive: the search runs over their logarithms.
    """
    load = work(rows)
    start = np.log(astuple(SHIPPED))

    def residuals(log_values: FloatArray) -> FloatArray:
        values = roofline(rows, load, Coefficients(*np.exp(log_values)))
        errors = [
            weight * _log_errors(measured[name], getattr(values, name))
            for name, weight in _TARGET_WEIGHTS.items()
        ]
        return np.concatenate([*errors, _PULL * (log_values - start)])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=_ROBUST_FROM)
    return Coefficients(*(float(value) for value in np.exp(found.x)))


def _log_errors(measured: FloatArray, estimated: FloatArray) -> FloatArray:
    seen = np.isfinite(measured)
    errors: FloatArray = np.log(measured[seen] / estimated[seen])
    return errors
