"""The throwaway Slurm itself, on the Slurm of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.cluster.reader import ClusterReader
from omnipilot_slurm.cluster.source import CommandSource
from omnipilot_slurm.cluster_facts import NodeState
from omnipilot_slurm.errors import SandboxError, SlurmError
from omnipilot_slurm.sandbox import DEFAULT_NODES

pytestmark = pytest.mark.slurm

SERVE_AND_STEP = """#!/bin/bash
vllm serve org/model --tensor-parallel-size 2
srun python -m vllm.entrypoints.openai.api_server --model org/model
"""
TRIVIAL_PLUGIN = """
function slurm_job_submit(job_desc, part_list, submit_uid)
  slurm.log_user("seen by the plugin: %s", job_desc.name)
  return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
"""


def pids(sandbox):
    return {row.name: row.pid for row in sandbox.status()}


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def gone(pid, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


@pytest.fixture
def small(make_sandbox):
    """A sandbox of a test's own: one node, no accounting."""
    sandbox = make_sandbox(accounting=False, nodes=DEFAULT_NODES[:1])
    yield sandbox
    sandbox.down()


@pytest.mark.parametrize("node", DEFAULT_NODES, ids=lambda node: node.name)
def test_a_job_of_each_partition_sees_its_gpus_and_so_does_its_srun_step(slurm, node):
    answer = slurm.submit(
        [f"--partition={node.gres_type}", f"--gres=gpu:{node.gres_type}:2"], script=SERVE_AND_STEP
    )
    assert slurm.wait(answer.job_id).state == "COMPLETED", answer
    batch, step = slurm.records(answer.job_id)
    assert batch.argv == ("vllm", "serve", "org/model", "--tensor-parallel-size", "2")
    assert step.argv == ("vllm.entrypoints.openai.api_server", "--model", "org/model")
    assert (batch.step_id, step.step_id) == (None, "0")
    for start in (batch, step):
        assert start.cuda_visible_devices == "0,1"
        assert start.node == node.name
        assert start.user == "nobody"
        assert start.slurm["SLURM_JOB_PARTITION"] == node.gres_type


def test_the_stand_in_is_found_whatever_the_submitters_environment(slurm):
    args = ["--export=NONE", "--gpus=1"]
    answer = slurm.submit(args, script=SERVE_AND_STEP, env={"PATH": "/usr/bin:/bin"})
    slurm.wait(answer.job_id)
    assert [start.argv[0] for start in slurm.records(answer.job_id)] == [
        "vllm",
        "vllm.entrypoints.openai.api_server",
    ]


def test_jobs_share_a_nodes_gpus_and_never_one_gpu(slurm):
    script = "#!/bin/bash\nvllm serve m\nsleep 1\n"
    answers = [slurm.submit(["-p", "h200", "--gres=gpu:h200:4"], script=script) for _ in range(2)]
    for answer in answers:
        slurm.wait(answer.job_id)
    seen = [slurm.records(answer.job_id)[0].cuda_visible_devices for answer in answers]
    assert sorted(seen) == ["0,1,2,3", "4,5,6,7"]


def test_slurmdbd_keeps_jobs_with_gpus_by_type_and_the_account(slurm):
    answer = slurm.submit(["-p", "a100-80", "--gres=gpu:a100-80:3"], script="#!/bin/sh\ntrue\n")
    slurm.wait(answer.job_id)
    words = ("sacct", "-nXP", "-j", str(answer.job_id), "-o", "account,user,alloctres")
    deadline = time.monotonic() + 20
    while "gres/gpu:a100-80=3" not in (kept := slurm.run(*words)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert kept.startswith("llm|nobody|")
    assert "gres/gpu:a100-80=3" in kept
    users = slurm.run("sacctmgr", "-nP", "list", "associations", "account=llm", "format=user")
    assert set(users.split()) == {"nobody", "daemon"}


def test_up_again_leaves_everything_running_as_it_is(slurm):
    before = pids(slurm)
    slurm.up()
    assert pids(slurm) == before
    assert {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-h200n1"} <= set(before)
    assert all(before.values())


def test_two_side_by_side_have_ports_and_jobs_of_their_own(slurm, small):
    small.up()
    ports = [json.loads(box.folders.settings.read_text())["port_base"] for box in (slurm, small)]
    assert len(set(ports)) == 2
    answer = small.submit(["--gres=gpu:1"], script=SERVE_AND_STEP)
    assert small.wait(answer.job_id).state == "COMPLETED"
    assert all(start.slurm["SLURM_CONF"] == str(small.folders.slurm_conf)
               for start in small.records())  # fmt: skip
    before = pids(slurm)
    small.down()
    assert pids(slurm) == before
    assert slurm.run("scontrol", "ping").startswith("Slurmctld(primary) at ")


def test_down_ends_jobs_and_daemons_and_comes_up_again_with_the_same_ports(small):
    small.up()
    ports = small.folders.settings.read_text()
    answer = small.submit([], script="#!/bin/sh\necho $$ > ~/pid\nexec sleep 600\n")
    pid_file = small.folders.scratch / "nobody" / "pid"
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    job_pid, daemon_pids = int(pid_file.read_text()), pids(small).values()
    small.down()
    assert small.status() == ()
    assert not any(map(is_alive, [job_pid, *daemon_pids]))
    small.up()
    assert small.folders.settings.read_text() == ports
    assert answer.job_id not in [job.job_id for job in small.jobs() if not job.has_ended]


def test_a_tight_umask_of_the_caller_closes_nothing_to_jobs(small):
    before = os.umask(0o077)
    try:
        small.up()
        answer = small.submit(["--gres=gpu:1"], script=SERVE_AND_STEP)
    finally:
        os.umask(before)
    assert small.wait(answer.job_id).state == "COMPLETED"
    assert len(small.records(answer.job_id)) == 2


def test_down_ends_what_a_killed_slurmctld_and_slurmd_left_behind(small):
    small.up()
    small.submit([], script="#!/bin/sh\necho $$ > ~/pid\nexec sleep 600\n")
    pid_file = small.folders.scratch / "nobody" / "pid"
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for name in ("slurmctld", "slurmd-a100n1"):
        os.kill(pids(small)[name], signal.SIGKILL)
    small.down()
    assert gone(int(pid_file.read_text()))


def test_down_leaves_a_stranger_that_took_a_process_number_over(small):
    small.up()
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        path = small.folders.running / "munged.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"pid": stranger.pid}))
        small.down()
        assert stranger.poll() is None
        stranger.kill()
    # munged itself, whose record was lost, is known by its mark
    assert gone(record["pid"])


def test_a_plugin_is_installed_changed_and_removed_by_up(small, tmp_path):
    small.up()
    assert small.submit([], script=SERVE_AND_STEP).stderr == ""
    (tmp_path / "job_submit.lua").write_text(TRIVIAL_PLUGIN)
    small.plugin = tmp_path
    small.up()
    answer = small.submit(["-J", "100% mine"], script=SERVE_AND_STEP)
    assert answer.stderr == "sbatch: seen by the plugin: 100% mine\n"
    small.restart_ctld()
    small.reconfigure()
    assert "seen by the plugin" in small.submit([], script=SERVE_AND_STEP).stderr
    small.plugin = None
    small.up()
    assert small.submit([], script=SERVE_AND_STEP).stderr == ""


def test_a_slurmctld_that_does_not_start_says_why(small, tmp_path):
    (tmp_path / "job_submit.lua").write_text("this is not Lua")
    small.plugin = tmp_path
    with pytest.raises(SandboxError) as caught:
        small.up()
    assert str(caught.value).startswith("slurmctld died while it started: ")
    assert "job_submit" in str(caught.value)


def test_a_refused_job_has_no_number_and_says_why(slurm):
    answer = slurm.submit(["-p", "nonesuch"], script=SERVE_AND_STEP)
    assert (answer.job_id, answer.returncode) == (None, 1)
    assert "invalid partition specified: nonesuch" in answer.stderr
    with pytest.raises(SlurmError):
        slurm.job(10**6)


def test_a_user_that_does_not_exist_is_named(slurm):
    with pytest.raises(SandboxError) as caught:
        slurm.submit([], script=SERVE_AND_STEP, user="nobody-at-all")
    assert str(caught.value) == "user must be an account of this machine, was 'nobody-at-all'"


def test_the_daemons_listen_on_loopback_only(small):
    small.up()
    base = json.loads(small.folders.settings.read_text())["port_base"]
    listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[3] for line in listening.splitlines()}
    ours = {address for address in addresses if base <= int(address.rpartition(":")[2]) < base + 3}
    assert ours == {f"127.0.0.1:{base}", f"127.0.0.1:{base + 2}"}


def test_only_root_may_bring_one_up():
    # a fork, since another account may not be able to start our interpreter
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        with os.fdopen(writer, "w") as stream, contextlib.redirect_stderr(stream):
            code = main(["sandbox", "--folder", "/tmp/omnipilot-nobody", "up"])
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert said == (
        "error: the sandbox must run as root, was started as uid 65534\n"
        "hint: slurmd starts jobs for other users; try `sudo omnipilot sandbox up`\n"
    )


def test_the_command_line_does_the_whole_round(small, tmp_path, capsys):
    here = ["sandbox", "--folder", str(small.folders.root)]
    assert main([*here, "status"]) == 1
    assert main([*here, "up", "--no-accounting", "--mode=off"]) == 0
    assert f"export SLURM_CONF={small.folders.slurm_conf}\n" in capsys.readouterr().out
    assert main([*here, "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["daemons"] == pids(small)
    assert main([*here, "env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == small.env()
    script = tmp_path / "serve.sh"
    script.write_text('#!/bin/bash\nvllm serve "$@"\n')
    assert (
        main([*here, "submit", "-p", "h100", "--gres=gpu:1", str(script), "org/m", "-tp", "1"]) == 0
    )
    job_id = int(capsys.readouterr().out.removeprefix("Submitted batch job "))
    small.wait(job_id)
    assert small.records(job_id)[0].argv == ("vllm", "serve", "org/m", "-tp", "1")
    assert main([*here, "submit", "-p", "nonesuch", str(script)]) == 1
    assert main([*here, "down"]) == 0
    capsys.readouterr()
    assert main([*here, "submit", str(script)]) == 1
    assert capsys.readouterr().err == (
        f"error: no sandbox is up in '{small.folders.root}'\n"
        "hint: bring it up with `omnipilot sandbox up`\n"
    )
    assert main([*here, "status"]) == 1


def test_a_snapshot_of_it_shows_what_jobs_hold_and_what_is_drained(slurm):
    reader = ClusterReader(CommandSource(env={"PATH": os.environ["PATH"], **slurm.env()}))

    def partitions():
        return {row.name: row for row in reader.read(time.time()).partitions}

    answer = slurm.submit(["-p", "h100", "--gres=gpu:h100:3"], script="#!/bin/sh\nsleep 600\n")
    deadline = time.monotonic() + 20
    while slurm.job(answer.job_id).state != "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.05)
    (shape,) = partitions()["h100"].shapes
    assert shape.free[0].gpus == {"h100": 1}
    assert (shape.gpus, shape.cpus, shape.features) == ({"h100": 4}, 96, {"h100", "gpu80g"})
    slurm.run("scancel", str(answer.job_id))
    slurm.run("scontrol", "update", "nodename=a100n1", "state=drain", "reason=State=IDLE")
    slurm.run("scontrol", "update", "partitionname=a100", "state=down", "maxtime=2-12:30:00")
    try:
        a100 = partitions()["a100"]
        assert (a100.is_up, a100.max_time_min) == (False, 3630)
        assert (a100.shapes[0].state, a100.shapes[0].free) == (NodeState.DRAINED, ())
    finally:
        slurm.run("scontrol", "update", "nodename=a100n1", "state=resume")
        slurm.run("scontrol", "update", "partitionname=a100", "state=up", "maxtime=infinite")
    snapshot = reader.read(time.time())
    assert [qos.name for qos in snapshot.qos] == ["normal"]
    assert snapshot.cluster_name == "sandbox"
