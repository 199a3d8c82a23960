"""What becomes of jobs, ports that do not collide, and the stand-in for vLLM."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from omnipilot_slurm.cli.sandbox import _split
from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox import Folders, vllm_stand_in
from omnipilot_slurm.sandbox.jobs import parse_jobs, read_records
from omnipilot_slurm.sandbox.ports import free_ports

JOB = (
    "JobId=7 JobName=name with blank=x UserId=nobody(65534) JobState=RUNNING Partition=a100"
    " AllocNode:Sid=here:1 Comment=a JobState=FAILED TresPerNode=gres:gpu:a100:3 "
)


def test_free_text_of_a_job_cannot_pose_as_its_state():
    (job,) = parse_jobs(f"{JOB}\nNo jobs in the system\n")
    assert (job.job_id, job.state, job.partition) == (7, "RUNNING", "a100")
    assert not job.has_ended
    assert job.fields["TresPerNode"] == "gres:gpu:a100:3 "


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"])
def test_a_job_that_is_over_has_ended(state):
    (job,) = parse_jobs(JOB.replace("RUNNING", state))
    assert job.has_ended


def test_two_sandboxes_that_come_up_together_never_share_a_port(tmp_path):
    with free_ports(tmp_path, 6, wanted=None, fixed=False) as one:
        with free_ports(tmp_path, 6, wanted=None, fixed=False) as two:
            assert not set(range(one, one + 6)) & set(range(two, two + 6))
        with (
            pytest.raises(SandboxError) as caught,
            free_ports(tmp_path, 6, wanted=one + 3, fixed=True),
        ):
            pass
    assert str(caught.value) == f"port_base must be the first of 6 free ports, was {one + 3}"
    with free_ports(tmp_path, 6, wanted=one, fixed=True) as again:
        assert again == one


def test_a_port_that_somebody_listens_on_is_not_free(tmp_path):
    with free_ports(tmp_path, 2, wanted=None, fixed=False) as base:
        pass
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", base + 1))
        listening.listen()
        with free_ports(tmp_path, 2, wanted=base, fixed=False) as other:
            assert other != base


@pytest.mark.parametrize("module", [None, "vllm.entrypoints.openai.api_server"])
def test_the_stand_in_notes_how_it_was_started(tmp_path, module):
    source = Path(vllm_stand_in.__file__)
    if module is not None:
        link = tmp_path / f"{module.replace('.', '/')}.py"
        link.parent.mkdir(parents=True)
        link.symlink_to(source)
    folders = Folders(tmp_path)
    folders.records.mkdir()
    words = [sys.executable, *(["-m", module] if module else [str(source)]), "--model", "org/m"]
    environment = {
        "OMNIPILOT_RECORDS": str(folders.records),
        "PYTHONPATH": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOB_ID": "42",
        "SLURM_STEP_ID": "0",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURMD_NODENAME": "h100n1",
        "HF_TOKEN": "secret",
    }
    subprocess.run(words, env=environment, check=True)
    (start,) = read_records(folders)
    assert start.argv == (module or "vllm", "--model", "org/m")
    assert (start.job_id, start.step_id, start.node) == (42, "0", "h100n1")
    assert start.cuda_visible_devices == "0,1"
    assert start.slurm == {
        "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_GPUS_ON_NODE": "2",
    }  # fmt: skip
    assert start.host == socket.gethostname()
    assert "secret" not in json.dumps(list(map(str, folders.records.iterdir())))
    assert "secret" not in next(folders.records.iterdir()).read_text()


def test_the_script_among_sbatchs_arguments_is_found_and_its_text_travels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "serve.sh"
    script.write_bytes(b"#!/bin/bash\nvllm serve $1\n")
    (tmp_path / "out.log").write_text("not a script")
    words = ("--hold", "-o", "out.log", "--gres=gpu:1", "serve.sh", "org/model", "serve.sh")
    assert _split(words) == (words[:4], script.read_bytes(), ("org/model", "serve.sh"))
    assert _split(("--wrap", "vllm serve m")) == (("--wrap", "vllm serve m"), None, ())
