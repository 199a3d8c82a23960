"""utility.yaml says what a run is worth, or exactly where it does not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.site_settings import UtilitySettings
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shipped_figures_are_those_of_the_specification() -> None:
    assert load_utility() == UtilitySettings(
        value_usd_per_output_token=2e-6,
        slo_miss_usd_per_hour=10.0,
        wait_usd_per_hour=1.0,
        failed_launch_hours=0.1,
        kv_knee=0.85,
        kv_slope=0.3,
        power_usd_per_kwh=None,
        pessimistic=False,
    )


@pytest.mark.parametrize("written", ["4e-6", "4.0e-6", "0.000004", "4E-06"])
def test_a_number_may_be_written_in_any_way(tmp_path: Path, written: str) -> None:
    (tmp_path / "utility.yaml").write_text(
        f"schema: 1\nutility: {{value_usd_per_output_token: {written}}}\n"
    )
    utility = load_utility([tmp_path])
    assert utility.value_usd_per_output_token == pytest.approx(4e-6)
    assert utility.kv_knee == 0.85


def test_every_key_of_the_shipped_file_is_explained_above_it() -> None:
    lines = shipped_path("etc", "utility.yaml").read_text(encoding="utf-8").splitlines()
    unexplained = {
        line.strip()
        for above, line in pairwise(lines)
        if line and not line.lstrip().startswith("#") and not above.lstrip().startswith("#")
    }
    # the head of the file, and what the comment before explains as well
    assert unexplained == {"utility:", "kv_slope: 0.3"}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "schema: 1\nutility: {wait: 3, kv_knee: 1}\n",
            [
                (
                    "2:11: utility: unknown key 'wait': did you mean 'wait_usd_per_hour'; a key "
                    "carries its unit"
                ),
                "2:29: utility.kv_knee: must be a number above 0 of at most 0.99, was '1'",
            ],
            id="a key without its unit, and a knee where the cache is full",
        ),
        pytest.param(
            "schema: 1\nutility: {value_usd_per_output_token: 2 $}\n",
            [("2:39: utility.value_usd_per_output_token: must be a number from 0 to 1, was '2 $'")],
            id="a currency",
        ),
        pytest.param(
            "schema: 1\nvalue_usd_per_output_token: 2e-6\n",
            ["2:1: unknown key 'value_usd_per_output_token'; it must be one of utility"],
            id="a key outside of its section",
        ),
        pytest.param(
            "schema: 1\nutility: {pessimistic: yes}\n",
            [
                (
                    "2:24: utility.pessimistic: must be true or false, was 'yes'; write true "
                    "without quotes"
                )
            ],
            id="a yes of YAML 1.1",
        ),
    ],
)
def test_is_refused_at_its_place(text: str, faults: list[str], tmp_path: Path) -> None:
    path = tmp_path / "utility.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_utility([tmp_path])
    assert [str(fault).removeprefix(f"{path}:") for fault in caught.value.faults] == faults
