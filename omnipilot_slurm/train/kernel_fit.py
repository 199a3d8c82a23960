"""Fit the kernel smoother, and say what it would have said of rows that it had not seen.

In: the feature matrix and log residuals. Out: `Kernel`, and its values out of fold in closed form.
Called by train/fit.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.features import ONE_HOT
from omnipilot_slurm.predict.kernel import Kernel, density_of, facing, likeness, looking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.predict.rows import BoolArray, FloatArray, IntArray

#: the distance in a column at which likeness has fallen by a third; columns not named do not count.
#: Chosen once by `python benchmarks/tune_kernel.py` on half of the workloads
LENGTHS = {
    "log_params_b": 12,
    "log_active_params_b": 43,
    "log_layers": 1.8,
    "log_hidden": 27,
    "log_kv_elems": 21,
    "log_vocab": 40,
    "log_n_experts": 80,
    "log_tensor_parallel": 1.8,
    "log_data_parallel": 0.93,
    "expert_parallel": 1.5,
    "log_concurrency": 3.5,
    "log_isl": 5.7,
    "log_osl": 3.8,
    "log_kv_pressure": 15,
    "log_rounds": 0.54,
    "engine_minor": 5.7,
    "engine_known": 4,
    "weight_bits": 1.2,
    "kv_fp8": 0.67,
    "vision": 2.7,
    "offline": 3.4,
    "saturated": 0.15,
    "log_mem_gib": 1.2,
    "log_bandwidth_gb_s": 2.5,
    "log_peak_tflops": 4.9,
    "log_roofline_output_tok_s": 4,
    "log_roofline_tpot_ms": 3.7,
    "family": 1.9,
    "gpu": 1.4,
    "precision": 0.8,
}

#: variance of a measurement against that of the surface, and how much more the ports of vLLM to
#: other vendors' GPUs scatter
_NOISE, _FOREIGN = 0.0072, 9.0


#: degrees of freedom of Student's t, and the median of chi squared with one
_FREEDOM, _MEDIAN_CHI2 = 4.0, 0.455


@dataclass(frozen=True, slots=True)
class KernelFit:
    """The kernel of all rows; values out of fold and densities, both (n_rows, n_targets)."""

    kernel: Kernel
    out_of_fold: FloatArray
    density: FloatArray


def scales(names: Sequence[str], lengths: dict[str, float]) -> tuple[IntArray, FloatArray]:
    """Return the positions of the columns that count and the factor of each, 1 / length."""
    label = {f"{one_hot}=": one_hot for one_hot in ONE_HOT}
    found = [
        (position, 1 / lengths[key])
        for position, name in enumerate(names)
        if (key := label.get(name[: name.find("=") + 1], name)) in lengths
    ]
    used, factors = zip(*found, strict=True)
    return np.array(used), np.array(factors)


def fit_kernel(
    matrix: FloatArray,
    names: Sequence[str],
    z: FloatArray,
    folds: IntArray,
    foreign: BoolArray,
) -> KernelFit:
    """Fit kernel ridge regression to z (n_rows, n_targets), NaN where not measured.

    `folds` (n_rows,) numbers the part that a row is left out with, `foreign` marks GPUs of other
    vendors than NVIDIA.
    """
    used, factors = scales(names, LENGTHS)
    origin = matrix[:, used].mean(axis=0)
    anchors = (matrix[:, used] - origin) * factors
    alike = likeness(looking(anchors), facing(anchors)).astype(np.float64)
    noise = np.where(foreign, _FOREIGN * _NOISE, _NOISE)
    seen = np.isfinite(z)
    duals, out, means = np.zeros(z.shape), np.full(z.shape, np.nan), np.zeros(z.shape[1])
    for target in range(z.shape[1]):
        rows = np.flatnonzero(seen[:, target])
        if len(rows) == 0:
            continue
        means[target] = z[rows, target].mean()
        part = _ridge(
            alike[np.ix_(rows, rows)], noise[rows], z[rows, target] - means[target], folds[rows]
        )
        duals[rows, target] = part.duals
        out[rows, target] = z[rows, target] - part.missed
    strangers = alike * (folds[:, None] != folds)
    kernel = Kernel(
        used,
        origin,
        factors,
        facing(anchors).astype(np.float32),
        duals.astype(np.float32),
        means,
    )
    density = density_of(strangers, seen.astype(np.float64)).astype(np.float64)
    return KernelFit(kernel, out, density)


@dataclass(frozen=True, slots=True)
class _Ridge:
    """Duals of the rows, and what each row's prediction without its fold misses."""

    duals: FloatArray
    missed: FloatArray


def _ridge(alike: FloatArray, noise: FloatArray, z: FloatArray, folds: IntArray) -> _Ridge:
    """Return the mean of two fits: all rows trusted alike, and outliers trusted less."""
    plain = _inverse(alike, noise)
    robust = _inverse(alike, noise * _distrust(plain, z))
    duals = [inverse @ z for inverse in (plain, robust)]
    missed = [
        left_out_residuals(inverse, dual, folds)
        for inverse, dual in zip((plain, robust), duals, strict=True)
    ]
    return _Ridge((duals[0] + duals[1]) / 2, (missed[0] + missed[1]) / 2)


def _inverse(alike: FloatArray, noise: FloatArray) -> FloatArray:
    return np.linalg.inv(alike + np.diag(noise)).astype(np.float64)


def _distrust(inverse: FloatArray, z: FloatArray) -> FloatArray:
    """Return factors >= 1 on the noise: one step of reweighing as under Student's t.

    A row that its neighbours miss by t standard deviations gets (nu + t^2) / (nu + 1), so that
    one run on a slow host does not bend the surface around it.
    """
    own = np.diag(inverse)
    missed: FloatArray = (inverse @ z) / own
    signal = np.median(missed**2 * own) / _MEDIAN_CHI2
    deviation = missed**2 / (signal / own)
    return np.maximum((_FREEDOM + deviation) / (_FREEDOM + 1), 1.0)


def left_out_residuals(inverse: FloatArray, duals: FloatArray, folds: IntArray) -> FloatArray:
    """Return z - prediction for each row of a fit without the row's fold, without refitting.

    With A = (K + noise)^-1 and a = A z, leaving out the block b leaves A_bb^-1 a_b (Rasmussen and
    Williams 2006, equation 5.12, for blocks).
    """
    missed = np.empty(len(duals))
    for fold in np.unique(folds):
        block = np.flatnonzero(folds == fold)
        missed[block] = np.linalg.solve(inverse[np.ix_(block, block)], duals[block])
    return missed
