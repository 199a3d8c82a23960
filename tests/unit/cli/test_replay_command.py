"""`omnipilot replay` of a folder of scripts: counts, a table, JSON; nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnipilot_slurm.cli.main import main

CASES = Path(__file__).parents[2] / "fixtures" / "scripts"
CLUSTER = Path(__file__).parents[3] / "etc" / "cluster-example.yaml"
TOO_BIG = "#!/bin/bash\n#SBATCH -p a100 --gres=gpu:a100:1\nvllm serve meta-llama/Llama-3.1-70B\n"
WORDS = ("replay", "--cluster", str(CLUSTER))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "big.sh").write_text(TOO_BIG)
    (tmp_path / "train.sh").write_text("#!/bin/bash\npython train.py\n")
    (tmp_path / "notes.txt").write_text("vllm serve x\n")
    return tmp_path


def test_a_folder_is_replayed_script_by_script(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "--json", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["scripts"], found["servers"], found["others"]) == (2, 1, {"not_serving": 1})
    (job,) = found["jobs"]
    assert (job["id"], job["starts"], job["model"]) == (
        "deep/big.sh",
        "fails",
        "meta-llama/Llama-3.1-70B",
    )
    assert job["verdict"] in {"rewrite", "reject", "advise"}
    assert (job["asked"]["n_gpus"], job["ended"], job["gpu_hours"]) == (1, None, None)


def test_people_get_a_table_with_the_jobs_that_would_be_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, str(folder)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "2 scripts, 1 start a vLLM server (others: 1 not_serving)"
    assert lines[2].split() == ["verdict", "reason", "jobs", "GPU-hours", "held", "for", "example"]
    assert lines[5] == "would have been changed or refused:"
    assert lines[6].startswith("  deep/big.sh: re")
    assert printed.err == f"cluster: {CLUSTER}\n"


def test_a_file_is_replayed_whatever_it_begins_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "--json", str(folder / "notes.txt"), str(folder / "train.sh")]) == 0
    assert json.loads(capsys.readouterr().out)["scripts"] == 2


def test_every_case_of_the_acceptance_scripts_can_be_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*WORDS, "--json", str(CASES)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scripts"] == len(list(CASES.iterdir()))
    assert found["servers"] + sum(found["others"].values()) == found["scripts"]
    assert sum(found["verdicts"].values()) == found["servers"]


def test_no_scripts_are_no_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, str(tmp_path)]) == 0
    assert capsys.readouterr().out == "0 scripts, 0 start a vLLM server\n"


def test_accounting_without_slurm_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*WORDS]) == 1
    no_file = "No such file or directory"
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"error: sacct must be a program that can be started, was refused: {no_file}",
        "hint: install Slurm's client commands, or put them on the PATH",
    ]


def test_a_span_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--since", "lately"]) == 2
    assert "--since must be a span" in capsys.readouterr().err
