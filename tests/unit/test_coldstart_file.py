"""coldstart.yaml: what a site adds lies over what is shipped, key by key, and is read strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.coldstart_file import load_coldstart
from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from pathlib import Path

ABOVE_0 = "must be a number above 0 of at most 10000"
IN_ORDER = "must be [lo, mid, hi] in rising order"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "coldstart.yaml"
    path.write_text("\n  ".join(("schema: 1\ncold_start:", *lines)) + "\n")
    return path


def test_a_site_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, "disk_gib_s: [1, 2, 4]", "generations: {held: {graphs_s: [1, 1, 1]}}")
    shipped, changed = load_coldstart(), load_coldstart([tmp_path])
    assert changed.disk_gib_s == Interval(lo=1, mid=2, hi=4)
    assert changed.generations["held"].graphs_s == Interval(lo=1, mid=1, hi=1)
    assert changed.generations["held"].compile_s == shipped.generations["held"].compile_s
    assert changed.process_s == shipped.process_s


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        pytest.param(
            ("ready_s: [3, 2, 4]", "generations: {v1: {graphs_s: [1, 2]}}"),
            [
                f"3:12: cold_start.ready_s: {IN_ORDER}, was [3.0, 2.0, 4.0]",
                f"4:32: cold_start.generations.v1.graphs_s: {IN_ORDER}, was [1.0, 2.0]",
            ],
            id="out of order, and one missing",
        ),
        pytest.param(
            ("disk_gib_s: [0, 1, 2]", "process_s: [-1, 1, 2]"),
            [
                f"3:16: cold_start.disk_gib_s[0]: {ABOVE_0}, was '0'",
                "4:15: cold_start.process_s[0]: must be a number from 0 to 100000, was '-1'",
            ],
            id="a disk that never ends, and time before the start",
        ),
        pytest.param(
            ("generations: {v2: {graphs_s: [1, 2, 3]}}",),
            [
                "3:17: cold_start.generations: unknown key 'v2'; it must be one of v0, v1, held",
            ],
            id="a generation that does not exist",
        ),
    ],
)
def test_is_refused_at_its_place(lines: tuple[str, ...], faults: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(ConfigError) as caught:
        load_coldstart([tmp_path])
    assert [str(fault).removeprefix(f"{path}:") for fault in caught.value.faults] == faults
