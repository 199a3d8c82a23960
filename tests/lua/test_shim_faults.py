"""An error anywhere inside: the job is as it was, and passes."""

from __future__ import annotations

import pytest
from fake_slurmctld import LUA_VERSIONS, FakeSlurmctld

SCRIPT = "#!/bin/bash\nvllm serve m -tp $TP\n"
OFFSET = SCRIPT.index("$TP")
REWRITE = {
    "v": 1,
    "id": "k3f9",
    "verdict": "rewrite",
    "messages": ["first", "second"],
    "fields": {
        "partition": "h100", "gres": "gpu:h100:2", "tres_per_job": "", "tres_per_task": "",
        "tres_per_socket": "",
    },
    "env": {"SLURM_GPUS": "2", "SLURM_GPUS_PER_TASK": "2"},
    "edits": [{"start": OFFSET, "end": OFFSET + 3, "old": "$TP", "new": "2"}],
    "tag": "omnipilot=k3f9:rewrite",
}  # fmt: skip
JOB = {
    "env": {"SLURM_GPUS": "1", "SLURM_GPUS_PER_TASK": "1", "TP": "1"},
    "argv": ["x"],
    "partition": "a100",
    "tres_per_job": "gres:gpu:1",
    "tres_per_task": "gres:gpu:1",
    "tres_per_node": "gres:gpu:a100:1",
    "admin_comment": "JS1:kept",
}


def submit_with_fault(version: str, fault_at: int | None, verdict: str = "rewrite"):
    slurmctld = FakeSlurmctld(version)
    slurmctld.setup(exempt_users=["nobody"])
    slurmctld.daemon.answer = REWRITE if verdict == "rewrite" else {
        "v": 1, "id": "k3f9", "verdict": verdict, "messages": ["first"],
    }  # fmt: skip
    slurmctld.fault_at = fault_at
    return slurmctld, slurmctld.submit(SCRIPT, **JOB)


@pytest.mark.parametrize("version", LUA_VERSIONS)
def test_an_error_at_any_touch_of_slurmctld_leaves_the_job_untouched_and_passing(version):
    slurmctld, outcome = submit_with_fault(version, None)
    n_writes = sum(touch.startswith("write") for touch in slurmctld.touches)
    assert n_writes == 8
    assert not outcome.is_untouched
    for fault_at, what in enumerate(list(slurmctld.touches), start=1):
        _, outcome = submit_with_fault(version, fault_at)
        assert outcome.code == 0, what
        if what != "log info":  # the line that says what was done: done it stays
            assert outcome.is_untouched, what


@pytest.mark.parametrize("version", LUA_VERSIONS)
def test_a_refusal_that_cannot_be_explained_is_none(version):
    slurmctld, outcome = submit_with_fault(version, None, "reject")
    assert outcome.code == 2072
    fault_at = slurmctld.touches.index("log user") + 1
    slurmctld, outcome = submit_with_fault(version, fault_at, "reject")
    assert outcome.code == 0
    assert slurmctld.lines()[0].startswith("omnipilot: fault, so the job is left alone: ")


@pytest.mark.parametrize("field", ["partition", "gres", "script", "SLURM_GPUS", "admin_comment"])
def test_a_field_that_always_throws_keeps_the_others_as_they_were(slurmctld, field):
    slurmctld.setup()
    slurmctld.daemon.answer = REWRITE
    touch = slurmctld.touch

    def throwing_touch(what: str) -> None:
        touch(what)
        if what.startswith("write") and what.endswith(field):
            raise RuntimeError(what)

    slurmctld.touch = throwing_touch
    outcome = slurmctld.submit(SCRIPT, **JOB)
    assert outcome.code == 0
    assert outcome.is_untouched


def test_an_error_with_every_log_failing_passes_the_job(slurmctld):
    slurmctld.setup()
    slurmctld.lua.execute("slurm.log_error, slurm.log_info, slurm.log_user = nil, error, error")
    slurmctld.daemon.answer = REWRITE
    outcome = slurmctld.submit(SCRIPT, **JOB)
    assert outcome.code == 0
    assert outcome.is_untouched


def test_an_error_in_a_closed_partition_refuses_the_job_untouched(slurmctld):
    slurmctld.setup(fail_closed={"a100": True})
    slurmctld.daemon.answer = REWRITE
    slurmctld.fault_at = 3
    outcome = slurmctld.submit(SCRIPT, **JOB)
    assert outcome.code == 2015
    assert outcome.is_untouched


def test_work_beyond_the_instruction_budget_is_stopped_and_the_job_passes(slurmctld):
    slurmctld.setup(instruction_budget=10_000)
    slurmctld.daemon.answer = b'{"v":1,"x":[' + b"1," * 20_000 + b"1]}\n"
    outcome = slurmctld.submit(SCRIPT, **JOB)
    assert outcome.code == 0
    assert outcome.is_untouched
    (line,) = slurmctld.lines()
    assert line == "omnipilot: no good answer for uid 1000: instruction budget used up"


def test_the_default_budget_is_enough_for_the_largest_script_and_answer(slurmctld):
    text = "$a $((b)) " * 6552
    edits = [{"start": i, "end": i, "old": "", "new": "x"} for i in range(64)]
    slurmctld.daemon.answer = REWRITE | {"edits": edits, "fields": {}, "env": {}}
    outcome = slurmctld.submit("vllm" + text, **JOB)
    assert outcome.job.fields["script"].startswith("xvxlxlxmx$x")


def test_a_hook_that_was_there_is_put_back(slurmctld):
    slurmctld.setup()
    slurmctld.lua.execute("the_hook = function() end; debug.sethook(the_hook, 'r', 12345)")
    slurmctld.submit(SCRIPT, **JOB)
    kept = "local h, m, n = debug.gethook(); debug.sethook(); return h == the_hook and m .. n"
    assert slurmctld.lua.execute(kept) == "r12345"


def test_no_hook_is_left_behind(slurmctld):
    slurmctld.submit(SCRIPT, **JOB)
    assert slurmctld.lua.eval("debug.gethook() == nil")


def test_nothing_becomes_global(slurmctld):
    names = (
        "local n = {}; for k in pairs(_G) do n[#n+1] = tostring(k) end; return table.concat(n, ' ')"
    )
    before = set(slurmctld.lua.execute(names).split())
    slurmctld.daemon.answer = REWRITE
    slurmctld.submit(SCRIPT, **JOB)
    assert set(slurmctld.lua.execute(names).split()) == before


def test_without_a_socket_library_jobs_pass_and_one_line_says_so(slurmctld):
    slurmctld.lua.execute(
        'package.preload["socket"] = nil; package.preload["socket.unix"] = nil;'
        'package.path, package.cpath = "", ""'
    )
    slurmctld.setup(library="lua-posix")
    outcome = slurmctld.submit(SCRIPT, **JOB)
    assert outcome.code == 0
    assert outcome.is_untouched
    (line,) = slurmctld.lines()
    assert line.startswith("omnipilot: no socket library, so no job is asked about: ")
