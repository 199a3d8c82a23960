"""What the shim sends: the names, types and limits of docs/protocol.md."""

from __future__ import annotations

import pytest

HEAD = "#!/bin/bash\nvllm serve m\n"


def request_for(slurmctld, script=HEAD, **submission) -> dict:
    slurmctld.submit(script, **submission)
    (request,) = slurmctld.daemon.asked
    return request


def env_for(slurmctld, text, env) -> dict[str, str]:
    return request_for(slurmctld, HEAD + text, env=env)["env"]


def test_a_request_has_exactly_the_keys_of_the_protocol(slurmctld):
    request = request_for(slurmctld, argv=["--model", 'a "b"'])
    assert list(request) == ["v", "op", "script", "argv", "env", "partitions", "job"]
    assert (request["v"], request["op"], request["script"]) == (1, "decide", HEAD)
    assert request["argv"] == ["--model", 'a "b"']
    assert request["partitions"] == ["a100", "h100"]
    assert request["env"] == {}


def test_every_text_field_of_the_job_is_sent_under_slurmctlds_name(slurmctld):
    names = (
        "partition account qos user_name name tres_per_node tres_per_job tres_per_task"
        " tres_per_socket cpus_per_tres mem_per_tres features reservation req_nodes exc_nodes"
        " array_inx comment default_account default_qos"
    ).split()
    job = request_for(slurmctld, **{name: f"value of {name}" for name in names})["job"]
    assert {name: job[name] for name in names} == {name: f"value of {name}" for name in names}


def test_every_number_of_the_job_is_sent_whole(slurmctld):
    numbers = {
        "time_limit": 60.0, "min_nodes": 1.0, "max_nodes": 2, "num_tasks": 65534, "min_cpus": 65535,
        "priority": 0, "min_mem_per_node": 1_048_576.0, "ntasks_per_node": 3, "ntasks_per_gpu": 1,
        "cpus_per_task": 65533, "pn_min_cpus": 5, "shared": 0, "user_id": 65534, "group_id": 100,
    }  # fmt: skip
    job = request_for(slurmctld, **numbers)["job"]
    assert {name: job[name] for name in numbers} == numbers
    assert all(type(job[name]) is int for name in numbers)


def test_slurms_marks_for_not_set_and_infinite_are_not_sent(slurmctld):
    marks = {
        "time_limit": 4294967295, "min_nodes": 4294967294, "cpus_per_task": 65534, "shared": 65535,
        "min_mem_per_node": 1.8446744073709552e19, "min_mem_per_cpu": None, "account": "",
        "num_tasks": -1, "het_job_offset": 4294967294, "ntasks_per_tres": 65534,
    }  # fmt: skip
    job = request_for(slurmctld, **marks)["job"]
    assert set(job) == {"user_id", "group_id", "user_name"}


def test_a_number_where_the_protocol_has_a_text_is_not_sent(slurmctld):
    assert "ntasks_per_tres" not in request_for(slurmctld, ntasks_per_tres=1)["job"]


def test_variables_that_occur_in_the_script_and_are_set_are_sent(slurmctld):
    text = 'X=$TP "${MODEL:-x}" ${#len} ${!ref} "PLAIN" \\\n'
    env = dict.fromkeys(["TP", "MODEL", "len", "ref", "PLAIN", "ABSENT", "X"], "1") | {"TP": ""}
    sent = env_for(slurmctld, text, env)
    assert sent == {"TP": "", "MODEL": "1", "len": "1", "ref": "1", "X": "1", "PLAIN": "1"}


def test_bare_words_of_arithmetic_are_looked_up_in_any_case(slurmctld):
    assert env_for(slurmctld, "-tp $((n_gpus / 2))", {"n_gpus": "4"}) == {"n_gpus": "4"}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "api_key", "MY_SECRET_X", "PASSWORD", "AWS_CREDENTIALS", "MONKEY"]
)
def test_a_variable_named_like_a_secret_is_never_sent_nor_read(slurmctld, name):
    assert env_for(slurmctld, f"echo ${name} {name}", {name: "s3cret"}) == {}
    assert f"read environment {name}" not in slurmctld.touches


def test_at_most_32_variables_of_the_script_are_sent_and_slurms_own_beside_them(slurmctld):
    env = {f"V{i}": str(i) for i in range(40)} | {"SLURM_GPUS": "2", "SLURM_NTASKS": "1"}
    sent = env_for(slurmctld, " ".join(f"$V{i}" for i in range(40)), env)
    expected = {"SLURM_GPUS": "2", "SLURM_NTASKS": "1"} | {f"V{i}": str(i) for i in range(32)}
    assert sent == expected


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
        "SLURM_GPUS_ON_NODE", "SLURM_TRES_PER_TASK", "SLURM_MEM_PER_GPU", "SLURM_CPUS_PER_GPU",
        "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU",
    ],
)  # fmt: skip
def test_slurms_gpu_variables_are_sent_wherever_they_are_set(slurmctld, name):
    assert env_for(slurmctld, "", {name: "1", "SLURM_JOB_NAME": "x"}) == {name: "1"}


def test_a_value_over_4_kib_is_not_sent(slurmctld):
    env = {"A": "x" * 4096, "B": "x" * 4097}
    assert list(env_for(slurmctld, "$A $B", env)) == ["A"]


def test_the_look_ups_of_a_script_made_of_names_are_bounded(slurmctld):
    script = HEAD + " ".join(f"$N{i}" for i in range(9000))
    assert env_for(slurmctld, script[len(HEAD) :], {"N8999": "1", "N10": "2"}) == {"N10": "2"}
    assert sum(touch.startswith("read environment N") for touch in slurmctld.touches) == 256


def test_bytes_that_are_not_utf8_travel_as_they_are(slurmctld):
    script = HEAD + '# caf\xe9 \x01\x7f\t\r\\"/\n'
    request = request_for(slurmctld, script, name="\xff")
    assert request["script"].encode("utf-8", "surrogateescape") == script.encode("latin-1")
    assert request["job"]["name"].encode("utf-8", "surrogateescape") == b"\xff"


def test_the_same_job_makes_the_same_line(slurmctld):
    slurmctld.submit(HEAD, partition="a100")
    slurmctld.submit(HEAD, partition="a100")
    first, second = slurmctld.daemon.asked
    assert str(first) == str(second)
