"""Moving a job to another arm: all that must move together moves, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_reading import HEAD, submitted

from omnipilot_slurm.records import Arm, Editable, Launch, Reason, Submission
from omnipilot_slurm.script import rewrite, serving, tres
from omnipilot_slurm.script.budget import never
from omnipilot_slurm.script.rewrite import Rewrite

ARM = Arm(partition=None, gpu="H200", gres_type="h200", n_gpus=2, tensor_parallel=2)
HEADER = HEAD.encode()


def launch_of(submission: Submission) -> Launch:
    request = tres.request_of(submission)
    (launch,) = serving.find(submission, request, environment_is_complete=True).launches
    return launch


def moved(submission: Submission, arm: Arm = ARM) -> Rewrite | Reason:
    return rewrite.rewrite(submission, launch_of(submission), arm, expired=never)


def body_after(body: str, arm: Arm = ARM, **env: str) -> str:
    """Return a script's body behind a rewrite; everything that is promised of it is checked."""
    submission = submitted(HEAD + body + "\n", **env)
    found = moved(submission, arm)
    assert isinstance(found, Rewrite), found
    check(submission, found, arm)
    after = rewrite.apply(submission.script, found.edits)
    assert after.startswith(HEADER)
    return after[len(HEADER) : -1].decode()


def check(submission: Submission, found: Rewrite, arm: Arm) -> None:
    """Check that only the edits differ, and that a second pass changes nothing."""
    script, position = submission.script, 0
    for edit in found.edits:
        assert position <= edit.start <= edit.end <= len(script)
        assert script[edit.start : edit.end] == edit.old
        position = edit.end
    after = rewrite.apply(script, found.edits)
    assert len(after) - len(script) == sum(len(e.new) - len(e.old) for e in found.edits)
    assert parses(after) or not parses(script)
    again = rewrite.with_fields(submission, found.fields, found.env)
    again = Submission(**{**_fields(again), "script": after})
    assert moved(again, arm) == Rewrite()


def _fields(submission: Submission) -> dict[str, Any]:
    return {name: getattr(submission, name) for name in submission.__dataclass_fields__}


def parses(script: bytes) -> bool:
    bash = shutil.which("bash")
    assert bash is not None, "bash must be installed"
    found = subprocess.run([bash, "-n"], input=script, capture_output=True, check=False)
    return found.returncode == 0


SERVE = "vllm serve M/x"
#: what stands in the script, and what stands there for 2 GPUs and a degree of 2
MOVED = {
    "the degree behind its option": (f"{SERVE} -tp 4 -q", f"{SERVE} -tp 2 -q"),
    "the degree of one digit for two": (f"{SERVE} -tp 16 -q", f"{SERVE} -tp 2 -q"),
    "the degree in quotes": (f'{SERVE} -tp "4"', f'{SERVE} -tp "2"'),
    "the degree in one word with its option": (f"{SERVE} '-tp=4'", f"{SERVE} '-tp=2'"),
    "the last degree of several": (f"{SERVE} -tp 8 -tp 4", f"{SERVE} -tp 8 -tp 2"),
    "the degree in a variable": (f"TP=4\n{SERVE} -tp $TP", f"TP=2\n{SERVE} -tp $TP"),
    "the degree in an array": (
        'A=(-tp 4)\nvllm serve M/x "${A[@]}"',
        'A=(-tp 2)\nvllm serve M/x "${A[@]}"',
    ),
    "the degree in a string": (f'O="-tp 4"\n{SERVE} $O', f'O="-tp 2"\n{SERVE} $O'),
    "the degree in a default": (f"{SERVE} -tp ${{TP:-4}}", f"{SERVE} -tp ${{TP:-2}}"),
    "the degree for bash -c": (f"bash -c '{SERVE} -tp 4'", f"bash -c '{SERVE} -tp 2'"),
    "the degree in a here-document": (f"bash <<E\n{SERVE} -tp 4\nE", f"bash <<E\n{SERVE} -tp 2\nE"),
    "no degree": (f"{SERVE} > log &", f"{SERVE} --tensor-parallel-size 2 > log &"),
    "no degree behind a variable": (
        "M=M/x\nvllm serve $M",
        "M=M/x\nvllm serve $M --tensor-parallel-size 2",
    ),
    "the degree of the allocation": (
        f"{SERVE} -tp $SLURM_GPUS_ON_NODE",
        f"{SERVE} -tp $SLURM_GPUS_ON_NODE",
    ),
    "devices that are counted": (
        f"N=$(nvidia-smi -L | wc -l)\n{SERVE} -tp $N",
        f"N=$(nvidia-smi -L | wc -l)\n{SERVE} -tp $N",
    ),
    "GPUs of a step": (f"srun --gres=gpu:4 {SERVE} -tp 4", f"srun --gres=gpu:2 {SERVE} -tp 2"),
    "typed GPUs of a step": (
        f"srun --gres=gpu:a100:4 {SERVE} -tp 4",
        f"srun --gres=gpu:h200:2 {SERVE} -tp 2",
    ),
    "GPUs of a step beside others": (
        f"srun --gres nvme:1,gpu:4 {SERVE} -tp 4",
        f"srun --gres gpu:2,nvme:1 {SERVE} -tp 2",
    ),
    "no GPUs of a step": (f"srun --gres=gpu:0 {SERVE} -tp 4", f"srun --gres=gpu:0 {SERVE} -tp 2"),
    "gpus of a step": (f"srun --gpus=4 {SERVE} -tp 4", f"srun --gpus=2 {SERVE} -tp 2"),
    "short gpus of a step": (f"srun -G4 -n1 {SERVE} -tp 4", f"srun -G2 -n1 {SERVE} -tp 2"),
    "typed gpus of a step": (
        f"srun -G a100:4 {SERVE}",
        f"srun -G h200:2 {SERVE} --tensor-parallel-size 2",
    ),
    "gpus per node of a step": (
        f"srun --gpus-per-node=4 {SERVE} -tp 4",
        f"srun --gpus-per-node=2 {SERVE} -tp 2",
    ),
    "gpus per task of a step": (
        f"srun --gpus-per-task 4 {SERVE} -tp 4",
        f"srun --gpus-per-task 2 {SERVE} -tp 2",
    ),
    "GPUs of a step behind the degree": (
        f"TP=16\nsrun --gres=gpu:4 {SERVE} -tp $TP",
        f"TP=2\nsrun --gres=gpu:2 {SERVE} -tp $TP",
    ),
    "one variable for step and degree": (
        f"N=4\nsrun --gres=gpu:$N {SERVE} -tp $N",
        f"N=2\nsrun --gres=gpu:$N {SERVE} -tp $N",
    ),
    "variables of the job in a step": (
        f"srun --gpus=$SLURM_GPUS_ON_NODE {SERVE} -tp 4",
        f"srun --gpus=$SLURM_GPUS_ON_NODE {SERVE} -tp 2",
    ),
    "a degree that is also printed": (
        f"TP=4\necho tp $TP\n{SERVE} -tp $TP",
        f"TP=2\necho tp $TP\n{SERVE} -tp $TP",
    ),
    "a degree that is shown in a text": (
        f"TP=4\ncat <<E\n$TP\nE\n{SERVE} -tp $TP",
        f"TP=2\ncat <<E\n$TP\nE\n{SERVE} -tp $TP",
    ),
    "a degree that is exported": (
        f"export TP=4 A=1\n{SERVE} -tp $TP",
        f"export TP=2 A=1\n{SERVE} -tp $TP",
    ),
    "a degree in a log file's name": (
        f"TP=4\n{SERVE} -tp $TP > tp$TP.log",
        f"TP=2\n{SERVE} -tp $TP > tp$TP.log",
    ),
    "a degree that is tested": (
        f"TP=4\n[ $TP -le 4 ] || exit 1\n{SERVE} -tp $TP",
        f"TP=2\n[ $TP -le 4 ] || exit 1\n{SERVE} -tp $TP",
    ),
    "text that is not ASCII": (f"echo Grüße\n{SERVE} -tp 4", f"echo Grüße\n{SERVE} -tp 2"),
}


@pytest.mark.parametrize("name", MOVED)
def test_moves(name: str) -> None:
    before, after = MOVED[name]
    assert body_after(before) == after


NOT_MOVED = {
    "a degree that is also the data parallel one": f"N=4\n{SERVE} -tp $N -dp $N",
    "a degree in another option": f"N=4\n{SERVE} -tp $N --max-num-seqs $N",
    "a degree in an option of the server": f"N=4\n{SERVE} -tp $N --port 800$N",
    "a degree for a client": f"N=4\n{SERVE} -tp $N &\npython client.py --gpus $N",
    "a degree in a name": f"N=4\n{SERVE} -tp $N --served-model-name m-$N",
    "a degree in the environment of a command": f"N=4\nOMP_NUM_THREADS=$N {SERVE} -tp $N",
    "a degree exported under another name": f"N=4\nexport OMP_NUM_THREADS=$N\n{SERVE} -tp $N",
    "a degree in a text for a program": f"N=4\npython - <<E\nprint($N)\nE\n{SERVE} -tp $N",
    "a degree in the name of the folder": f"N=4\ncd runs/$N\n{SERVE} -tp $N",
    "a degree in a file": f"N=4\ncat > c.json <<E\n$N\nE\n{SERVE} -tp $N",
    "a degree that decides": f"N=4\nQ=awq\n[ $N -gt 2 ] && Q=fp8\n{SERVE} -tp $N -q $Q",
    "a degree that must be so": f"N=4\n[ $N -eq 4 ] || exit 1\n{SERVE} -tp $N",
    "a sum with the degree": f"N=4\n{SERVE} -tp $N --port $((8000+N))",
    "a loop over the degree": f"N=4\n{SERVE} -tp $N &\nfor i in $(seq 1 $N); do ping h; done",
    "an option that follows the allocation": f"{SERVE} -tp 4 --max-num-seqs $SLURM_GPUS_ON_NODE",
    "a calculation with the allocation": f"{SERVE} -tp $((SLURM_GPUS_ON_NODE / 4))",
    "a guard on the allocation": f"[ $SLURM_GPUS_ON_NODE = 4 ] || exit 1\n{SERVE} -tp 4",
}


@pytest.mark.parametrize("name", NOT_MOVED)
def test_a_degree_that_feeds_something_else_is_left_alone(name: str) -> None:
    found = moved(submitted(HEAD + NOT_MOVED[name] + "\n"))
    text = "the changed script would not read as intended"
    assert found == Reason(code="not_verified", text=text)


FIXED = {
    "GPUs per socket": f"srun --gpus-per-socket=2 {SERVE}",
    "tasks per GPU": f"srun --ntasks-per-gpu=1 {SERVE}",
    "trackable resources": f"srun --tres-per-task=gres/gpu:4 {SERVE}",
    "GPUs in a variable of their own": f"G=$(cat g)\nsrun --gres=gpu:$G {SERVE}",
    "GPUs that are computed": f"G=$((2+2))\nsrun --gres=gpu:$G {SERVE}",
    "two kinds of GPUs": f"srun --gres=gpu:a100:2,gpu:h100:2 {SERVE}",
    "a kind and a kind": f"srun --gpus=a100:2,h100:2 {SERVE}",
    "a form that is not known": f"srun --gres=gpu=4 --gpus=four {SERVE}",
}


@pytest.mark.parametrize("name", FIXED)
def test_a_step_that_cannot_follow_keeps_the_job_where_it_is(name: str) -> None:
    found = moved(submitted(HEAD + FIXED[name] + "\n"))
    text = "an srun asks for GPUs in a way that cannot follow"
    assert found == Reason(code="step_fixed", text=text)


def job(options: str, body: str = f"{SERVE} -tp 4", **env: str) -> Submission:
    return submitted(f"#!/bin/bash\n#SBATCH {options}\n{body}\n", **env)


FIELDS: dict[str, dict[str, str]] = {
    "--gres=gpu:a100:4": {"gres": "gpu:h200:2"},
    "--gres=gpu:4,nvme:1": {"gres": "gpu:h200:2,nvme:1"},
    "--gpus=4": {"gres": "gpu:h200:2", "tres_per_job": ""},
    "--gpus-per-node=a100:4": {"gres": "gpu:h200:2"},
    "--gpus-per-task=4": {"gres": "gpu:h200:2", "tres_per_task": ""},
    "--tres-per-task=cpu=8,gres/gpu:4": {"gres": "gpu:h200:2", "tres_per_task": ""},
    "--gpus-per-socket=4": {"gres": "gpu:h200:2", "tres_per_socket": ""},
    "--exclusive": {"gres": "gpu:h200:2"},
}


@pytest.mark.parametrize("options", FIELDS)
def test_the_request_moves_in_all_its_fields(options: str) -> None:
    submission = job(options)
    found = moved(submission)
    assert isinstance(found, Rewrite)
    assert found.fields == FIELDS[options]
    check(submission, found, ARM)


@pytest.mark.parametrize(
    "options",
    ["--gres=gpu:$N", "--gpus=$N", "--tres-per-task=gres/gpu:4,license/x:1"],
)
def test_a_request_with_more_in_it_than_gpus_is_not_taken_apart(options: str) -> None:
    text = "the job's GPU request cannot be read in full"
    assert moved(job(options)) == Reason(code="gres_unreadable", text=text)


def test_variables_that_sbatch_has_set_move_with_the_request() -> None:
    found = moved(job("--gpus=a100:4", SLURM_GPUS="a100:4", SLURM_GPUS_PER_SOCKET="2", A="1"))
    assert isinstance(found, Rewrite)
    assert found.env == {"SLURM_GPUS": "h200:2", "SLURM_GPUS_PER_SOCKET": ""}


def test_a_degree_in_such_a_variable_follows_it() -> None:
    submission = job("--gpus=4", f"{SERVE} -tp $SLURM_GPUS", SLURM_GPUS="4")
    found = moved(submission)
    assert isinstance(found, Rewrite)
    assert (found.edits, found.env) == ((), {"SLURM_GPUS": "2"})
    check(submission, found, ARM)


def test_the_partition_moves_without_the_request_where_the_gpus_stay() -> None:
    arm = Arm(partition="big", gpu="A100", gres_type="a100", n_gpus=4, tensor_parallel=4)
    assert moved(job("--gres=gpu:a100:4 -p small"), arm) == Rewrite(fields={"partition": "big"})
    assert moved(job("--gres=gpu:a100:4 -p big"), arm) == Rewrite()


def test_gpus_of_any_type_stay_where_the_arm_names_none() -> None:
    arm = Arm(partition=None, gpu="A100", gres_type=None, n_gpus=4, tensor_parallel=2)
    found = moved(job("--gres=gpu:4"), arm)
    assert isinstance(found, Rewrite)
    assert found.fields == {}
    assert [edit.new for edit in found.edits] == [b"2"]


def test_a_launch_that_may_not_be_edited_says_why() -> None:
    submission = submitted(HEAD + f"if [ -d x ]; then {SERVE}; fi\n")
    assert launch_of(submission).editable is Editable.NO
    found = moved(submission)
    assert found == Reason(code="not_editable", text="the launch is inside a branch")


def test_a_variable_that_was_set_at_submission_wins() -> None:
    body = "vllm serve ${MODEL:-M/x} -tp ${TP:-4}"
    submission = job("-G 4", body)
    (launch,) = serving.find(submission, tres.request_of(submission)).launches
    assert launch.editable is Editable.CONDITIONAL
    submission = job("-G 4", body, TP="8", MODEL="M/y")
    found = rewrite.rewrite(submission, launch, ARM, expired=never)
    assert found == Reason(code="not_editable", text="MODEL, TP was set at submission")


def test_a_script_that_chooses_devices_of_the_new_gpus_is_left_alone() -> None:
    pin = "if [ $SLURM_GPUS_ON_NODE = 2 ]; then export CUDA_VISIBLE_DEVICES=0; fi"
    found = moved(job("--gres=gpu:4", f"{pin}\n{SERVE} -tp 4"))
    assert isinstance(found, Reason)
    assert found.code == "not_verified"


def test_tasks_that_are_counted_from_gpus_keep_the_job_where_it_is() -> None:
    text = "--ntasks-per-gpu ties the number of tasks to the GPUs"
    found = moved(job("-G 4 --ntasks-per-gpu=1"))
    assert found == Reason(code="not_editable", text=text)


def test_a_script_that_takes_too_long_is_left_alone() -> None:
    submission = job("-G 4")
    found = rewrite.rewrite(submission, launch_of(submission), ARM, expired=lambda: True)
    assert isinstance(found, Reason)
    assert found.code == "not_verified"


def test_a_launch_of_another_script_is_not_taken_for_this_one() -> None:
    launch = launch_of(job("-G 4", f"{SERVE} -tp 4"))
    for body in ("echo vllm", f"{SERVE} --port 1 --host h -tp 4", "vllm serve M/y -tp 4"):
        found = rewrite.rewrite(job("-G 4", body), launch, ARM, expired=never)
        assert isinstance(found, Reason)
        assert found.code == "not_verified"


bodies = st.tuples(
    st.sampled_from(["", "export A=1\n", "M=1 # ü\n", "echo 'a\"b'\n", "f() { :; }\n"]),
    st.sampled_from(["", "srun ", "srun --gres=gpu:4 ", "nohup ", "env A=1 ", "srun -G 4 -n1 "]),
    st.sampled_from([
        "vllm serve M/x", "vllm serve --port 1 M/x -tp 4", 'vllm serve "M/x" \\\n  -tp=4 \\\n  -q',
        "python -m vllm.entrypoints.openai.api_server --model M/x --tensor-parallel-size '4'",
        "bash -c 'vllm serve M/x -tp 4'", 'vllm serve M/x -tp "${TP:-4}"',
    ]),
    st.sampled_from(["", " &\nwait", " > log 2>&1", " | tee l", " # -tp 8", " \\\n# x", "; :"]),
    st.integers(1, 128),
).map(lambda drawn: ("".join(drawn[:4]), drawn[4]))  # fmt: skip


@settings(deadline=None)
@given(bodies)
def test_whatever_is_moved_is_moved_whole(drawn: tuple[str, int]) -> None:
    body, n_gpus = drawn
    arm = Arm(partition=None, gpu="x", gres_type="x", n_gpus=n_gpus, tensor_parallel=n_gpus)
    assert f"{n_gpus}" in body_after(body, arm) or n_gpus == 1
