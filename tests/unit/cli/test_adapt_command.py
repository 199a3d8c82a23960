"""`omnipilot adapt` puts in force what the gate lets in, says why not, and takes it back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.catalog.facts_json import facts_to_json
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.records import Arm
from omnipilot_slurm.site_files import cost_model_in_force
from omnipilot_slurm.site_model import in_force, numbers
from omnipilot_slurm.store.benchmarks import Benchmark, Load, RunOutcome, record_benchmarks
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.setups import Setup

if TYPE_CHECKING:
    from pathlib import Path

SLOWER = 0.5


@pytest.fixture
def slow_rows(serving_csv: Path, tmp_path: Path) -> Path:
    """Rows of a site that delivers half of what was measured elsewhere; output tok/s alone."""
    with serving_csv.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    targets = ("total_tok_s", "req_s", "ttft_ms", "tpot_ms", "e2e_ms", "power_w")
    site = [
        row
        | dict.fromkeys(targets, "")
        | {"output_tok_s": f"{SLOWER * float(row['output_tok_s'])}"}
        for row in rows[::9][:18]
    ]
    path = tmp_path / "site.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(site)
    return path


def arguments(tmp_path: Path, *more: str) -> list[str]:
    (tmp_path / "etc").mkdir(exist_ok=True)
    settings = {"schema": 1, "daemon": {"model": str(tmp_path / "models"), "store": None}}
    (tmp_path / "etc" / "omnipilot.yaml").write_text(json.dumps(settings))
    return ["adapt", "--config", str(tmp_path / "etc"), *more]


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_rows_of_a_slower_site_are_learned_and_taken_back(
    tmp_path: Path, slow_rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    assert main(arguments(tmp_path, "--data", str(slow_rows), "--json")) == 0
    said = answer(capsys)
    assert said["in_force"] == 1
    (target,) = said["targets"]
    assert (target["target"], target["promoted"], target["n_rows"]) == ("output_tok_s", True, 17)
    assert target["new_mape"] < target["old_mape"] / 2

    _, card = artifact.read(models / "1")
    assert card["adapted"]["targets"] == ["output_tok_s"]
    assert len(card["adapted"]["rows"]) == 17
    assert cost_model_in_force(models).folder == models / "1"

    assert main(arguments(tmp_path, "--rollback")) == 0
    assert capsys.readouterr().out == "the shipped model is in force again\n"
    assert in_force(models) is None
    assert numbers(models) == [1]


def test_a_dry_run_puts_nothing_in_force(
    tmp_path: Path, slow_rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "--data", str(slow_rows), "--dry-run")) == 0
    out = capsys.readouterr().out
    assert out.startswith("output_tok_s     17 rows   15 cells  MAPE ")
    assert "  promoted: at most " in out
    assert out.splitlines()[-1] == "nothing was put in force: --dry-run"
    assert in_force(tmp_path / "models") is None


def test_rows_of_the_database_are_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "o.db"
    connection = open_for_writing(store)
    record_benchmarks(connection, [*runs(), failed()], at=1.0)
    connection.close()
    assert main(arguments(tmp_path, "--store", str(store), "--json")) == 0
    captured = capsys.readouterr()
    assert "1 runs of the database teach nothing" in captured.err
    (target,) = json.loads(captured.out)["targets"]
    assert (target["target"], target["n_rows"], target["n_cells"]) == ("output_tok_s", 6, 6)


def setup() -> Setup:
    facts = Catalog.load().model("Qwen/Qwen2.5-7B-Instruct").facts
    arm = Arm(
        partition=None, gres_type=None, gpu="h100", n_gpus=1, n_nodes=1, tensor_parallel=1,
        pipeline_parallel=1, data_parallel=1, expert_parallel=False, precision="bf16",
        kv_cache_dtype="auto",
    )  # fmt: skip
    return Setup(model="Qwen/Qwen2.5-7B-Instruct", arm=arm, model_facts=facts_to_json(facts))


def runs() -> list[Benchmark]:
    return [
        Benchmark(
            content_hash=f"run {n}",
            source="csv",
            setup=setup(),
            load=Load(mode="online_closed_loop", isl=1024, osl=256, concurrency=2.0**n),
            targets={"output_tok_s": 60.0 * 1.8**n},
        )
        for n in range(6)
    ]


def failed() -> Benchmark:
    return Benchmark(
        content_hash="failed",
        source="csv",
        setup=setup(),
        load=Load(mode="online_closed_loop", isl=1024, osl=256, concurrency=4.0),
        targets={},
        outcome=RunOutcome.OOM,
    )


def test_without_rows_it_says_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path)) == 1
    assert capsys.readouterr().err == (
        "error: there is no measured row of this site\n"
        "hint: `omnipilot ingest bench` reads results of benchmarks, --data a CSV\n"
    )


def test_without_a_folder_it_says_which_setting_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = arguments(tmp_path)
    (tmp_path / "etc" / "omnipilot.yaml").write_text('{"schema": 1, "daemon": {"model": null}}')
    assert main(options) == 2
    assert capsys.readouterr().err == (
        "error: daemon.model is null: the shipped model is used\nhint: or use --models\n"
    )


@pytest.mark.parametrize("after_s", [0.5, 3.0, 5.0])
def test_a_process_killed_at_any_point_leaves_a_whole_model_or_none(
    tmp_path: Path, slow_rows: Path, after_s: float
) -> None:
    program = "import sys; from omnipilot_slurm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments(tmp_path, "--data", str(slow_rows))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    models = tmp_path / "models"
    found = cost_model_in_force(models)
    assert found.fault is None
    assert found.folder in {None, models / "1"}


def test_a_broken_site_model_gives_way_to_the_shipped_one(tmp_path: Path, slow_rows: Path) -> None:
    models = tmp_path / "models"
    assert main(arguments(tmp_path, "--data", str(slow_rows))) == 0
    (models / "1" / "model.npz").write_bytes(b"broken")
    found = cost_model_in_force(models)
    assert found.predictor is not None
    assert found.predictor.predictor.model.site is None
    assert found.fault is not None
    assert found.fault.startswith(f"{models / '1' / 'model.npz'}: must be the file that card.json")
