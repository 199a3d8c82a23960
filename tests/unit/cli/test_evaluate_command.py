"""`omnipilot evaluate` on predictions that were kept: what it prints, as text and as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train import kept
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import Held, outer_folds
from omnipilot_slurm.train.load import load_dataset

SCENARIO = """
prices_usd_per_gpu_hour: {H100: 3.0, H200: 3.8, B200: 5.5, B300: 6.5}
value_usd_per_output_token: 2.0e-6
sensitivity_value_usd_per_output_token: [2.0e-7]
hours: 8
offered_requests_per_s: null
launch_success_by_gpus: {1: 0.98, 8: 0.85}
expected_wait_hours_by_gpus: {1: 0.1, 8: 1.5}
wait_usd_per_hour: 1.0
failed_launch_hours: 0.1
cold_start_s: {base: 15, per_billion_params: 0.5, per_gpu: 3}
slo_ttft_ms: 2000
slo_tpot_ms: 100
slo_miss_usd_per_hour: 10
"""


@pytest.fixture
def known(tmp_path, monkeypatch, serving_csv):
    """A folder with predictions that are 10 % too high, as if they had been made before."""
    data = load_dataset([serving_csv], lambda _: None)

    def held_out(rows, split, settings, *, seed, progress):
        return Held(
            targets={name: Bounds(y, 1.1 * y, 1.2 * y) for name, y in rows.measured.items()},
            physics={name: 2 * y for name, y in rows.measured.items()},
            nearest=np.full(len(rows), -1),
            tiers=np.full(len(rows), "in"),
            axes=np.full(len(rows), ""),
            folds=outer_folds(rows, split, seed),
        )

    with monkeypatch.context() as patched:
        patched.setattr(kept, "held_out", held_out)
        for split in ("cell", "source"):
            kept.kept(tmp_path, data, split, Settings())
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def test_a_table_has_errors_tiers_baselines_and_decisions(known, serving_csv, capsys):
    arguments = ["--data", str(serving_csv), "--keep", str(known)]
    assert main(["evaluate", *arguments, "--scenario", str(known / "scenario.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "split by cell: 333 rows, 104 cells, 5 folds; rows by tier: 333 in, 0 low, 0 out"
    )
    table = [line.split() for line in lines]
    scores = "10.00 10.00".split(), "1.000 1.000 1.20".split()
    for row, expected in (
        (table[3], "output_tok_s all omnipilot 333 104"),
        (table[4], "output_tok_s A100/H100/H200 omnipilot 124 88"),
        (table[5], "output_tok_s H100/B200 omnipilot 199 81"),
    ):
        assert (row[:5], row[5:7], row[8:]) == (expected.split(), *scores)
    assert table[6][:8] == "output_tok_s all roofline alone 333 104 100.00 100.00".split()
    assert "decisions at 2e-06 $ per output token, 58 cells" in lines
    assert "decisions at 2e-07 $ per output token, 58 cells" in lines
    policies = [line for line in lines if line.startswith("omnipilot ")]
    assert [len(line.split()) for line in policies] == [4, 4]


def test_json_says_the_same_of_every_split(known, serving_csv, capsys):
    arguments = ["--data", str(serving_csv), "--keep", str(known), "--json"]
    assert main(["evaluate", *arguments, "--split", "cell", "--split", "source"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["cell", "source"]
    assert found["source"]["n_folds"] == 2
    assert [group["group"] for group in found["source"]["groups"]] == [
        "aiconfigurator-gap",
        "inferencex",
    ]
    assert found["cell"]["groups"] == []
    first = found["cell"]["lines"][0]
    assert (first["target"], first["rows"], first["by"]) == ("output_tok_s", "all", "omnipilot")
    assert first["score"]["mape"] == pytest.approx(10.0)


def test_what_lacks_a_key_is_no_scenario(known, serving_csv, capsys):
    path = known / "scenario.yaml"
    path.write_text(SCENARIO.replace("hours: 8\n", "", 1))
    assert main(["evaluate", "--data", str(serving_csv), "--scenario", str(path)]) == 1
    assert capsys.readouterr().err == f"error: {path}: lacks 'hours'\n"
