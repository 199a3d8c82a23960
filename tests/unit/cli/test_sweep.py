"""A sweep visits what it says and finds every change of the answer between its points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cli.sweep import PRECISION, Sweep, as_yaml, flips, parse_sweep
from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.yaml_words import NUMBER


def sweep(first: float, last: float, n: int, **changes: bool) -> Sweep:
    return Sweep(key="k", first=first, last=last, n=n, **{"is_log": False, **changes})


def test_points_are_evenly_spaced_and_with_log_evenly_in_ratio() -> None:
    assert parse_sweep("a.b=1:5:5") == ("a.b", Sweep(key="a.b", first=1, last=5, n=5, is_log=False))
    assert parse_sweep("a.b=1:5:5")[1].points() == (1, 2, 3, 4, 5)
    assert parse_sweep("a.b=1e-7:1e-4:4:log")[1].points() == (1e-7, 1e-6, 1e-5, 1e-4)


def test_points_of_a_key_with_whole_numbers_are_whole_and_come_once() -> None:
    assert sweep(1, 3, 9, is_whole=True).points() == (1, 2, 3)


@given(
    first=st.floats(1e-9, 1e3),
    ratio=st.floats(1.5, 1e6),
    n=st.integers(2, 40),
    is_log=st.booleans(),
)
def test_points_rise_from_first_to_last_and_can_stand_in_a_yaml_file(
    first: float, ratio: float, n: int, is_log: bool
) -> None:
    points = sweep(first, first * ratio, n, is_log=is_log).points()
    assert list(points) == sorted(points)
    assert points[0] == pytest.approx(first, rel=1e-5)
    assert points[-1] == pytest.approx(first * ratio, rel=1e-5)
    assert all(NUMBER.fullmatch(as_yaml(point)) for point in points)
    assert all(float(as_yaml(point)) == point for point in points)


@given(at=st.floats(0.011, 0.99), is_log=st.booleans())
def test_a_flip_is_found_to_a_thousandth(at: float, is_log: bool) -> None:
    swept = sweep(0.01, 1.0, 5, is_log=is_log)
    (flip,) = flips(swept, swept.points(), [p > at for p in swept.points()], lambda x: x > at)
    assert flip.lo <= at < flip.hi
    assert flip.hi - flip.lo <= PRECISION * flip.hi
    assert (flip.before, flip.after) == (False, True)


def test_every_answer_on_the_way_is_found_also_between_two_points() -> None:
    def answer(value: float) -> int:
        return int(value // 3)

    swept = sweep(0, 10, 2)
    found = flips(swept, (0, 10), [0, 3], answer)
    assert [(flip.before, flip.after) for flip in found] == [(0, 1), (1, 2), (2, 3)]
    assert [round(flip.hi, 1) for flip in found] == [3.0, 6.0, 9.0]


def test_of_whole_numbers_the_two_neighbours_are_named() -> None:
    swept = sweep(1, 256, 4, is_whole=True)
    (flip,) = flips(swept, (1, 256), [False, True], lambda value: value >= 45)
    assert (flip.lo, flip.hi) == (44, 45)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k", "--sweep must be KEY=FROM:TO:N or KEY=FROM:TO:N:log, was 'k'"),
        ("k=1:2", "--sweep must be KEY=FROM:TO:N or KEY=FROM:TO:N:log, was 'k=1:2'"),
        ("k=1:x:3", "--sweep k=1:x:3: must have numbers between the colons, was 'x'"),
        ("k=1:inf:3", "--sweep k=1:inf:3: must have numbers between the colons, was 'inf'"),
        ("k=1:2:1", "--sweep k=1:2:1: N must be a whole number from 2 to 200, was '1'"),
        ("k=1:2:2.5", "--sweep k=1:2:2.5: N must be a whole number from 2 to 200, was '2.5'"),
        ("k=5:1:3", "--sweep k=5:1:3: FROM must be below TO, was '5'"),
        ("k=0:1:3:log", "--sweep k=0:1:3:log: FROM must be above 0 with `log`, was '0'"),
    ],
)
def test_a_sweep_that_cannot_be_read_says_why(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sweep(text)
    assert str(caught.value) == said
