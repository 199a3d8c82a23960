"""The arms of a decision as a picture: what each costs an hour against what it delivers.

In: a decision as plain values (decide/as_json.py). Out: Points, and lines of text that fit a
terminal. Called by `omnipilot explain`, and by pareto_png for its points.

An arm is on the front where no other one that may run is both cheaper and faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.cli.decision_text import described, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = Any
MIN_WIDTH: Final = 60
_HEIGHT: Final = 16
_LABELS: Final = 9
OWN, PROPOSED, FRONT, OTHER = "O", "X", "*", "."
LEGEND: Final = {
    OWN: "yours",
    PROPOSED: "proposed",
    FRONT: "on the front",
    OTHER: "others",
}
#: where the axes meet, the two axes
_PLAIN, _DRAWN = ("+", "-", "|"), ("└", "─", "│")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One arm that may run: $ per hour of its GPUs, predicted output tok/s with its bounds.

    `lo` and `hi` are None for an estimate that is not calibrated. `mark` is one of LEGEND.
    """

    label: str
    usd_per_hour: float
    output_tok_s: float
    lo: float | None
    hi: float | None
    mark: str


def points(record: Mapping[str, Json]) -> tuple[Point, ...]:
    """Return the arms of which price and throughput are known and that do not fail."""
    drawn = [arm for arm in record["arms"] if _is_drawn(arm)]
    asked = record["asked"]
    if asked is not None and _is_drawn(asked) and place(asked) not in map(place, drawn):
        drawn.append(asked)
    return tuple(_point(arm, drawn, record) for arm in drawn)


def _is_drawn(arm: Mapping[str, Json]) -> bool:
    return (
        arm["starts"] != "fails"
        and arm["blocked"] is None
        and arm["usd_per_hour"] is not None
        and "output_tok_s" in (arm["predictions"] or {})
    )


def _point(
    arm: Mapping[str, Json], drawn: Sequence[Mapping[str, Json]], record: Mapping[str, Json]
) -> Point:
    rate = arm["predictions"]["output_tok_s"]
    here = place(arm)
    if record["chosen"] is not None and here == place(record["chosen"]):
        mark = PROPOSED
    elif record["asked"] is not None and here == place(record["asked"]):
        mark = OWN
    else:
        mark = OTHER if any(_beats(other, arm) for other in drawn) else FRONT
    return Point(
        label=described(arm),
        usd_per_hour=arm["usd_per_hour"],
        output_tok_s=rate["mid"],
        lo=rate["lo"],
        hi=rate["hi"],
        mark=mark,
    )


def _beats(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    """Return whether one arm is at most as dear and at least as fast, and not the same in both."""
    dearer = one["usd_per_hour"] - other["usd_per_hour"]
    faster = one["predictions"]["output_tok_s"]["mid"] - other["predictions"]["output_tok_s"]["mid"]
    return dearer <= 0 <= faster and (dearer, faster) != (0, 0)


def picture(shown: Sequence[Point], *, width: int, plain: bool) -> list[str]:
    """Return lines of at most `width` columns; none where there are fewer than two arms to show.

    `plain`: ASCII alone.
    """
    if len(shown) < 2 or width < MIN_WIDTH:  # noqa: PLR2004 (one point is no picture)
        return []
    corner, level, upright = _PLAIN if plain else _DRAWN
    top = max(point.output_tok_s for point in shown)
    right = max(point.usd_per_hour for point in shown)
    n_columns = width - _LABELS
    rows = [[" "] * n_columns for _ in range(_HEIGHT)]
    # the marks that matter most come last, on top of others at the same place
    for point in sorted(shown, key=lambda point: -list(LEGEND).index(point.mark)):
        x = round(point.usd_per_hour / right * (n_columns - 1)) if right else 0
        y = round((1 - point.output_tok_s / top) * (_HEIGHT - 1))
        rows[y][x] = point.mark
    for point in shown:
        if point.mark != OTHER:
            _write(rows, point, top, right)
    middle = _HEIGHT // 2
    names = {0: f"{top:,.0f}", middle: f"{top * (1 - middle / (_HEIGHT - 1)):,.0f}"}
    lines = [f"{'output tok/s':>{_LABELS + 4}}"]
    lines += [
        f"{names.get(y, ''):>{_LABELS - 2}} {upright}{''.join(row)}".rstrip()
        for y, row in enumerate(rows)
    ]
    lines.append(f"{'0':>{_LABELS - 2}} {corner}{level * n_columns}")
    ends = f"0{'$ per hour':^{n_columns - 2}}"
    price = f"{right:,.2f}"
    lines.append(f"{' ' * _LABELS}{ends[: n_columns - len(price)]}{price}")
    kinds = {point.mark for point in shown}
    legend = "   ".join(f"{mark} {text}" for mark, text in LEGEND.items() if mark in kinds)
    return [line[:width] for line in (*lines, f"{' ' * _LABELS}{legend}")]


def _write(rows: list[list[str]], point: Point, top: float, right: float) -> None:
    """Write an arm's label beside its mark, on the side that is free, if one is."""
    n_columns = len(rows[0])
    x = round(point.usd_per_hour / right * (n_columns - 1)) if right else 0
    y = round((1 - point.output_tok_s / top) * (_HEIGHT - 1))
    label = point.label.partition(",")[0]
    for start in (x + 2, x - 1 - len(label)):
        end = start + len(label)
        if start >= 0 and end <= n_columns and not "".join(rows[y][start - 1 : end + 1]).strip(" "):
            rows[y][start:end] = label
            return
