"""The pictures of the report on the model: points in, files out.

Called by `omnipilot report model`. matplotlib is an extra, so it is loaded when a Pen is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from omnipilot_slurm.errors import OmnipilotError, UsageError
from omnipilot_slurm.predict.model import LEARNED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from omnipilot_slurm.train.curves import AxisError, CurvePoint
    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.evaluate import Held

_DPI: Final = 80
#: text stays text and files do not change from run to run
_STYLE: Final = {"svg.fonttype": "none", "svg.hashsalt": "omnipilot", "font.size": 8}
_NAMES: Final = {
    "output_tok_s": "output tok/s",
    "ttft_ms": "TTFT p50, ms",
    "tpot_ms": "TPOT p50, ms",
    "power_w": "power, W",
}


class Pen:
    """Makes figures and writes them into one folder; `written` are the files so far."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Raise UsageError without matplotlib."""
        try:
            self._matplotlib: Any = importlib.import_module("matplotlib")
            self._figures: Any = importlib.import_module("matplotlib.figure")
        except ImportError as error:
            raise UsageError(
                "report model needs matplotlib, which is not installed here",
                hint="pip install 'omnipilot_slurm[plots]'",
            ) from error
        self._folder, self._kind = folder, kind
        self.written: list[Path] = []

    def figure(self, width: float, height: float) -> Any:
        """Return an empty figure of a size in inches."""
        return self._figures.Figure(figsize=(width, height), layout="constrained")

    def write(self, figure: Any, name: str) -> None:
        """Write a figure.

        Raises: OmnipilotError where it cannot be written.
        """
        path = self._folder / f"{name}.{self._kind}"
        metadata = {"Date": None} if self._kind == "svg" else {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._matplotlib.rc_context(_STYLE):
                figure.savefig(path, format=self._kind, dpi=_DPI, metadata=metadata)
        except OSError as error:
            raise OmnipilotError(f"{path}: cannot be written: {error.strerror}") from error
        self.written.append(path)


def draw_reliability(
    pen: Pen,
    lines: Mapping[tuple[str, str], Sequence[float]],
    levels: Sequence[float],
) -> None:
    """Draw the share observed inside against the nominal one, a panel a target, a line a GPU."""
    targets = list(dict.fromkeys(target for target, _ in lines))
    figure = pen.figure(9, 2.8)
    for i, target in enumerate(targets):
        axes = figure.add_subplot(1, len(targets), i + 1)
        axes.plot([0, 1], [0, 1], color="silver", linewidth=1)
        for (of, group), shares in lines.items():
            if of == target:
                width = 2 if group == "all" else 0.8
                axes.plot(levels, shares, linewidth=width, label=group)
        axes.set_title(_NAMES[target])
        axes.set_xlabel("nominal")
        axes.legend(fontsize=5, loc="lower right")
    figure.get_axes()[0].set_ylabel("observed, by cell")
    pen.write(figure, "reliability")


def draw_parity(pen: Pen, data: Dataset, held: Held) -> None:
    """Draw predicted against measured values out of fold, on logarithmic axes."""
    targets = [target for target in LEARNED if np.isfinite(data.measured[target]).any()]
    figure = pen.figure(9, 2.6)
    for i, target in enumerate(targets):
        measured, predicted = data.measured[target], held.targets[target].mid
        seen = np.isfinite(measured) & np.isfinite(predicted)
        axes = figure.add_subplot(1, len(targets), i + 1)
        axes.set_title(_NAMES[target])
        axes.set_xlabel("measured")
        axes.scatter(measured[seen], predicted[seen], s=2, alpha=0.4, linewidths=0, rasterized=True)
        ends = [float(measured[seen].min()), float(measured[seen].max())]
        axes.plot(ends, ends, color="silver", linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
    figure.get_axes()[0].set_ylabel("predicted out of fold")
    pen.write(figure, "parity")


def draw_errors(pen: Pen, errors: Mapping[str, Sequence[AxisError]]) -> None:
    """Draw the median and the mean error of output tok/s by value, a panel an axis."""
    found = errors["output_tok_s"]
    axes_of = list(dict.fromkeys(each.axis for each in found))
    n_columns = 4
    figure = pen.figure(10, 2.6 * -(-len(axes_of) // n_columns))
    for i, axis in enumerate(axes_of):
        some = [each for each in found if each.axis == axis]
        axes = figure.add_subplot(-(-len(axes_of) // n_columns), n_columns, i + 1)
        places = np.arange(len(some))
        axes.barh(places, [each.mape for each in some], color="lightsteelblue", label="mean")
        axes.barh(places, [each.median for each in some], color="tab:blue", label="median")
        axes.set_yticks(places, [f"{each.value} ({each.n_rows})" for each in some], fontsize=5)
        axes.set_title(axis)
        axes.set_xlabel("error, %")
    figure.get_axes()[0].legend(fontsize=6)
    pen.write(figure, "error-by-axis")


def draw_curve(pen: Pen, points: Sequence[CurvePoint]) -> None:
    """Draw mean and median error against the share of cells fitted on, on logarithmic axes."""
    figure = pen.figure(6, 2.8)
    for i, name in enumerate(("mape", "median")):
        axes = figure.add_subplot(1, 2, i + 1)
        for target in LEARNED:
            some = [point for point in points if point.target == target]
            if some:
                sizes = [100 * point.share for point in some]
                values = [getattr(point, name) for point in some]
                axes.plot(sizes, values, marker=".", label=_NAMES[target])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title("mean error, %" if name == "mape" else "median error, %")
        axes.set_xlabel("cells fitted on, % of those not held out")
    figure.get_axes()[0].legend(fontsize=6)
    pen.write(figure, "learning-curve")
