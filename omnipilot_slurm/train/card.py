"""What a model's card says beside the model: the data it was fitted on and how well it fits.

In: a dataset and a fit. Out: plain values for artifact.write. Called by `omnipilot train`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn  # type: ignore[import-untyped]

from omnipilot_slurm import __version__

if TYPE_CHECKING:
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.ensembles import Settings
    from omnipilot_slurm.train.fit import Fit

_SCORE_LEVELS = (0.1, 0.5, 0.8, 0.9)


def about(data: Dataset, fitted: Fit, settings: Settings) -> dict[str, Any]:
    """Return the card's account of data, settings and errors out of fold (by cell)."""
    cells = data.groups["cell"]
    return {
        "data": {
            "hash": data.data_hash,
            "n_rows": len(data),
            "n_cells": len(np.unique(cells)),
            "rows_by_source": dict(sorted(Counter(data.groups["source"].tolist()).items())),
            "rows_by_gpu": dict(sorted(Counter(data.table.labels["gpu"].tolist()).items())),
        },
        "settings": {name: value for name, value in asdict(settings).items() if name != "n_jobs"},
        "made_with": {
            "omnipilot_slurm": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "metrics": {target: _metrics(data, fitted, target) for target in fitted.missed},
    }


def _metrics(data: Dataset, fitted: Fit, target: str) -> dict[str, Any]:
    missed = fitted.missed[target]
    seen = np.isfinite(missed)
    if not seen.any():
        return {"n_rows": 0}
    error = 100 * np.abs(np.expm1(-missed[seen]))
    levels = np.quantile(fitted.scores[target][seen], _SCORE_LEVELS)
    return {
        "n_rows": int(seen.sum()),
        "n_cells": len(np.unique(data.groups["cell"][seen])),
        "mape_percent": round(float(error.mean()), 2),
        "median_percent": round(float(np.median(error)), 2),
        "score_quantiles": {
            str(level): round(float(value), 4)
            for level, value in zip(_SCORE_LEVELS, levels, strict=True)
        },
    }
