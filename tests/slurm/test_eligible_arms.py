"""Every arm that is proposed is one that slurmctld takes, whatever a partition or a QOS allows.

`omnipilot advise` lists all arms of a job, each with what forbids it; sbatch --test-only says of
the same places what slurmctld makes of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from daemon_requests import reload

from omnipilot_slurm.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.sandbox import Sandbox

pytestmark = pytest.mark.slurm

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
#: the partition whose settings are changed
CHANGED = "h100"


def arms_of(site: Sandbox, args: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `omnipilot advise` says of every arm on which the server starts."""
    job = site.folders.root / "eligible.sh"
    head = [f"#SBATCH {word}" for word in ("--gres=gpu:a100:1", *args)]
    job.write_text("\n".join(["#!/bin/bash", *head, SERVE, ""]))
    out = io.StringIO()
    command = ["advise", "--json", "--user", "nobody", "--account", "llm"]
    with contextlib.redirect_stdout(out):
        main([*command, "--config", str(site.folders.pilot), str(job)])
    found: list[dict[str, Any]] = json.loads(out.getvalue())["arms"]
    assert len(found) == 13
    return [arm for arm in found if arm["starts"] == "starts"]


def takes(site: Sandbox, arm: dict[str, Any], args: Sequence[str]) -> tuple[bool, str]:
    """Return whether slurmctld takes the job on an arm, and what it says."""
    name = arm["partition"]
    # a partition of the sandbox is named after its GPUs' type
    place = ["-p", name, f"--gres=gpu:{name}:{arm['n_gpus']}"]
    script = f"#!/bin/bash\n#OMNIPILOT off\n{SERVE}\n"
    done = site.submit(["--test-only", *args, *place], script=script)
    return done.returncode == 0, done.stderr


def check(
    site: Sandbox, args: Sequence[str], *, sizes: tuple[int, ...] = (1, 2, 4, 8)
) -> list[dict[str, Any]]:
    """Check that slurmctld takes every arm that may be proposed; return those that may not."""
    found = arms_of(site, args)
    may_be_proposed = [arm for arm in found if arm["blocked"] is None and arm["n_gpus"] in sizes]
    assert may_be_proposed
    for arm in may_be_proposed:
        is_taken, said = takes(site, arm, args)
        assert is_taken, (arm["partition"], arm["n_gpus"], said)
    return [arm for arm in found if arm["blocked"] is not None]


@contextmanager
def changed(site: Sandbox, setting: str, back: str) -> Iterator[None]:
    site.run("scontrol", "update", f"partitionname={CHANGED}", setting)
    reload(site)
    try:
        yield
    finally:
        site.run("scontrol", "update", f"partitionname={CHANGED}", back)
        reload(site)


@pytest.mark.parametrize(
    ("args", "closed"),
    [
        ([], set()),
        (["--constraint=h100|gpu141g"], {"a100", "a100-80"}),
        (["--constraint=gpu80g&h100"], {"a100", "a100-80", "h200"}),
        (["--cpus-per-gpu=24"], {"a100", "a100-80", "h200"}),
        (["--mem-per-gpu=300G"], {"a100", "a100-80", "h100", "h200"}),
        (["--mem=900G"], {"a100"}),
        (["--cpus-per-task=80"], {"a100", "a100-80"}),
        (["--ntasks=4", "--cpus-per-task=20"], {"a100", "a100-80"}),
        (["--mem-per-cpu=20G", "--cpus-per-task=32"], {"a100"}),
    ],
)
def test_arms_are_those_that_a_job_fits(
    pilot_site: Sandbox, args: list[str], closed: set[str]
) -> None:
    forbidden = check(pilot_site, args)
    assert {arm["partition"] for arm in forbidden} == closed
    # and none is left out that slurmctld would take
    for arm in forbidden:
        is_taken, _ = takes(pilot_site, arm, args)
        assert not is_taken, (arm["partition"], arm["n_gpus"], arm["blocked"])


@pytest.mark.parametrize(
    ("setting", "back"),
    [
        ("AllowAccounts=nobody_has_this", "AllowAccounts=ALL"),
        ("DenyAccounts=llm", "DenyAccounts="),
        ("AllowQos=nobody_has_this", "AllowQos=ALL"),
        ("DenyQos=normal", "DenyQos="),
        ("AllowGroups=root", "AllowGroups=ALL"),
        ("MaxTime=10", "MaxTime=UNLIMITED"),
        ("MinNodes=2", "MinNodes=1"),
        ("MaxCPUsPerNode=1", "MaxCPUsPerNode=UNLIMITED"),
        ("RootOnly=YES", "RootOnly=NO"),
        ("ReqResv=YES", "ReqResv=NO"),
    ],
)
def test_partition_that_would_refuse_a_job_or_let_it_wait_for_ever_is_never_proposed(
    pilot_site: Sandbox, setting: str, back: str
) -> None:
    args = ["--time=60", "--cpus-per-task=2", "--account=llm", "--qos=normal"]
    with changed(pilot_site, setting, back):
        forbidden = check(pilot_site, args, sizes=(1,))
        assert {arm["partition"] for arm in forbidden} == {CHANGED}


def restart(site: Sandbox) -> None:
    """Start slurmctld anew, and let the daemon read the cluster once its nodes are back."""
    site.restart_ctld()
    for _ in range(100):
        if set(site.run("sinfo", "-hN", "-o", "%t").split()) <= {"idle", "mix", "alloc"}:
            break
        time.sleep(0.1)
    reload(site)


def test_arm_over_a_limit_of_the_qos_is_never_proposed(pilot_site: Sandbox) -> None:
    args = ["--time=60", "--account=llm", "--qos=normal"]
    limit = ["sacctmgr", "-i", "modify", "qos", "normal", "set"]
    conf = pilot_site.folders.slurm_conf
    before = conf.read_text()
    conf.write_text(f"{before}AccountingStorageEnforce=associations,limits,qos\n")
    pilot_site.run(*limit, "MaxTRESPerJob=gres/gpu=2", "Flags=DenyOnLimit")
    try:
        restart(pilot_site)
        forbidden = check(pilot_site, args)
        assert {arm["n_gpus"] for arm in forbidden} == {4, 8}
        assert not takes(pilot_site, forbidden[0], args)[0]
    finally:
        conf.write_text(before)
        pilot_site.run(*limit, "MaxTRESPerJob=gres/gpu=-1", "Flags-=DenyOnLimit")
        restart(pilot_site)
