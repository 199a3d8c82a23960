"""The picture of a decision's arms as a PNG, for reports and pages.

In: Points and a path. Out: a file. Called by `omnipilot explain --png`. matplotlib is an extra, so
it is loaded when a file is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.cli.pareto import FRONT, LEGEND, OTHER, OWN, PROPOSED
from omnipilot_slurm.errors import OmnipilotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from omnipilot_slurm.cli.pareto import Point

_COLOURS: Final = {OWN: "tab:orange", PROPOSED: "tab:green", FRONT: "tab:blue", OTHER: "silver"}
_DPI: Final = 150


def draw(shown: Sequence[Point], path: Path, *, title: str) -> None:
    """Write the arms with their 80 % bounds into a PNG, cost per hour against output tok/s.

    Raises: UsageError without matplotlib or without arms; OmnipilotError where the file cannot be
    written.
    """
    if not shown:
        raise UsageError("there is nothing to draw: no arm of this decision has a prediction")
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError(
            "--png needs matplotlib, which is not installed here",
            hint="pip install 'omnipilot_slurm[plots]'",
        ) from error
    figure = figures.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    # what matters most is drawn last, over the others
    for mark, meaning in reversed(LEGEND.items()):
        ours = [point for point in shown if point.mark == mark]
        if ours:
            _plot(axes, ours, mark, meaning)
    axes.set_xlabel("$ per hour of the arm's GPUs")
    axes.set_ylabel("output tok/s, with 80 % bounds")
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend()
    try:
        figure.savefig(path, format="png", dpi=_DPI)
    except OSError as error:
        raise OmnipilotError(f"{path}: cannot be written: {error.strerror}") from error


def _plot(axes: Any, ours: Sequence[Point], mark: str, meaning: str) -> None:
    rates = [point.output_tok_s for point in ours]
    below = [rate - _or(point.lo, rate) for point, rate in zip(ours, rates, strict=True)]
    above = [_or(point.hi, rate) - rate for point, rate in zip(ours, rates, strict=True)]
    axes.errorbar(
        [point.usd_per_hour for point in ours],
        rates,
        yerr=[below, above],
        fmt="o",
        color=_COLOURS[mark],
        label=meaning,
    )
    for point in ours if mark != OTHER else ():
        at = (point.usd_per_hour, point.output_tok_s)
        axes.annotate(
            point.label, at, textcoords="offset points", xytext=(5, 4), fontsize="x-small"
        )


def _or(bound: float | None, rate: float) -> float:
    return rate if bound is None else bound
