"""Which commands are passed over by their text alone, and that it makes no difference."""

from __future__ import annotations

import pytest
from script_reading import HEAD, expect, read, submitted

from omnipilot_slurm.script import serving, tres
from omnipilot_slurm.script.inert import is_inert


@pytest.mark.parametrize(
    "text",
    [
        "echo",
        "echo serving $MODEL on ${NGPU} GPUs",
        "echo 'a # b' \"c=1\"",
        "mkdir -p logs/$SLURM_JOB_ID",
        "module load cuda/12.4 gcc",
        "set -euo pipefail",
        "set -e -o pipefail +x",
        "cd $SLURM_SUBMIT_DIR",
        'cd "${HOME}/runs"',
    ],
)
def test_plain_commands_are_passed_over(text):
    assert is_inert(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "echo $(vllm serve M/x)",
        "echo `id`",
        "echo ${TP:=4}",
        "echo $((TP++))",
        "echo <(id)",
        "echo a > job.sh",
        "echo a\\ b",
        "echo a; id",
        "module load vllm/0.9.1",
        "cd /opt/VLLM-0.8",
        "set -- 1 2",
        "set 1 2",
        "set -eu word",
        "cd runs/tp$TP",
        "cd $HOMEWORK",
        "module load $ENGINE",
        "echoes",
        "source env.sh",
        "sleep 5 &",
    ],
)
def test_what_may_matter_is_read_in_full(text):
    assert not is_inert(text.encode())


def test_a_function_of_that_name_is_still_called():
    found = read('module() { vllm serve "$2" -tp 2; }\nmodule load M/x')
    expect(found, {"is_serving": True, "model": "M/x", "tp": 2})


def test_a_module_named_by_a_variable_still_tells_the_version():
    body = "ENGINE=vllm/0.8.5\nmodule load $ENGINE\nvllm serve M/x -tp 2"
    submission = submitted(HEAD + body)
    (launch,) = serving.find(submission, tres.request_of(submission)).launches
    assert "vllm/0.8.5" in launch.version_hints


def test_arguments_set_after_shell_options_are_still_read():
    found = read('set -eu\nset -- M/x 4\nvllm serve "$1" -tp "$2"')
    expect(found, {"is_serving": True, "model": "M/x", "tp": 4})
