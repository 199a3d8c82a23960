"""A plan is read back as it was written, and what it has cost is known whatever was killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.probe.plan_file import (
    Cell,
    Plan,
    note_begin,
    note_end,
    open_cells,
    read_plan,
    spent_gpu_hours,
    write_plan,
)
from omnipilot_slurm.probe.slurm_array import array_scripts

if TYPE_CHECKING:
    from pathlib import Path


def cell(name: str = "one", gpu: str = "h100", n_gpus: int = 2) -> Cell:
    return Cell(
        name=name,
        model="org/m",
        gpu=gpu,
        n_gpus=n_gpus,
        serve=("vllm", "serve", "org/m", "--port", "{port}"),
        bench=("vllm", "bench", "serve"),
        told={"gpu": gpu},
        max_minutes=30.0,
        worth_usd_per_h=0.5,
    )


PLAN = Plan(
    budget_gpu_hours=4.0,
    width_frac=0.05,
    max_rounds=8,
    cells=(cell(), cell("two", n_gpus=1), cell("three", "l40s")),
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    assert read_plan(tmp_path) == PLAN
    assert open_cells(tmp_path, PLAN) == [0, 1, 2]


def test_a_plan_is_not_written_over(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    with pytest.raises(DataError) as caught:
        write_plan(tmp_path, PLAN)
    assert str(caught.value) == f"{tmp_path}: has a plan already"


def test_no_plan_and_a_broken_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_plan(tmp_path)
    path = tmp_path / "plan.json"
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
    for text in ("{", "[]", json.dumps({"schema": 1}), json.dumps({"cells": []})):
        path.write_text(text)
        with pytest.raises(DataError, match=r"must be a plan of schema 1"):
            read_plan(tmp_path)
    path.write_text(json.dumps({"schema": 2}))
    with pytest.raises(DataError, match=r"schema must be 1$"):
        read_plan(tmp_path)


def test_what_ended_costs_what_it_took_and_what_was_killed_its_most(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    assert spent_gpu_hours(tmp_path, PLAN) == 0.0
    note_begin(tmp_path, 0, 100.0)
    assert spent_gpu_hours(tmp_path, PLAN) == 1.0
    note_begin(tmp_path, 0, 900.5)
    note_end(tmp_path, 0, {"why": "narrow", "gpu_hours": 0.25, "begun": "0-900.500"})
    assert spent_gpu_hours(tmp_path, PLAN) == 1.25
    assert open_cells(tmp_path, PLAN) == [1, 2]


def test_each_kind_and_number_of_gpus_has_an_array() -> None:
    scripts = array_scripts(
        PLAN,
        [0, 1, 2],
        folder="/shared/plan",
        run=["omnipilot", "probe", "run", "/shared/a plan"],
        gres_types={"h100": "nvidia_h100"},
        options=["--partition=gpu"],
    )
    assert sorted(scripts) == ["probe-h100-1.sh", "probe-h100-2.sh", "probe-l40s-2.sh"]
    assert scripts["probe-h100-2.sh"] == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=omnipilot-probe\n"
        "#SBATCH --array=0%1\n"
        "#SBATCH --gres=gpu:nvidia_h100:2\n"
        "#SBATCH --time=35\n"
        "#SBATCH --output=/shared/plan/logs/%A_%a.out\n"
        "#SBATCH --partition=gpu\n"
        "exec omnipilot probe run '/shared/a plan' \"$SLURM_ARRAY_TASK_ID\"\n"
    )


def test_done_cells_are_not_asked_for_again() -> None:
    scripts = array_scripts(PLAN, [2], folder="/p", run=["x"], gres_types={})
    assert list(scripts) == ["probe-l40s-2.sh"]
    assert "#SBATCH --array=2%1\n" in scripts["probe-l40s-2.sh"]
