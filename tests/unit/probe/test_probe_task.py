"""A cell is measured on a real server until it is narrow, once, within the budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.probe.plan_file import Cell, Plan, ended, read_plan, write_plan
from omnipilot_slurm.probe.task import run_cell
from omnipilot_slurm.sandbox import vllm_stand_in
from omnipilot_slurm.store.benchmarks import benchmarks
from omnipilot_slurm.store.database import open_for_reading

MODEL = "Qwen/Qwen2.5-7B-Instruct"
VLLM = (sys.executable, str(Path(vllm_stand_in.__file__)))
CELL = Cell(
    name="a cell",
    model=MODEL,
    gpu="h100",
    n_gpus=1,
    serve=(*VLLM, "serve", MODEL, "--port", "{port}"),
    bench=(
        *VLLM, "bench", "serve", "--model", MODEL, "--port", "{port}", "--num-prompts", "16",
        "--max-concurrency", "4", "--random-input-len", "64", "--random-output-len", "32",
        "--save-result", "--result-filename", "r.json",
    ),
    told={"gpu": "h100"},
    max_minutes=2.0,
    worth_usd_per_h=0.1,
)  # fmt: skip
PLAN = Plan(budget_gpu_hours=1.0, width_frac=0.5, max_rounds=4, cells=(CELL,))


@pytest.fixture(autouse=True)
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records").mkdir()
    for name, value in {
        "OMNIPILOT_RECORDS": str(tmp_path / "records"),
        "OMNIPILOT_STAND_IN": "serve",
        "OMNIPILOT_STAND_IN_TTFT_MS": "20",
    }.items():
        monkeypatch.setenv(name, value)


def written(folder: Path, plan: Plan = PLAN) -> Path:
    write_plan(folder / "plan", plan)
    return folder / "plan"


def n_servers(tmp_path: Path) -> int:
    argv = [json.loads(path.read_text())["argv"] for path in (tmp_path / "records").glob("*.json")]
    return sum("serve" in words and "bench" not in words for words in argv)


def test_a_cell_is_measured_kept_and_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store = written(tmp_path), tmp_path / "o.db"
    words = ["probe", "run", str(folder), "0", "--store", str(store)]
    assert main(words) == 0
    assert "output tok/s +- " in capsys.readouterr().out
    done = ended(folder)[0]
    # narrow enough after the least number of rounds, the warm-up not among them
    assert len(done["output_tok_s"]) == 3
    assert 0 < done["gpu_hours"] < 0.05
    with closing(open_for_reading(store)) as connection:
        runs = list(benchmarks(connection))
    assert len(runs) == 3
    assert {(run.setup.model, run.setup.arm.gpu, run.load.concurrency) for run in runs} == {
        (MODEL, "h100", 4.0)
    }
    assert main(words) == 0
    assert "it was done before" in capsys.readouterr().out
    assert n_servers(tmp_path) == 1


def test_the_server_and_all_that_it_started_are_ended(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([*sys.argv[1:]])"
    cell = replace(CELL, serve=(sys.executable, "-c", child, *CELL.serve))
    folder = written(tmp_path, replace(PLAN, cells=(cell,)))
    found = run_cell(folder, 0, lambda *_: None, lambda _: None)
    assert len(found.output_tok_s) == 3
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in commands.stdout
    assert f"serve {MODEL} --port" not in commands.stdout


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    cell = replace(CELL, serve=(sys.executable, "-c", "raise SystemExit(7)"))
    folder = written(tmp_path, replace(PLAN, cells=(cell,)))
    assert run_cell(folder, 0, lambda *_: None, print).why == "the server ended with 7"
    assert ended(folder)[0]["why"] == "the server ended with 7"


def test_a_client_that_fails_is_told(tmp_path: Path) -> None:
    cell = replace(CELL, bench=(sys.executable, "-c", "raise SystemExit(1)"))
    folder = written(tmp_path, replace(PLAN, cells=(cell,)))
    assert run_cell(folder, 0, lambda *_: None, print).why == "a round failed or was out of time"


def test_scatter_ends_at_the_last_round(tmp_path: Path) -> None:
    folder = written(tmp_path, replace(PLAN, width_frac=0.0, max_rounds=3))
    found = run_cell(folder, 0, lambda *_: None, print)
    assert (found.why, len(found.output_tok_s)) == ("3 rounds did not make it narrow", 3)


def test_a_cell_beyond_the_budget_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, replace(PLAN, budget_gpu_hours=0.01))
    assert main(["probe", "run", str(folder), "0", "--store", str(tmp_path / "o.db")]) == 4
    assert capsys.readouterr().out == ("cell 0: 0.01 GPU-hours are left, it may take 0.03\n")
    assert ended(folder) == {}
    assert n_servers(tmp_path) == 0


def test_a_killed_task_is_run_again_and_has_cost_its_most(tmp_path: Path) -> None:
    folder = written(tmp_path)
    words = ["probe", "run", str(folder), "0", "--store", str(tmp_path / "o.db")]
    process = subprocess.Popen(
        [sys.executable, "-m", "omnipilot_slurm", *words], start_new_session=True
    )
    while not list((folder / "begun").iterdir()):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ended(folder) == {}
    assert main(words) == 0
    done = ended(folder)[0]
    assert done["begun"] in {path.name for path in (folder / "begun").iterdir()}
    assert len(list((folder / "begun").iterdir())) == 2
    # Slurm ends what a killed task leaves behind; here the test does
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_ours = str(tmp_path) in Path(path.parent, "environ").read_text() and (
                b"serve" in path.read_bytes()
            )
        except OSError:
            continue
        if is_ours and int(path.parent.name) != os.getpid():
            os.kill(int(path.parent.name), signal.SIGKILL)


def test_a_cell_that_is_not_of_the_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        run_cell(written(tmp_path), 7, lambda *_: None, print)
    assert str(caught.value) == "cell must be 0 to 0, was 7"


def test_planning_ranks_arms_and_writes_their_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plan"
    (tmp_path / "etc").mkdir()
    gpu_map = {"gres": {"h100_sxm": "h100"}}
    settings = {"schema": 1, "daemon": {"model": None}, "cluster": {"gpu_map": gpu_map}}
    (tmp_path / "etc" / "omnipilot.yaml").write_text(json.dumps(settings))
    words = [
        "probe", "plan", str(folder), "--model", MODEL, "--gpu", "h100", "--gpu", "a100-80g",
        "--tensor-parallel", "1", "--tensor-parallel", "2", "--budget-gpu-hours", "2",
        "--store", str(tmp_path / "o.db"), "--config", str(tmp_path / "etc"),
    ]  # fmt: skip
    assert main(words) == 0
    out = capsys.readouterr().out
    plan = read_plan(folder)
    assert plan.cells
    assert plan.cells[0].name in out.splitlines()[0]
    assert plan.cells[0].serve[:3] == ("vllm", "serve", MODEL)
    assert "{port}" in plan.cells[0].bench
    scripts = sorted(path.name for path in folder.glob("*.sh"))
    assert out.count("sbatch ") == len(scripts)
    assert "--gres=gpu:h100_sxm:" in (folder / "probe-h100-1.sh").read_text()
    assert main([*words, "--resume"]) == 0
    assert main(words) == 1


def test_planning_needs_a_model_and_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "plan", str(tmp_path / "p")]) == 2
    assert capsys.readouterr().err == "error: --model and --gpu say what may be measured\n"
