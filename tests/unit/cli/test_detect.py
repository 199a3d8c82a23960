"""`omnipilot detect` prints what the reader sees, as JSON or for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = b"#!/bin/bash\n#SBATCH --gres=gpu:a100:4\nvllm serve ${1:-M/x} -tp ${TP:-4}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_bytes(SCRIPT)
    return path


def test_json_holds_every_key(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", "--json", str(job)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["is_serving"], found["model"], found["tp"]) == (True, "M/x", 4)
    assert found["edit"] == {
        "op": "replace",
        "line": 3,
        "byte_start": SCRIPT.index(b"-4}") + 1,
        "byte_end": SCRIPT.index(b"-4}") + 2,
        "old": "4",
    }


def test_people_get_one_line_for_each(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", str(job)]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["is_serving", "True"] in lines
    assert ["quant", "-"] in lines


def test_variables_and_arguments_count(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", "--json", "--env", "TP=2", str(job), "--", "M/y"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["tp"], found["editable"]) == ("M/y", 2, "no")


@pytest.mark.parametrize("pair", ["TP", "=2", "T P=2", "2=2"])
def test_a_variable_that_is_none_is_refused(
    pair: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["detect", "--env", pair, str(job)]) == 2
    assert capsys.readouterr().err == f"error: --env must be NAME=VALUE, was {pair!r}\n"


def test_a_script_that_is_not_utf_8_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(b"#!/bin/bash\nvllm serve M/\xff -tp 2\n")
    for options in (["--json"], []):
        assert main(["detect", *options, str(path)]) == 0
        assert "M/\N{REPLACEMENT CHARACTER}" in capsys.readouterr().out


def test_a_script_that_is_not_there_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["detect", str(tmp_path / "none.sh")]) == 2
    assert "does not exist" in capsys.readouterr().err
