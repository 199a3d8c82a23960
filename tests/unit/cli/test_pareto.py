"""The picture of a decision's arms: the right marks at the right places, never wider than asked."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cli.pareto import FRONT, LEGEND, OTHER, OWN, PROPOSED, Point, picture, points
from omnipilot_slurm.cli.pareto_png import draw
from omnipilot_slurm.errors import OmnipilotError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def arm(gpu: str, usd: float | None, rate: float | None, **changes: Any) -> dict[str, Any]:
    target = {"lo": None, "mid": rate, "hi": None, "unit": "tok/s"}
    return {
        "partition": gpu,
        "gpu": gpu,
        "n_gpus": 1,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": 1,
        "starts": "starts",
        "blocked": None,
        "usd_per_hour": usd,
        "predictions": None if rate is None else {"output_tok_s": target},
        **changes,
    }


CHEAP, FAST, DOMINATED = arm("a100", 1.5, 400.0), arm("h100", 3.0, 900.0), arm("v100", 2.0, 300.0)


def marks(*arms: dict[str, Any], asked: Any = None, chosen: Any = None) -> dict[str, str]:
    found = points({"arms": list(arms), "asked": asked, "chosen": chosen})
    return {point.label.split(" ")[1].rstrip(","): point.mark for point in found}


def test_arms_that_nothing_beats_are_the_front() -> None:
    assert marks(CHEAP, FAST, DOMINATED) == {"a100": FRONT, "h100": FRONT, "v100": OTHER}


def test_ones_own_and_the_proposed_arm_are_marked_wherever_they_lie() -> None:
    found = marks(CHEAP, FAST, DOMINATED, asked=DOMINATED, chosen=FAST)
    assert found == {"a100": FRONT, "h100": PROPOSED, "v100": OWN}


def test_an_asked_arm_that_is_not_listed_is_drawn_too() -> None:
    assert marks(CHEAP, FAST, asked=DOMINATED)["v100"] == OWN


def test_arms_that_may_not_run_or_are_not_known_are_left_out() -> None:
    failing = arm("t4", 1.0, 999.0, starts="fails")
    blocked = arm("l40s", 1.0, 999.0, blocked={"code": "qos", "text": "the QOS forbids it"})
    assert marks(CHEAP, failing, blocked, arm("mi300x", None, 9.0), arm("b200", 9.0, None)) == {
        "a100": FRONT
    }


def test_arms_that_are_alike_do_not_beat_each_other() -> None:
    assert marks(CHEAP, arm("twin", 1.5, 400.0)) == {"a100": FRONT, "twin": FRONT}


def test_the_picture_in_ascii() -> None:
    shown = points({"arms": [CHEAP, FAST, DOMINATED], "asked": DOMINATED, "chosen": FAST})
    assert picture(shown, width=60, plain=True) == [
        " output tok/s",
        "    900 |                                          1x h100 X",
        "        |",
        "        |",
        "        |",
        "        |",
        "        |",
        "        |",
        "        |",
        "    420 |                         * 1x a100",
        "        |",
        "        |                                 O 1x v100",
        "        |",
        "        |",
        "        |",
        "        |",
        "        |",
        "      0 +---------------------------------------------------",
        "         0                   $ per hour                 3.00",
        "         O yours   X proposed   * on the front",
    ]


def test_one_arm_or_a_narrow_terminal_have_no_picture() -> None:
    shown = points({"arms": [CHEAP, FAST], "asked": None, "chosen": None})
    assert picture(shown[:1], width=80, plain=True) == []
    assert picture(shown, width=59, plain=True) == []
    assert picture((), width=80, plain=True) == []


ARMS = st.builds(
    Point,
    label=st.sampled_from(["1x h100, TP 1", "16x a-gpu-with-a-long-name, TP 16"]),
    usd_per_hour=st.floats(0, 1e4),
    output_tok_s=st.floats(1e-3, 1e6),
    lo=st.none(),
    hi=st.none(),
    mark=st.sampled_from(list(LEGEND)),
)


@given(
    shown=st.lists(ARMS, min_size=2, max_size=40), width=st.integers(60, 200), plain=st.booleans()
)
def test_a_picture_is_never_wider_than_the_terminal(
    shown: list[Point], width: int, plain: bool
) -> None:
    lines = picture(shown, width=width, plain=plain)
    assert len(lines) == 20
    assert max(map(len, lines)) <= width
    assert plain == all(line.isascii() for line in lines)


# the PNG


class FakeAxes:
    """Notes what was drawn, as matplotlib's axes would draw it."""

    def __init__(self) -> None:
        self.drawn: dict[str, Any] = {}

    def errorbar(self, x: list[float], y: list[float], *, yerr: Any, label: str, **_: Any) -> None:
        self.drawn[label] = (x, y, yerr)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> FakeAxes:
    made = FakeAxes()

    class Figure:
        def __init__(self, **_: Any) -> None:
            pass

        def add_subplot(self) -> FakeAxes:
            return made

        def savefig(self, path: Path, **_: Any) -> None:
            path.write_bytes(b"PNG")

    module = ModuleType("matplotlib.figure")
    module.Figure = Figure
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    return made


SHOWN = (
    Point(label="a", usd_per_hour=1, output_tok_s=10, lo=8, hi=15, mark=OWN),
    Point(label="b", usd_per_hour=2, output_tok_s=20, lo=None, hi=None, mark=OTHER),
)


def test_a_png_has_each_kind_of_arm_with_its_bounds(axes: FakeAxes, tmp_path: Path) -> None:
    draw(SHOWN, tmp_path / "p.png", title="t")
    assert axes.drawn == {
        "yours": ([1], [10], [[2], [5]]),
        "others": ([2], [20], [[0], [0]]),
    }
    assert (tmp_path / "p.png").exists()


def test_matplotlib_itself_writes_a_png(tmp_path: Path) -> None:
    draw(SHOWN, tmp_path / "p.png", title="t")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_png_that_cannot_be_written_says_why(axes: FakeAxes, tmp_path: Path) -> None:
    path = tmp_path / "none" / "p.png"
    with pytest.raises(OmnipilotError) as caught:
        draw(SHOWN, path, title="t")
    assert str(caught.value) == f"{path}: cannot be written: No such file or directory"


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as caught:
        draw(SHOWN, tmp_path / "p.png", title="t")
    assert str(caught.value) == "--png needs matplotlib, which is not installed here"
    assert caught.value.hint == "pip install 'omnipilot_slurm[plots]'"


def test_a_decision_without_predictions_has_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        draw((), tmp_path / "p.png", title="t")
    said = "there is nothing to draw: no arm of this decision has a prediction"
    assert str(caught.value) == said
