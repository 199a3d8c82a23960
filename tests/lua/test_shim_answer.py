"""What the shim does with an answer: all of a good one, nothing of any other."""

from __future__ import annotations

import json

import pytest

SCRIPT = "#!/bin/bash\nvllm serve m -tp 1 &\nwait\n"
OFFSET = SCRIPT.index("1 &")
GPUS_ENV = {"SLURM_GPUS": "h100:1", "SLURM_GPUS_PER_TASK": "1"}


def answer(verdict="rewrite", **changes) -> dict:
    rewrite = {
        "fields": {
            "partition": "h100",
            "gres": "gpu:h100:2",
            "tres_per_job": "",
            "tres_per_task": "",
        },
        "env": {"SLURM_GPUS": "h100:2"},
        "edits": [{"start": OFFSET, "end": OFFSET + 1, "old": "1", "new": "2"}],
    }
    common = {
        "v": 1, "id": "k3f9", "verdict": verdict, "messages": ["a line"],
        "tag": f"omnipilot=k3f9:{verdict}",
    }  # fmt: skip
    return common | (rewrite if verdict == "rewrite" else {}) | changes


def submit(slurmctld, reply):
    slurmctld.daemon.answer = reply
    return slurmctld.submit(SCRIPT, env=GPUS_ENV, partition="a100", tres_per_job="gres:gpu:1")


def test_a_rewrite_changes_fields_variables_script_and_admin_comment_together(slurmctld):
    outcome = submit(slurmctld, answer())
    fields, env = outcome.job.state()
    assert outcome.code == 0
    assert outcome.told == ["a line"]
    assert fields["partition"] == "h100"
    assert fields["tres_per_node"] == "gres:gpu:h100:2"
    assert "tres_per_job" not in fields
    assert fields["script"] == SCRIPT.replace("-tp 1", "-tp 2")
    assert fields["admin_comment"] == "omnipilot=k3f9:rewrite"
    assert env == GPUS_ENV | {"SLURM_GPUS": "h100:2"}
    assert slurmctld.lines() == ["omnipilot: k3f9:rewrite"]


@pytest.mark.parametrize("verdict", ["advise", "abstain"])
def test_advice_and_an_abstention_are_said_and_tagged_and_change_nothing_else(slurmctld, verdict):
    outcome = submit(slurmctld, answer(verdict))
    fields, env = outcome.job.state()
    assert outcome.code == 0
    assert outcome.told == ["a line"]
    assert fields.pop("admin_comment") == f"omnipilot=k3f9:{verdict}"
    assert (fields, env) == outcome.before
    assert slurmctld.lines() == []


def test_a_silent_pass_leaves_no_trace(slurmctld):
    silent = {"v": 1, "id": "k3f9", "verdict": "pass", "messages": []}
    outcome = submit(slurmctld, silent | {"fields": {}, "env": {}, "edits": [], "code": "none"})
    assert (outcome.code, outcome.told, slurmctld.lines()) == (0, [], [])
    assert outcome.is_untouched


def test_a_refusal_says_why_returns_an_error_and_writes_nothing(slurmctld):
    outcome = submit(slurmctld, answer("reject"))
    assert (outcome.code, outcome.told) == (2072, ["a line"])
    assert outcome.is_untouched
    assert slurmctld.lines() == ["omnipilot: k3f9:reject"]


def test_messages_keep_percent_signs_newlines_and_utf8(slurmctld):
    line = "100 % of 80 GiB: %s %d\nsecond line, naïve – 模型"
    assert submit(slurmctld, answer("advise", messages=[line])).told == [
        line.encode().decode("latin-1")
    ]


def test_edits_are_byte_offsets_and_may_touch(slurmctld):
    script = "#!/bin/bash\n# é\xff\nvllm serve m\n"
    end = len(script) - 1
    edits = [
        {"start": 12, "end": 13, "old": "#", "new": ""},
        {"start": 13, "end": 16, "old": script[13:16], "new": ""},
        {"start": end, "end": end, "old": "", "new": " -tp 2"},
    ]  # fmt: skip
    reply = json.dumps(answer(fields={}, env={}, edits=edits), ensure_ascii=False)
    slurmctld.daemon.answer = reply.encode("latin-1") + b"\n"
    outcome = slurmctld.submit(script)
    assert outcome.job.fields["script"] == "#!/bin/bash\n\nvllm serve m -tp 2\n"


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_old_text_that_is_not_utf8_matches_as_python_writes_it(slurmctld, ensure_ascii):
    script = b"#!/bin/bash\nvllm serve caf\xe9\n"
    old = b"caf\xe9".decode("utf-8", "surrogateescape")
    reply = answer(fields={}, env={}, edits=[{"start": 23, "end": 27, "old": old, "new": "m"}])
    text = json.dumps(reply, ensure_ascii=ensure_ascii)
    slurmctld.daemon.answer = text.encode("utf-8", "surrogateescape") + b"\n"
    outcome = slurmctld.submit(script.decode("latin-1"))
    assert outcome.job.fields["script"] == "#!/bin/bash\nvllm serve m\n"


def faulty_answers() -> dict[str, object]:
    edit = {"start": OFFSET, "end": OFFSET + 1, "old": "1", "new": "2"}
    good = json.dumps(answer()).encode()
    return {
        "half a line": good[:100],
        "no newline": good,
        "nothing": b"",
        "only a newline": b"\n",
        "not json": b"pass\n",
        "two lines": good + b"\n" + good + b"\n",
        "bytes after the line": good + b"\nx",
        "a raw NUL": good.replace(b"a line", b"a\0line") + b"\n",
        "an escaped NUL in a message": answer(messages=["a\0line"]),
        "a NUL in new": answer(edits=[edit | {"new": "2\0"}]),
        "invalid utf-8": good.replace(b"a line", b"a \xff line") + b"\n",
        "a lone surrogate": good.replace(b"a line", b"\\ud83d") + b"\n",
        "overlong": good.replace(b"a line", b"x" * 70_000) + b"\n",
        "endless": b"x" * 1_000_000,
        "deep": b"[" * 60_000 + b"\n",
        "deep and closed": b'{"v":1,"x":' + b"[" * 40 + b"]" * 40 + b"}\n",
        "a list": b"[1]\n",
        "a number": b"3\n",
        "null": b"null\n",
        "another version": answer(v=2),
        "version as text": answer(v="1"),
        "no id": answer(id=None),
        "empty id": answer(id="", tag="omnipilot=:rewrite"),
        "an id in capitals": answer(id="K", tag="omnipilot=K:rewrite"),
        "a long id": answer(id="k" * 33, tag=f"omnipilot={'k' * 33}:rewrite"),
        "an unknown verdict": answer(verdict="delete"),
        "no verdict": answer(verdict=None),
        "another tag": answer(tag="omnipilot=k3f9:pass"),
        "no messages": answer(messages=None),
        "six messages": answer(messages=["x"] * 6),
        "a long message": answer(messages=["x" * 301]),
        "a number as message": answer(messages=[3]),
        "null as message": answer(messages=[None]),
        "an object of messages": answer(messages={"1": "x"}),
        "an escape sequence": answer(messages=["\x1b[31mred"]),
        "a silent refusal": answer("reject", messages=[]),
        "an unknown field": answer(fields={"gres": "gpu:1", "work_dir": "/"}),
        "script as a field": answer(fields={"script": "#!/bin/sh\n"}),
        "a number as field": answer(fields={"gres": 2}),
        "null as field": answer(fields={"gres": None}),
        "an empty gres": answer(fields={"gres": ""}),
        "a gres with a space": answer(fields={"gres": "gpu:h100:2 --x"}),
        "a partition that is not offered": answer(fields={"partition": "h100,secret"}),
        "a filled tres_per_job": answer(fields={"tres_per_job": "gres:gpu:2"}),
        "a list of fields": answer(fields=["gres"]),
        "an unknown variable": answer(env={"LD_PRELOAD": "x"}),
        "a variable like ours": answer(env={"SLURM_GPUS;x": "x"}),
        "a variable that is not set": answer(env={"SLURM_GPUS_PER_NODE": "2"}),
        "a number as variable": answer(env={"SLURM_GPUS": 2}),
        "a newline in a variable": answer(env={"SLURM_GPUS": "2\r"}),
        "another old": answer(edits=[edit | {"old": "2"}]),
        "no old": answer(edits=[{"start": OFFSET, "end": OFFSET, "new": "2"}]),
        "a start past the end": answer(edits=[edit | {"start": OFFSET + 1, "end": OFFSET}]),
        "an end past the script": answer(edits=[edit | {"end": len(SCRIPT) + 1}]),
        "a negative start": answer(edits=[edit | {"start": -1}]),
        "a fraction": answer(edits=[edit | {"start": OFFSET + 0.5}]),
        "a huge start": answer(edits=[edit | {"start": 1e300, "end": 1e300}]),
        "infinity": answer(edits=[edit | {"end": float("inf")}]),
        "not a number": answer(edits=[edit | {"start": float("nan")}]),
        "overlapping edits": answer(edits=[edit, edit]),
        "descending edits": answer(edits=[edit, edit | {"start": 0, "end": 1, "old": "#"}]),
        "an unknown key of an edit": answer(edits=[edit | {"kind": "x"}]),
        "an edit that is a list": answer(edits=[[]]),
        "an object of edits": answer(edits={"1": edit}),
        "many edits": answer(edits=[{"start": 0, "end": 0, "old": "", "new": "x"}] * 65),
        "a long new": answer(edits=[edit | {"new": "2" * 1025}]),
        "a carriage return in new": answer(edits=[edit | {"new": "2\r"}]),
        "fields with advice": answer("advise", fields={"gres": "gpu:2"}),
        "edits with a refusal": answer("reject", edits=[edit]),
        "variables with a pass": answer("pass", env={"SLURM_GPUS": "2"}),
    }


@pytest.mark.parametrize("fault", faulty_answers())
def test_a_faulty_answer_leaves_the_job_unchanged_and_silent(slurmctld, fault):
    outcome = submit(slurmctld, faulty_answers()[fault])
    assert len(slurmctld.daemon.asked) == 1
    assert (outcome.code, outcome.told) == (0, [])
    assert outcome.is_untouched
    (line,) = slurmctld.lines()
    assert line.startswith("omnipilot: no good answer for uid 1000: ")


def test_the_log_line_says_what_was_wrong_with_an_answer(slurmctld):
    submit(slurmctld, answer(fields={"work_dir": "/"}))
    submit(slurmctld, b"pass\n")
    assert slurmctld.lines() == [
        "omnipilot: no good answer for uid 1000: bad fields: unknown key work_dir",
        "omnipilot: no good answer for uid 1000: not JSON",
    ]


def test_an_error_answer_leaves_the_job_unchanged_and_is_logged(slurmctld):
    error = {"code": "internal", "text": "100 %\nsee its log"}
    outcome = submit(slurmctld, {"v": 1, "error": error})
    assert outcome.code == 0
    assert outcome.is_untouched
    assert slurmctld.lines() == ["omnipilot: refused by omnipilotd: internal: 100 % see its log"]


def test_an_answer_in_small_pieces_is_put_together(slurmctld):
    slurmctld.daemon.chunk_bytes = 3
    assert submit(slurmctld, answer()).job.fields["partition"] == "h100"


@pytest.mark.parametrize("name", ["partition", "gres", "script", "tres_per_job", "admin_comment"])
def test_a_slurm_that_ignores_one_of_the_fields_gets_none_of_them(slurmctld, name):
    slurmctld.ignored_fields = frozenset({name})
    outcome = submit(slurmctld, answer())
    assert (outcome.code, outcome.told) == (0, [])
    assert outcome.is_untouched
    assert slurmctld.lines()[-1] == (
        f"omnipilot: fault, so the job is left alone: Slurm did not take {name}"
    )


def test_the_codes_of_slurm_are_used_where_it_names_them(slurmctld):
    slurmctld.lua.globals()["slurm"]["ESLURM_INVALID_GRES"] = 9072
    assert submit(slurmctld, answer("reject")).code == 9072
