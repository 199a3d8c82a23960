"""`omnipilot whatif` decides before and after a change of figures, and finds the flips."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """#!/bin/bash
#SBATCH --gres=gpu:a100-80:2
#SBATCH --partition=a100-80
#SBATCH --time=8:00:00
vllm serve Qwen/Qwen2.5-32B-Instruct -tp 2 --max-model-len 8192
"""
VALUE = "utility.value_usd_per_output_token"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def asked(job: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    site = job.parent / "site"
    site.mkdir(exist_ok=True)
    assert main(["whatif", str(job), "--config", str(site), "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def worth(record: dict[str, Any], partition: str, n_gpus: int) -> float:
    (found,) = (
        arm["utility_usd"]
        for arm in record["arms"]
        if (arm["partition"], arm["n_gpus"]) == (partition, n_gpus)
    )
    return float(found)


def test_tokens_worth_nothing_move_the_choice_to_a_cheaper_arm(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(job, capsys, "--set", f"{VALUE}=0")
    assert found["set"] == {VALUE: "0"}
    cheap, dear = found["after"]["chosen"], found["after"]["asked"]
    assert cheap["usd_per_hour"] < dear["usd_per_hour"]
    assert all(
        arm["utility_usd"] is None or arm["utility_usd"] < 0 for arm in found["after"]["arms"]
    )
    assert found["before"]["chosen"] != cheap


def test_a_price_changes_the_worth_of_that_gpu_alone_by_its_hours(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(job, capsys, "--gpu-price", "H100-SXM=100")
    before, after = found["before"], found["after"]
    price = next(arm["usd_per_hour"] for arm in before["arms"] if arm["partition"] == "h100")
    assert found["set"] == {"gpus.h100.price_usd_per_gpu_hour": "100"}
    assert worth(before, "a100-80", 2) == pytest.approx(worth(after, "a100-80", 2), rel=1e-5)
    # 8 h, and the hours that failed launches hold
    assert worth(before, "h100", 1) - worth(after, "h100", 1) == pytest.approx(
        8 * (100 - price), rel=0.01
    )


def test_what_the_site_has_set_holds_before_and_after(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = job.parent / "site"
    site.mkdir()
    (site / "utility.yaml").write_text(f"schema: 1\nutility: {{{VALUE.split('.')[1]}: 0}}\n")
    (site / "omnipilot.yaml").write_text("schema: 1\npolicy: {mode: observe}\n")
    found = asked(job, capsys, "--set", "policy.rewrite_margin_frac=0.2")
    assert all(
        arm["utility_usd"] is None or arm["utility_usd"] < 0 for arm in found["after"]["arms"]
    )
    assert (found["before"]["mode"], found["after"]["mode"]) == ("enforce", "enforce")


def test_assumed_waits_of_priors_yaml_can_be_set(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(job, capsys, "--set", "wait.expected_hours_by_gpus={1: 9, 2: 9}")
    assert worth(found["after"], "a100-80", 2) < worth(found["before"], "a100-80", 2)


def test_a_sweep_shows_each_point_and_where_the_choice_flips(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = asked(job, capsys, "--sweep", f"{VALUE}=1e-7:1e-4:4:log")["sweep"]
    assert [point["value"] for point in swept["points"]] == [1e-7, 1e-6, 1e-5, 1e-4]
    assert swept["spacing"] == "log"
    first, *_, last = swept["flips"]
    assert first["before"]["place"] == swept["points"][0]["place"]
    assert last["after"]["place"] == swept["points"][-1]["place"]
    at_flip = asked(job, capsys, "--sweep", f"{VALUE}={first['lo']}:{first['hi']}:2")["sweep"]
    places = [point["place"] for point in at_flip["points"]]
    assert places == [first["before"]["place"], first["after"]["place"]]


def test_a_sweep_of_a_whole_number_stays_whole(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = asked(job, capsys, "--sweep", "workload.default.concurrency=1:64:4:log")["sweep"]
    assert [point["value"] for point in swept["points"]] == [1, 4, 16, 64]
    assert all(flip["hi"] == flip["lo"] + 1 for flip in swept["flips"])


def test_the_text_says_what_was_set_both_answers_and_the_arms_that_moved(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(job), "--set", f"{VALUE}=0"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == f"with {VALUE}=0:"
    assert [line.split(" ")[0] for line in lines[1:4]] == ["before", "after", "why"]
    assert lines[6].split() == ["partition", "arm", "worth", "$", "before", "after"]
    assert printed.err.startswith("cluster: the example of this package")


def test_only_arms_of_the_gpu_whose_price_changed_are_listed(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(job), "--gpu-price", "h100=100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = (i for i, line in enumerate(lines) if line.startswith("partition"))
    rows = [line.split() for line in lines[head + 1 :]]
    assert {row[0] for row in rows} == {"h100"}
    assert len(rows) == 3
    # the larger the arm, the more it loses
    assert [row[1] for row in rows] == ["1x", "2x", "4x"]


def test_a_change_without_effect_says_so(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job), "--set", "utility.slo_miss_usd_per_hour=99"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("unchanged  ")
    assert lines[-1] == "no arm is worth more or less than before"


def test_a_sweep_without_a_flip_says_so(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(job), "--sweep", "utility.slo_miss_usd_per_hour=1:9:3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("utility.slo_miss_usd_per_hour  verdict  place")
    assert len(lines) == 6
    assert lines[-1] == "the answer is the same at every point"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing is to be changed"),
        (("--set", "utility.kv_knee"), "--set must be KEY=VALUE, was 'utility.kv_knee'"),
        (("--set", "utlity.x=3"), "--set utlity.x=3: unknown key 'utlity': did you mean 'utility'"),
        (
            ("--set", "utility.value_usd_per_token=3"),
            (
                "--set utility.value_usd_per_token=3: utility: unknown key 'value_usd_per_token':"
                " did you mean 'value_usd_per_output_token'"
            ),
        ),
        (
            ("--set", "utility.kv_knee=2"),
            (
                "--set utility.kv_knee=2: utility.kv_knee: must be a number above 0 of at most"
                " 0.99, was '2'"
            ),
        ),
        (
            ("--set", "utility.failed_launch_hours=6min"),
            (
                "--set utility.failed_launch_hours=6min: utility.failed_launch_hours: must be a"
                " number from 0 to 1000, was '6min'; the unit is in the key; write the number alone"
            ),
        ),
        (
            ("--set", "gpus.h100.mem_gib=3"),
            (
                "--set gpus.h100.mem_gib=3: of a GPU only gpus.ID.price_usd_per_gpu_hour can be set"
                " here"
            ),
        ),
        (
            ("--set", "gpus.h1000.price_usd_per_gpu_hour=3"),
            (
                "--set gpus.h1000.price_usd_per_gpu_hour=3: gpu 'h1000' is not known;"
                " near names: h100, p100, h800"
            ),
        ),
        (("--gpu-price", "h100"), "--gpu-price must be GPU=USD_PER_HOUR, was 'h100'"),
        (
            ("--gpu-price", "h100=cheap"),
            (
                "--gpu-price h100=cheap: gpus.h100.price_usd_per_gpu_hour: must be a number from"
                " 0 to 100000.0, was 'cheap'"
            ),
        ),
        (
            ("--sweep", "utility.wait_usd=1:2:3"),
            (
                "--sweep utility.wait_usd=1: utility: unknown key 'wait_usd': did you mean"
                " 'wait_usd_per_hour'; a key carries its unit"
            ),
        ),
    ],
)
def test_what_cannot_be_set_is_a_usage_error(
    job: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["whatif", str(job), *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {said}"
