"""The shim inside a real slurmctld, with a daemon that the tests play."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from pathlib import Path

import pytest
from scripted_daemon import PASS, ScriptedDaemon, answer_late, hang, hang_up

pytestmark = pytest.mark.slurm

LUA_FOLDER = Path(__file__).parents[2] / "lua"
SERVE = "#!/bin/bash\nvllm serve org/model --tensor-parallel-size 1\nsrun vllm serve x\n"
TP_AT = SERVE.index("1\nsrun")
LIBRARIES = ["luasocket", "lua-posix"]
ADVICE = PASS | {"verdict": "advise", "messages": ["a word"], "tag": "omnipilot=k3f9:advise"}
REWRITE_LINE = json.dumps(
    {
        "v": 1, "id": "k3f9", "verdict": "rewrite", "messages": ["now on h100"],
        "fields": {"partition": "h100", "gres": "gpu:h100:2"}, "tag": "omnipilot=k3f9:rewrite",
    }
).encode()  # fmt: skip


class Site:
    """A sandbox whose job_submit.lua is the example, with a scripted daemon behind it."""

    def __init__(self, sandbox, plugin) -> None:
        self.sandbox = sandbox
        self.plugin = plugin
        self.daemon = ScriptedDaemon(sandbox.folders.root / "omnipilot.sock")

    def install(self, **settings: str) -> None:
        """Write both Lua files, and start slurmctld anew; settings are Lua expressions."""
        given = {
            "socket": f'"{self.daemon.path}"',
            # a test machine may be busy
            "deadline_ms": "2000",
            "ping_ms": "2000",
            **settings,
        }
        text = (LUA_FOLDER / "job_submit.lua").read_text()
        text = text.replace(
            "/etc/slurm/omnipilot.lua", str(self.sandbox.folders.etc / "omnipilot.lua")
        )
        text = text.replace(
            'socket = "/run/omnipilot/omnipilotd.sock"',
            ", ".join(f"{name} = {value}" for name, value in given.items()),
        )
        for folder in (self.plugin, self.sandbox.folders.etc):
            if folder.is_dir():
                (folder / "job_submit.lua").write_text(text)
                shutil.copy(LUA_FOLDER / "omnipilot.lua", folder)

    def submit(self, *args, script=SERVE, **kwargs):
        """Submit a held job, so that what Slurm keeps of it can be looked at."""
        return self.sandbox.submit(["--hold", *args], script=script, **kwargs)

    def script_of(self, job_id) -> str:
        return self.sandbox.run("scontrol", "write", "batch_script", str(job_id), "-").rstrip("\n")

    def shows_unchanged(self, submitted, partition="a100", script=SERVE) -> bool:
        fields = self.sandbox.job(submitted.job_id).fields
        return (
            submitted.returncode == 0
            and submitted.stderr == ""
            and fields["Partition"] == partition
            and not fields.get("AdminComment")
            and self.script_of(submitted.job_id) == script.rstrip("\n")
        )

    def shim_log(self) -> list[str]:
        """What the shim logged since slurmctld was started last."""
        return [line.split("omnipilot: ", 1)[1] for line in self._log() if "omnipilot: " in line]

    def _log(self) -> list[str]:
        return self.sandbox.log()[self.log_from :].splitlines()

    def restart(self) -> None:
        self.log_from = len(self.sandbox.log())
        self.sandbox.restart_ctld()


@pytest.fixture(scope="module")
def running_site(make_sandbox, tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugin")
    for path in LUA_FOLDER.glob("*.lua"):
        shutil.copy(path, plugin)
    sandbox = make_sandbox(plugin=plugin, accounting=False)
    sandbox.up()
    return Site(sandbox, plugin)


@pytest.fixture
def site(running_site):
    """A slurmctld just started with the shim, and a daemon that lets everything pass."""
    running_site.daemon.behave = PASS
    running_site.daemon.requests.clear()
    running_site.daemon.start()
    running_site.install()
    running_site.restart()
    yield running_site
    running_site.daemon.stop()


def test_the_daemon_is_told_what_slurmctld_knows_of_the_job(site):
    args = ["--gpus=a100:1", "--time=30", "--comment=100 %", "--job-name=é", "-N1", "-n1"]
    script = SERVE + "echo $MODEL $HF_TOKEN\n"
    env = {"MODEL": "org/model", "HF_TOKEN": "hf_x"}
    site.submit(*args, script=script, script_args=["--port", "8 0"], env=env)
    (request,) = site.daemon.asked
    assert request["script"] == script
    assert request["argv"] == ["--port", "8 0"]
    assert request["env"] == {"SLURM_GPUS": "a100:1", "SLURM_NTASKS": "1", "MODEL": "org/model"}
    assert request["partitions"] == ["a100", "a100-80", "h100", "h200"]
    job = request["job"]
    # the prefix is another from 23.11 on
    assert job.pop("tres_per_job") in ("gres:gpu:a100:1", "gres/gpu:a100:1")
    assert job == {
        "user_name": "nobody", "name": "é", "comment": "100 %", "user_id": 65534,
        "group_id": 65534, "time_limit": 30, "min_nodes": 1, "max_nodes": 1, "num_tasks": 1,
        "min_cpus": 1, "priority": 0,
    }  # fmt: skip


REQUESTS = [
    ["--gres=gpu:a100:1"],
    ["--gpus-per-node=a100:1"],
    ["--gpus=1"],
    ["--gpus=a100:1"],
    ["--gpus-per-task=1", "-n1"],
    ["--gpus=1", "--mem-per-gpu=1G"],
    ["--gres=gpu:1", "--cpus-per-gpu=2"],
]


def rewrite_to_two_h100(request: dict) -> dict:
    """Rewrite as the daemon does: every GPU variable in the form that it had."""
    gpu_env = {
        name: re.sub(r"(a100:)?1$", lambda found: "h100:2" if found[1] else "2", value)
        for name, value in request["env"].items()
        if name.startswith("SLURM_GPUS") or name == "SLURM_TRES_PER_TASK"
    }
    edit = {"start": TP_AT, "end": TP_AT + 1, "old": "1", "new": "2"}
    emptied = dict.fromkeys(("tres_per_job", "tres_per_task", "tres_per_socket"), "")
    return json.loads(REWRITE_LINE) | {
        "fields": {"partition": "h100", "gres": "gpu:h100:2", **emptied},
        "env": gpu_env,
        "edits": [edit],
    }


def test_a_rewritten_job_runs_with_its_gpus_in_the_batch_step_and_under_srun(site):
    site.daemon.behave = lambda conn, request: conn.sendall(
        json.dumps(rewrite_to_two_h100(request)).encode() + b"\n"
    )
    submitted = [site.sandbox.submit(args, script=SERVE) for args in REQUESTS]
    assert [answer.stderr for answer in submitted] == ["sbatch: now on h100\n"] * len(REQUESTS)
    for args, answer in zip(REQUESTS, submitted, strict=True):
        job = site.sandbox.wait(answer.job_id, timeout_s=60)
        assert (job.state, job.partition) == ("COMPLETED", "h100"), args
        assert job.fields["AdminComment"].strip() == "omnipilot=k3f9:rewrite"
        batch, step = site.sandbox.records(answer.job_id)
        assert batch.argv == ("vllm", "serve", "org/model", "--tensor-parallel-size", "2")
        devices = [start.cuda_visible_devices.split(",") for start in (batch, step)]
        assert [len(set(seen)) for seen in devices] == [2, 2], args
        assert site.script_of(answer.job_id) == SERVE.replace("size 1", "size 2").rstrip("\n")


def test_messages_keep_percent_signs_newlines_and_utf8(site):
    messages = ["100 % of 80 GiB: %s %d", "naïve – 模型", "one\ntwo"]
    site.daemon.behave = ADVICE | {"messages": messages}
    submitted = site.submit()
    assert submitted.returncode == 0
    assert submitted.stderr.splitlines() == [
        "sbatch: 100 % of 80 GiB: %s %d",
        "sbatch: naïve – 模型",
        "sbatch: one",
        "sbatch: two",
    ]
    comment = site.sandbox.job(submitted.job_id).fields["AdminComment"]
    assert comment.strip() == "omnipilot=k3f9:advise"


def test_a_refusal_reads_well(site):
    lines = ["Job rejected: 141 GiB of weights, 39 GiB of GPU. Please ask for 4 GPUs."]
    site.daemon.behave = PASS | {"verdict": "reject", "messages": lines}
    submitted = site.submit("--gres=gpu:a100:1")
    assert submitted.job_id is None
    assert submitted.stderr.splitlines() == [
        f"sbatch: error: {lines[0]}",
        "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
    ]


def test_a_job_that_is_no_candidate_is_untouched_and_silent(site):
    script = "#!/bin/bash\nsrun hostname\n"
    assert site.shows_unchanged(site.submit(script=script), script=script)
    assert site.daemon.requests == []
    assert site.shim_log() == []


BAD_ANSWERS = {
    "garbage": b"\xff\x00\n",
    "half a line": REWRITE_LINE[:60],
    "no newline": REWRITE_LINE,
    "nothing": b"",
    "two lines": REWRITE_LINE + b"\n" + REWRITE_LINE + b"\n",
    "too much": b"x" * 5_000_000,
    "hung": hang,
    "hung up at once": hang_up,
    "after the deadline": answer_late(0.5, REWRITE_LINE + b"\n"),
    "an error": b'{"v":1,"error":{"code":"internal","text":"%s"}}\n',
    "a field that Slurm has not": REWRITE_LINE.replace(b'"gres"', b'"grease"') + b"\n",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_bad_answer_leaves_the_job_unchanged_with_one_line_in_the_log(site, library):
    for name, behave in BAD_ANSWERS.items():
        site.install(library=f'"{library}"', deadline_ms="100")
        site.restart()
        site.daemon.behave = behave
        assert site.shows_unchanged(site.submit("--gres=gpu:a100:1")), name
        assert len(site.shim_log()) == 1, name


@pytest.mark.parametrize("library", LIBRARIES)
def test_either_socket_library_brings_the_answer(site, library):
    site.install(library=f'"{library}"')
    site.restart()
    site.daemon.behave = ADVICE
    assert site.submit().stderr == "sbatch: a word\n"


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_a_daemon_jobs_pass_and_three_lines_and_the_breakers_are_logged(site, library):
    site.install(library=f'"{library}"')
    site.restart()
    site.daemon.stop()
    for _ in range(6):
        assert site.shows_unchanged(site.submit())
    lines = site.shim_log()
    assert len(lines) == 4
    assert lines[3].endswith("; jobs pass unasked for 1 s")


def test_a_hung_daemon_is_left_after_three_jobs_and_a_ping_and_asked_again_when_it_answers(site):
    site.install(deadline_ms="500", ping_ms="500")
    site.restart()
    site.daemon.behave = hang
    for _ in range(8):
        assert site.shows_unchanged(site.submit())
    asked = [request["op"] for request in site.daemon.requests]
    assert asked[:4] == ["decide", "decide", "decide", "ping"]
    assert set(asked[4:]) <= {"ping"}
    site.daemon.behave = ADVICE
    time.sleep(2.1)
    assert site.submit().stderr == "sbatch: a word\n"
    assert site.shim_log()[-1] == "answered again; asking about jobs"


def test_a_daemon_that_never_accepts_holds_nobody(site):
    site.install(deadline_ms="100", ping_ms="100")
    site.restart()
    site.daemon.stop()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(site.daemon.path))
        site.daemon.path.chmod(0o666)
        deaf.listen(0)
        for _ in range(6):
            assert site.shows_unchanged(site.submit())
    assert site.shim_log()[-1] == "no answer (a ping failed); jobs pass unasked for 1 s"


def test_a_script_of_4_mb_is_not_sent_and_the_next_job_is_asked_about(site):
    script = SERVE + "# " + "x" * 4_000_000 + "\n"
    assert site.submit(script=script).returncode == 0
    assert site.daemon.requests == []
    site.submit()
    assert len(site.daemon.asked) == 1


def test_an_array_is_one_question(site):
    submitted = site.submit("--array=0-3", "--gres=gpu:a100:1")
    assert submitted.returncode == 0
    (request,) = site.daemon.asked
    assert request["job"]["array_inx"] == "0-3"


def test_a_heterogeneous_job_an_srun_and_a_salloc_are_not_asked_about(site, tmp_path):
    site.daemon.behave = json.loads(REWRITE_LINE)
    path = tmp_path / "het.sh"
    path.write_text(SERVE)
    site.sandbox.run("sbatch", "--hold", "-N1", ":", "-N1", str(path))
    assert site.sandbox.run("srun", "-n1", "--partition=a100", "echo", "vllm").strip() == "vllm"
    site.sandbox.run("salloc", "-n1", "--partition=a100", "true")
    assert site.daemon.requests == []


def test_root_is_not_asked_about_by_default(site, tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text(SERVE)
    site.sandbox.run("sbatch", "--hold", str(path))
    assert site.daemon.requests == []


def test_scontrol_update_of_a_pending_job_works(site):
    submitted = site.submit()
    site.sandbox.run("scontrol", "update", f"JobId={submitted.job_id}", "TimeLimit=7")
    assert site.sandbox.job(submitted.job_id).fields["TimeLimit"] == "00:07:00"


@pytest.mark.parametrize("module", ["", "return {", "error('x')", "return {}", None])
def test_without_a_working_module_slurmctld_starts_and_jobs_pass(site, module):
    path = site.sandbox.folders.etc / "omnipilot.lua"
    path.unlink()
    if module is not None:
        path.write_text(module)
    site.restart()
    assert site.shows_unchanged(site.submit())
    assert site.daemon.requests == []
    (line,) = site.shim_log()
    assert line.startswith("not loaded, jobs pass unasked: ")


def test_the_shim_goes_on_after_restart_and_reconfigure(site):
    for renew in (site.restart, site.sandbox.reconfigure, site.sandbox.reconfigure):
        renew()
        site.submit()
    assert len(site.daemon.asked) == 3


def test_a_module_that_breaks_while_slurmctld_runs_harms_nobody(site):
    site.submit()
    (site.sandbox.folders.etc / "omnipilot.lua").write_text("return {")
    site.sandbox.reconfigure()
    assert site.shows_unchanged(site.submit())


def test_the_kill_file_stops_the_questions(site):
    kill_file = site.sandbox.folders.root / "off"
    site.install(kill_file=f'"{kill_file}"')
    site.restart()
    kill_file.touch(mode=0o600)
    assert site.shows_unchanged(site.submit())
    assert site.daemon.requests == []
    kill_file.unlink()
    site.submit()
    assert len(site.daemon.asked) == 1


def test_a_closed_partition_takes_no_job_without_an_answer_and_an_open_one_does(site):
    site.install(fail_closed="{a100 = true}")
    site.restart()
    site.daemon.stop()
    assert site.submit().stderr == (
        "sbatch: error: Job rejected: omnipilot does not answer, and partition a100 takes no such"
        " job without its answer. Please try again in a minute.\n"
        "sbatch: error: Batch job submission failed:"
        " Requested partition configuration not available now\n"
    )
    assert site.submit("--partition=a100,h100").returncode == 0
    assert site.submit("--partition=h100").returncode == 0
    assert site.submit(script="#!/bin/sh\nhostname\n").returncode == 0
