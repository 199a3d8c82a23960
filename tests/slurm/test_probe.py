"""A plan of benchmarks runs as a job array on a real Slurm, with the stand-in for vLLM."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import omnipilot_slurm
from omnipilot_slurm.probe.plan_file import Cell, Plan, ended, open_cells, write_plan
from omnipilot_slurm.probe.slurm_array import array_scripts
from omnipilot_slurm.store.benchmarks import benchmarks
from omnipilot_slurm.store.database import open_for_reading

pytestmark = pytest.mark.slurm

MODEL = "Qwen/Qwen2.5-7B-Instruct"


def cell(n_gpus: int, concurrency: int) -> Cell:
    return Cell(
        name=f"{MODEL} at {concurrency}",
        model=MODEL,
        gpu="h200",
        n_gpus=n_gpus,
        serve=("vllm", "serve", MODEL, "--port", "{port}", "--tensor-parallel-size", str(n_gpus)),
        bench=(
            "vllm", "bench", "serve", "--model", MODEL, "--port", "{port}",
            "--num-prompts", str(8 * concurrency), "--max-concurrency", str(concurrency),
            "--random-input-len", "64", "--random-output-len", "32",
            "--save-result", "--result-filename", "result.json",
        ),
        told={"gpu": "h200", "n_gpus": str(n_gpus), "tensor_parallel": str(n_gpus)},
        max_minutes=3.0,
        worth_usd_per_h=0.1,
    )  # fmt: skip


def test_a_plan_runs_as_an_array_and_its_rows_are_kept(slurm, tmp_path):
    cells = (cell(2, 2), cell(2, 4))
    plan = Plan(budget_gpu_hours=1.0, width_frac=0.5, max_rounds=3, cells=cells)
    folder, store = tmp_path / "plan", tmp_path / "o.db"
    write_plan(folder, plan)
    run = [sys.executable, "-m", "omnipilot_slurm", "probe", "run", str(folder)]
    scripts = array_scripts(
        plan,
        open_cells(folder, plan),
        folder=str(folder),
        run=[*run, "--store", str(store)],
        gres_types={},
        options=["--partition=h200"],
    )
    (script,) = scripts.values()
    environment = {
        "OMNIPILOT_STAND_IN": "serve",
        "OMNIPILOT_STAND_IN_TTFT_MS": "20",
        "PYTHONPATH": str(Path(omnipilot_slurm.__file__).parents[1]),
    }
    # the clone and its interpreter may lie where no other account reads
    answer = slurm.submit([], script=script, user="root", env=environment)
    assert answer.job_id is not None, answer.stderr
    deadline = time.monotonic() + 120
    while open_cells(folder, plan) and time.monotonic() < deadline:
        time.sleep(0.2)
    logs = "".join(path.read_text() for path in (folder / "logs").iterdir())
    assert sorted(ended(folder)) == [0, 1], logs
    assert open_cells(folder, plan) == []
    with closing(open_for_reading(store)) as connection:
        runs = list(benchmarks(connection))
    assert {(run.setup.arm.gpu, run.setup.arm.tensor_parallel, run.load.concurrency)
            for run in runs} == {("h200", 2, 2.0), ("h200", 2, 4.0)}  # fmt: skip
