"""`omnipilot drift` compares what was measured since the model was made, and rings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.catalog.facts_json import facts_to_json
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.records import Arm
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.store.benchmarks import Benchmark, Load, record_benchmarks
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.setups import Setup, Software
from omnipilot_slurm.train.site_rows import site_rows

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def runs(n: int, rate: float, version: str = "0.11.0", at: float = 0.0) -> list[Benchmark]:
    facts = Catalog.load().model(MODEL).facts
    arm = Arm(
        partition=None, gres_type=None, gpu="h100", n_gpus=1, n_nodes=1, tensor_parallel=1,
        pipeline_parallel=1, data_parallel=1, expert_parallel=False, precision="bf16",
        kv_cache_dtype="auto",
    )  # fmt: skip
    setup = Setup(
        model=MODEL,
        arm=arm,
        model_facts=facts_to_json(facts),
        software=Software(vllm=version),
    )
    return [
        Benchmark(
            content_hash=f"{version} {i}",
            source="collect",
            setup=setup,
            load=Load(mode="online_closed_loop", isl=1024, osl=1024, concurrency=16.0),
            targets={"output_tok_s": rate * (1 + 0.01 * (i % 3))},
            measured_at=at + i,
        )
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def predicted() -> float:
    """What the shipped model says of the runs."""
    model, _ = artifact.read(shipped_path("etc", "artifact"))
    rows = site_rows(runs(1, 1.0), Catalog.load())
    assert rows.data is not None
    return float(Predictor(model).predict_table(rows.data.table).targets["output_tok_s"].mid[0])


def run(tmp_path: Path, rows: list[Benchmark], *more: str) -> int:
    store = tmp_path / "o.db"
    connection = open_for_writing(store)
    record_benchmarks(connection, rows, at=1.0)
    connection.close()
    return main(["drift", "--store", str(store), "--models", str(tmp_path / "models"), *more])


def test_a_site_that_delivers_as_predicted_is_quiet(
    tmp_path: Path, predicted: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, runs(12, predicted), "--json") == 0
    captured = capsys.readouterr()
    said: Any = json.loads(captured.out)
    (group,) = said["groups"]
    assert group["group"] == {
        "target": "output_tok_s",
        "arm": "h100|1|1|1|1|0|bf16|auto",
        "engine": "0.11",
    }
    assert (group["n"], group["coverage"], group["alarm"]) == (12, 1.0, "")
    assert said["alpha"] == 0.2
    assert captured.err == ""


def test_a_site_at_half_the_speed_rings(
    tmp_path: Path, predicted: float, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "omnipilot.prom"
    assert run(tmp_path, runs(12, predicted / 2), "--metrics", str(metrics)) == 4
    captured = capsys.readouterr()
    assert captured.err.startswith("drift: output_tok_s h100|1|1|1|1|0|bf16|auto 0.11: 0 of 12 ")
    assert captured.out.splitlines()[0].endswith("  ALARM")
    lines = metrics.read_text().splitlines()
    labels = '{target="output_tok_s",arm="h100|1|1|1|1|0|bf16|auto",engine="0.11"}'
    assert lines[0] == "omnipilot_adapted_alpha 0.2"
    assert f"omnipilot_drift_alarm{labels} 1" in lines
    assert f"omnipilot_drift_coverage{labels} 0.0" in lines


def test_an_upgrade_is_told_as_a_group_of_its_own(
    tmp_path: Path, predicted: float, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*runs(9, predicted), *runs(9, predicted, "0.12.0", at=100.0)]
    run(tmp_path, rows)
    lines = capsys.readouterr().out.splitlines()
    assert sum("  new version" in line for line in lines) == 1
    assert any(" 0.12 " in line and "new version" in line for line in lines)


def test_a_site_without_measurements_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, []) == 0
    assert capsys.readouterr().out == "nothing has been measured since the model was made\n"
