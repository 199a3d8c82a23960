"""From a user's sbatch to a job that is left alone, explained, moved or refused: all parts real."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest
from daemon_requests import ask_daemon, reload

from omnipilot_slurm.cli.main import main

if TYPE_CHECKING:
    from omnipilot_slurm.sandbox import Sandbox
    from omnipilot_slurm.sandbox.jobs import Submitted, VllmStart

pytestmark = pytest.mark.slurm

LLAMA_70B = "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192"
LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"


@pytest.fixture
def site(pilot_site: Sandbox) -> Sandbox:
    return pilot_site


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, ""])


def seen(site: Sandbox, submitted: Submitted) -> list[VllmStart]:
    """Return what the job's own processes saw, the job having ended well."""
    assert submitted.returncode == 0, submitted.stderr
    job = site.wait(submitted.job_id)
    assert job.state == "COMPLETED", job.fields
    return list(site.records(submitted.job_id))


def tp_of(start: VllmStart) -> str:
    return start.argv[start.argv.index("--tensor-parallel-size") + 1]


def n_devices(start: VllmStart) -> int:
    return len((start.cuda_visible_devices or "").split(","))


@dataclass(frozen=True)
class Chosen:
    """An arm as a job sees it."""

    partition: str
    n_gpus: int

    @property
    def seen(self) -> tuple[str, int]:
        return str(self.n_gpus), self.n_gpus


@lru_cache
def arm_70b(site: Sandbox) -> Chosen:
    """Return where `omnipilot advise` says that the 70B job goes; sbatch must say the same."""
    job = site.folders.root / "70b.sh"
    job.write_text(script("#SBATCH --gres=gpu:a100:1", LLAMA_70B))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["advise", "--json", "--config", str(site.folders.pilot), str(job)])
    chosen = json.loads(out.getvalue())["chosen"]
    assert chosen["partition"] != "a100"
    return Chosen(chosen["partition"], chosen["n_gpus"])


def n_decisions(site: Sandbox) -> int:
    counts = ask_daemon(site, op="status")["status"]["counts"]
    return sum(n for name, n in counts.items() if name.startswith("verdict_"))


def n_decisions_after(site: Sandbox, before: int) -> int:
    """Return how many decisions there are once there are more: one counts when it was answered."""
    for _ in range(50):
        n = n_decisions(site)
        if n > before:
            return n
        time.sleep(0.1)
    return before


def test_job_without_vllm_is_untouched_and_silent(site: Sandbox) -> None:
    before = n_decisions(site)
    submitted = site.submit(["--gres=gpu:a100:1"], script=script("hostname"))
    assert submitted.stderr == ""
    job = site.wait(submitted.job_id)
    assert job.fields["TresPerNode"].rstrip().endswith("gpu:a100:1")
    assert job.fields.get("AdminComment") is None
    assert n_decisions(site) == before


ASKED = {
    "gres": (["--gres=gpu:a100:1"], {}),
    "gpus-per-node": (["--gpus-per-node=a100:1"], {}),
    "gpus": (["--gpus=1"], {}),
    "gpus typed": (["--gpus=a100:1"], {}),
    "gpus-per-task": (["--gpus-per-task=1", "--ntasks=1"], {}),
    "mem-per-gpu": (["--gres=gpu:a100:1", "--mem-per-gpu=8G"], {"mem": 8}),
    "cpus-per-gpu": (["--gres=gpu:a100:1", "--cpus-per-gpu=4"], {"cpus": 4}),
}


@pytest.mark.parametrize("form", ASKED)
def test_70b_on_one_a100_40gb_runs_on_an_arm_that_starts(site: Sandbox, form: str) -> None:
    args, scaled = ASKED[form]
    submitted = site.submit(args, script=script(LLAMA_70B, "srun hostname"))
    starts = seen(site, submitted)
    arm = arm_70b(site)
    job = site.job(submitted.job_id)
    # the second name from 23.02 on
    tres = job.fields.get("TRES") or job.fields["AllocTRES"]
    assert (job.partition, f"gres/gpu={arm.n_gpus}" in tres) == (arm.partition, True)
    assert [(tp_of(start), n_devices(start)) for start in starts] == [arm.seen]
    assert f"omnipilot: changed to {arm.n_gpus}x " in submitted.stderr
    assert job.fields["AdminComment"].rstrip().endswith(":rewrite")
    if "mem" in scaled:
        assert f"mem={scaled['mem'] * arm.n_gpus}G" in tres
    if "cpus" in scaled:
        assert f"cpu={scaled['cpus'] * arm.n_gpus}" in tres


@pytest.mark.parametrize("form", ASKED)
def test_srun_inside_a_moved_job_sees_the_new_gpus(site: Sandbox, form: str) -> None:
    args, _ = ASKED[form]
    starts = seen(site, site.submit(args, script=script(f"srun {LLAMA_70B}")))
    assert [(tp_of(start), n_devices(start)) for start in starts] == [arm_70b(site).seen]


def test_decision_is_explained_again_from_the_store(
    site: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = site.submit(["--gres=gpu:a100:1"], script=script(LLAMA_70B))
    decision_id = answered.stderr.split("omnipilot explain ")[1].split()[0]
    command = ["explain", decision_id, "--config", str(site.folders.pilot)]
    for _ in range(50):
        if main(command) == 0:
            break
        time.sleep(0.1)
    out = capsys.readouterr().out
    assert out.startswith(f"decision {decision_id} of ")
    tp = arm_70b(site).n_gpus
    assert "<- chosen" in out
    assert f"'' -> ' --tensor-parallel-size {tp}'" in out


def test_srun_that_asks_for_gpus_itself_moves_with_the_job(site: Sandbox) -> None:
    text = script(f"srun --gres=gpu:a100:1 {LLAMA_70B}")
    starts = seen(site, site.submit(["--gres=gpu:a100:1"], script=text))
    assert [(tp_of(start), n_devices(start)) for start in starts] == [arm_70b(site).seen]


def test_ntasks_per_gpu_is_left_alone(site: Sandbox) -> None:
    args = ["--gpus=1", "--ntasks-per-gpu=1"]
    submitted = site.submit(args, script=script(LLAMA_70B))
    assert "not changed" in submitted.stderr
    starts = seen(site, submitted)
    assert site.job(submitted.job_id).partition == "a100"
    assert "--tensor-parallel-size" not in starts[0].argv


def test_two_gpus_without_a_tp_flag_get_tp_2(site: Sandbox) -> None:
    starts = seen(site, site.submit(["--gres=gpu:a100:2"], script=script(LLAMA_8B)))
    assert [(tp_of(start), n_devices(start)) for start in starts] == [("2", 2)]


def test_tp_3_for_32_heads_on_4_gpus_becomes_tp_4(site: Sandbox) -> None:
    text = script(f"{LLAMA_8B} --tensor-parallel-size 3")
    starts = seen(site, site.submit(["--gres=gpu:a100:4"], script=text))
    assert [(tp_of(start), n_devices(start)) for start in starts] == [("4", 4)]


def test_tp_3_for_32_heads_on_3_gpus_is_refused_naming_2_and_4(site: Sandbox) -> None:
    text = script(f"{LLAMA_8B} --tensor-parallel-size 3")
    submitted = site.submit(["--gres=gpu:a100:3"], script=text)
    assert submitted.returncode != 0
    assert "--tensor-parallel-size 2 or 4" in submitted.stderr


@pytest.mark.parametrize(
    ("args", "variable"),
    [
        (["--gpus=1"], "SLURM_GPUS"),
        (["--gres=gpu:a100:1"], "SLURM_GPUS_ON_NODE"),
        (["--gpus-per-node=1"], "SLURM_GPUS_PER_NODE"),
    ],
)
def test_tp_fed_by_a_slurm_variable_follows(site: Sandbox, args: list[str], variable: str) -> None:
    text = script(f"{LLAMA_70B} --tensor-parallel-size ${variable}")
    starts = seen(site, site.submit(args, script=text))
    assert [(tp_of(start), n_devices(start)) for start in starts] == [arm_70b(site).seen]


def test_two_servers_are_unchanged_with_one_line_of_advice(site: Sandbox) -> None:
    text = script(f"{LLAMA_8B} --port 1 &", f"{LLAMA_8B} --port 2 &", "wait")
    submitted = site.submit(["--gres=gpu:a100:2"], script=text)
    assert len(submitted.stderr.splitlines()) == 1
    assert "2 servers" in submitted.stderr
    assert all("--tensor-parallel-size" not in s.argv for s in seen(site, submitted))


@pytest.mark.parametrize("by", ["directive", "comment"])
def test_opt_out_is_silent(site: Sandbox, by: str) -> None:
    head = ["#OMNIPILOT off"] if by == "directive" else []
    args = ["--gres=gpu:a100:1", *([] if head else ["--comment", "omnipilot=off"])]
    submitted = site.submit(args, script=script(*head, LLAMA_70B))
    assert submitted.stderr == ""
    assert "--tensor-parallel-size" not in seen(site, submitted)[0].argv


def test_array_is_one_decision(site: Sandbox) -> None:
    before = n_decisions(site)
    args = ["--array=0-3", "--gres=gpu:a100:1"]
    submitted = site.submit(args, script=script(LLAMA_70B))
    assert submitted.returncode == 0
    assert n_decisions_after(site, before) == before + 1
    assert site.job(submitted.job_id).partition == arm_70b(site).partition
    site.run("scancel", str(submitted.job_id))


def test_heterogeneous_job_is_untouched(site: Sandbox) -> None:
    args = ["--gres=gpu:a100:1", ":", "--gres=gpu:a100:1"]
    submitted = site.submit(args, script=script(LLAMA_70B))
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert site.job(submitted.job_id).partition == "a100"
    site.run("scancel", str(submitted.job_id))


def test_unknown_model_abstains_and_names_what_it_lacks(site: Sandbox) -> None:
    submitted = site.submit(["--gres=gpu:a100:1"], script=script("vllm serve nobody/model-100%s-ü"))
    assert submitted.returncode == 0
    assert "nobody/model-100%s-ü" in submitted.stderr
    assert "not known" in submitted.stderr


def test_script_that_is_not_utf8_keeps_its_bytes(site: Sandbox) -> None:
    text = script("# caf\xe9", LLAMA_70B).encode("latin-1")
    submitted = site.submit(["--hold", "--gres=gpu:a100:1"], script=text)
    assert submitted.returncode == 0
    assert site.job(submitted.job_id).partition == "a100"
    submitted = site.submit(["--gres=gpu:a100:1"], script=text)
    assert [tp_of(start) for start in seen(site, submitted)] == [str(arm_70b(site).n_gpus)]


def test_pending_job_can_be_updated(site: Sandbox) -> None:
    submitted = site.submit(["--begin=now+1hour", "--gres=gpu:a100:1"], script=script(LLAMA_70B))
    site.run("scontrol", "update", f"job={submitted.job_id}", "timelimit=30")
    assert site.job(submitted.job_id).fields["TimeLimit"] == "00:30:00"
    site.run("scancel", str(submitted.job_id))


@pytest.mark.parametrize(
    ("setting", "back"),
    [
        ("AllowAccounts=nobody_has_this", "AllowAccounts=ALL"),
        ("DenyAccounts=llm", "DenyAccounts="),
        ("AllowQos=nobody_has_this", "AllowQos=ALL"),
        ("AllowGroups=root", "AllowGroups=ALL"),
        ("MaxTime=10", "MaxTime=UNLIMITED"),
        ("State=DOWN", "State=UP"),
    ],
)
def test_job_is_moved_only_where_slurm_takes_it(site: Sandbox, setting: str, back: str) -> None:
    first = arm_70b(site)
    site.run("scontrol", "update", f"partitionname={first.partition}", setting)
    reload(site)
    try:
        submitted = site.submit(["--gres=gpu:a100:1", "--time=60"], script=script(LLAMA_70B))
        starts = seen(site, submitted)
    finally:
        site.run("scontrol", "update", f"partitionname={first.partition}", back)
        reload(site)
    assert site.job(submitted.job_id).partition not in ("a100", first.partition)
    assert [tp_of(start) for start in starts] == [str(n_devices(starts[0]))]


def test_job_that_fits_nowhere_in_memory_is_refused(site: Sandbox) -> None:
    text = script("vllm serve deepseek-ai/DeepSeek-R1 --dtype bfloat16 --quantization None")
    args = ["--gres=gpu:a100:1", "--time=60"]
    submitted = site.submit([*args, "--mem=4000G"], script=text)
    assert submitted.returncode != 0


HOSTILE = {
    "array opened 10,000 times": "a=(" * 10_000,
    "heredoc opened 4,000 times": "cat <<A;" * 4_000,
    "test opened 6,000 times": "[[ ( " * 6_000,
}


@pytest.mark.parametrize("which", HOSTILE)
def test_hostile_script_makes_nobody_wait(site: Sandbox, which: str) -> None:
    hostile = script("# vllm", HOSTILE[which])
    answers: list[Submitted] = []

    def submit_hostile() -> None:
        answers.append(site.submit(["--hold", "--gres=gpu:a100:1"], script=hostile))

    thread = threading.Thread(target=submit_hostile)
    began = time.monotonic()
    thread.start()
    other = site.submit(["--gres=gpu:a100:2"], script=script(LLAMA_8B))
    thread.join()
    assert time.monotonic() - began < 20
    assert answers[0].returncode == 0
    assert answers[0].stderr == ""
    written = site.run("scontrol", "write", "batch_script", str(other.job_id), "-")
    assert "--tensor-parallel-size 2" in written
    site.run("scancel", str(other.job_id))


def test_4_mb_script_passes_and_the_next_job_is_still_asked_about(site: Sandbox) -> None:
    big = script("# vllm", *["# " + "x" * 98] * 41_000)
    assert len(big) > 4_000_000
    assert site.submit(["--hold", "--gres=gpu:a100:1"], script=big).returncode == 0
    before = n_decisions(site)
    seen(site, site.submit(["--gres=gpu:a100:2"], script=script(LLAMA_8B)))
    assert n_decisions_after(site, before) == before + 1


def test_daemon_that_is_down_leaves_jobs_unchanged(site: Sandbox) -> None:
    site.stop_omnipilotd()
    try:
        submitted = site.submit(["--gres=gpu:a100:1"], script=script(LLAMA_70B))
        assert submitted.stderr == ""
        assert "--tensor-parallel-size" not in seen(site, submitted)[0].argv
    finally:
        site.start_omnipilotd()


def test_restart_and_reconfigure_of_slurmctld(site: Sandbox) -> None:
    site.reconfigure()
    assert "changed to" in site.submit(["--gres=gpu:a100:1"], script=script(LLAMA_70B)).stderr
    site.restart_ctld()
    assert "changed to" in site.submit(["--gres=gpu:a100:1"], script=script(LLAMA_70B)).stderr
