"""priors.yaml says what is assumed, or exactly where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.priors_file import load_priors

if TYPE_CHECKING:
    from pathlib import Path


def faults_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "priors.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_priors([tmp_path])
    return [str(fault).removeprefix(f"{path}:") for fault in caught.value.faults]


def test_the_shipped_assumptions_are_those_of_the_specification() -> None:
    assumed = load_priors()
    assert assumed.launch.success_by_gpus == {1: 0.98, 2: 0.96, 4: 0.90, 8: 0.85, 16: 0.80}
    assert assumed.wait.hours_by_gpus == {1: 0.1, 2: 0.2, 4: 0.6, 8: 1.5, 16: 3.0}
    launch = assumed.launch
    assert (launch.prior_launches_lo, launch.prior_launches, launch.prior_launches_hi) == (
        5.0,
        20.0,
        100.0,
    )


def test_a_site_changes_single_sizes(tmp_path: Path) -> None:
    (tmp_path / "priors.yaml").write_text(
        "schema: 1\nlaunch: {success_by_gpus: {4: 0.5, 32: 0.4}}\n"
    )
    assumed = load_priors([tmp_path])
    assert assumed.launch.success_by_gpus == {
        1: 0.98, 2: 0.96, 4: 0.5, 8: 0.85, 16: 0.80, 32: 0.4,
    }  # fmt: skip
    assert assumed.wait == load_priors().wait


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "schema: 1\nlaunch: {success_by_gpus: {4: 1.0, four: 0.5}}\n",
            [
                (
                    "2:31: launch.success_by_gpus.4: must be a number above 0 of at most 0.999, "
                    "was '1.0'"
                ),
                (
                    "2:36: a key of launch.success_by_gpus: must be a whole number from 1 to "
                    "100000, was 'four'"
                ),
            ],
            id="certainty, and a number in words",
        ),
        pytest.param(
            "schema: 1\nwait: {expected_hours_by_gpus: {1: 4:30}}\n",
            [
                (
                    "2:36: wait.expected_hours_by_gpus.1: must be a number above 0 of at most "
                    "10000, was '4:30'; YAML 1.1 reads it as a number in base 60; write the "
                    "number in decimal"
                )
            ],
            id="hours and minutes",
        ),
        pytest.param(
            "schema: 1\nlaunch: {prior_launches: 200}\n",
            [
                (
                    "2:26: launch.prior_launches: must be from prior_launches_lo (5) to "
                    "prior_launches_hi (100), was 200"
                )
            ],
            id="an m outside of its own bounds",
        ),
        pytest.param(
            "schema: 1\nwait: {history: 30}\n",
            [
                (
                    "2:8: wait: unknown key 'history': did you mean 'history_days'; a key carries "
                    "its unit"
                )
            ],
            id="a key without its unit",
        ),
    ],
)
def test_is_refused_at_its_place(text: str, faults: list[str], tmp_path: Path) -> None:
    assert faults_of(tmp_path, text) == faults


def test_earlier_servers_may_be_left_out(tmp_path: Path) -> None:
    assert load_priors().load.history_days == 90.0
    (tmp_path / "priors.yaml").write_text("schema: 1\nload: {history_days: 0}\n")
    assert load_priors([tmp_path]).load.history_days == 0.0
