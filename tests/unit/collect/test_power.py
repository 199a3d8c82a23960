"""A power sample counts only where its whole interval is steady; too few are no measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.collect.power import PowerSample, mean_power, sample_power

if TYPE_CHECKING:
    from pathlib import Path


def test_samples_that_reach_outside_do_not_count() -> None:
    samples = [PowerSample(t, t + 1, power) for t, power in ((9.5, 9e9), (10, 300), (11, 330),
               (12, 360), (19.5, 9e9))]  # fmt: skip
    assert mean_power(samples, 10, 20) == (330.0, 3)


def test_fewer_than_three_are_missing_and_not_zero() -> None:
    assert mean_power([PowerSample(1, 2, 300), PowerSample(2, 3, 300)], 0, 9) == (None, 2)
    assert mean_power([], 0, 9) == (None, 0)


def fake_smi(tmp_path: Path, body: str) -> str:
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_power_of_all_gpus_is_added_up(tmp_path: Path) -> None:
    found = sample_power(fake_smi(tmp_path, "echo 310.5; echo 300.25"))
    assert found is not None
    assert found.power_w == 610.75
    assert found.end - found.start == 1.0


def test_only_the_gpus_of_the_job_are_asked(tmp_path: Path) -> None:
    asked = 'test "$1 $2" = "-i 2,3" && echo 100'
    found = sample_power(fake_smi(tmp_path, asked), gpus="2,3")
    assert found is not None
    assert found.power_w == 100.0


def test_without_a_driver_or_a_figure_power_is_missing(tmp_path: Path) -> None:
    assert sample_power(str(tmp_path / "none")) is None
    assert sample_power(fake_smi(tmp_path, "echo '[N/A]'")) is None
    assert sample_power(fake_smi(tmp_path, "exit 9")) is None
    assert sample_power(fake_smi(tmp_path, "true")) is None
