"""`omnipilot bench-plan`: commands that vLLM and our own store take, for what is asked."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cli.bench_commands import Benchmark, ingest_words, serve_words, shell_lines
from omnipilot_slurm.cli.ingest_bench import bench
from omnipilot_slurm.cli.main import main
from omnipilot_slurm.records import Arm
from omnipilot_slurm.vllm import flags

MODEL = ["--model", "meta-llama/Llama-3.1-8B-Instruct"]

arms = st.builds(
    Arm,
    partition=st.none(),
    gres_type=st.none(),
    gpu=st.sampled_from(["h100", "a100-40g"]),
    n_gpus=st.integers(1, 64),
    tensor_parallel=st.sampled_from([1, 2, 8]),
    pipeline_parallel=st.sampled_from([1, 2]),
    data_parallel=st.sampled_from([1, 4]),
    expert_parallel=st.booleans(),
    precision=st.sampled_from(["bf16", "fp16", "fp8", "awq"]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
)
plans = st.builds(
    Benchmark,
    model=st.sampled_from(["org/model", "/models/with space"]),
    stored=st.sampled_from(["bf16", "awq"]),
    arm=arms,
    isl=st.integers(1, 10000),
    osl=st.integers(1, 10000),
    concurrencies=st.sampled_from([(32,), (32, 16, 8)]),
    vllm_version=st.sampled_from([None, "0.11.0"]),
)


@given(plans)
def test_the_server_is_the_arm_as_vllm_reads_it(plan):
    line = flags.parse(serve_words(plan)[2:], version="0.11.0", form="vllm serve")
    engine = flags.engine_args(line, version="0.11.0")
    assert not line.problems
    for name in ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel"):
        assert getattr(engine, name) == getattr(plan.arm, name)
    assert engine.kv_cache_dtype == plan.arm.kv_cache_dtype
    assert engine.max_model_len == plan.isl + plan.osl
    assert engine.model == plan.model


@given(plans)
def test_the_last_line_is_one_that_ingest_bench_reads(plan):
    words = ingest_words(plan)
    assert words[:3] == ["omnipilot", "ingest", "bench"]
    for file in words[3 : 3 + len(plan.concurrencies)]:
        assert f" {file}" in "\n".join(shell_lines(plan))
    options = {option for param in bench.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= options


@given(plans)
def test_the_script_is_one_that_a_shell_reads(plan):
    script = "\n".join(shell_lines(plan))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert all(shlex.split(line, comments=True) is not None for line in script.splitlines())


def test_a_card_never_measured_takes_three_runs(capsys):
    assert main(["bench-plan", *MODEL, "--gpu", "l40s", "--isl", "1024", "--osl", "1024"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "# meta-llama/Llama-3.1-8B-Instruct on 1 x L40S, bf16, 1024 in, 1024 out, 32 at once: low"
    )
    assert lines[1].startswith("# gpu: gpu 'l40s' was not measured")
    runs = [line for line in lines if line.startswith("vllm bench serve")]
    assert [line.split("--max-concurrency ")[1].split()[0] for line in runs] == ["32", "16", "8"]
    assert "--num-prompts 256" in runs[0]


def test_what_is_in_support_needs_none(capsys):
    load = ["--isl", "1024", "--osl", "1024", "--concurrency", "16"]
    assert main(["bench-plan", *MODEL, "--gpu", "h100", *load]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": in")
    assert lines[1:] == ["# nothing to measure: the cost model answers for it as it is"]


def test_a_job_and_the_decision_on_it_have_the_same_plan(tmp_path, capsys):
    job = tmp_path / "job.sh"
    job.write_text(
        "#!/bin/bash\n#SBATCH --partition=h100\n#SBATCH --gres=gpu:h100:1\n"
        "vllm serve Qwen/Qwen2.5-14B-Instruct\n"
    )
    assert main(["bench-plan", str(job), "--json"]) == 0
    of_job = json.loads(capsys.readouterr().out)
    main(["advise", str(job), "--json"])
    (tmp_path / "decision.json").write_text(capsys.readouterr().out)
    assert main(["bench-plan", "--decision", str(tmp_path / "decision.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == of_job
    assert (of_job["model"], of_job["gpu"]) == ("Qwen/Qwen2.5-14B-Instruct", "h100")
    assert of_job["tier"] == "low"
    assert of_job["minutes"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "error: one of JOB, --decision and --model says what to measure\n"),
        (MODEL, 2, "error: --model needs --gpu\n"),
    ],
)
def test_what_says_too_little_is_refused(arguments, code, said, capsys):
    assert main(["bench-plan", *arguments]) == code
    assert capsys.readouterr().err == said


def test_a_file_that_is_no_decision_is_refused(tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text("[]")
    assert main(["bench-plan", "--decision", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"error: {path}: must be a decision, has no launch and workload\n"
        "hint: it is what `omnipilot advise JOB.sh --json` prints\n"
    )
    path.write_text("{")
    assert main(["bench-plan", "--decision", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {path}: must be JSON: ")


def test_a_job_without_a_server_has_no_arm(tmp_path, capsys):
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/bash\nhostname\n")
    assert main(["bench-plan", str(job)]) == 2
    assert capsys.readouterr().err.startswith("error: there is no arm to measure: ")
