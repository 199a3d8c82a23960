"""Which submissions the shim asks about, and which it leaves alone at once."""

from __future__ import annotations

import pytest

SERVE = "#!/bin/bash\nvllm serve org/model\n"


def was_asked(slurmctld, script=SERVE, **submission) -> bool:
    outcome = slurmctld.submit(script, **submission)
    assert outcome.code == 0
    assert outcome.is_untouched
    assert outcome.told == []
    return slurmctld.daemon.n_connections > 0


@pytest.mark.parametrize(
    "script",
    [SERVE, "#!/bin/bash\nexec VLLM serve m", "#!/bin/bash\n#omnipilot off\n./serve.sh", "vLLm"],
)
def test_a_script_with_a_pattern_in_any_case_is_asked_about(slurmctld, script):
    assert was_asked(slurmctld, script)


@pytest.mark.parametrize("script", ["", "#!/bin/bash\nsrun ./cfd\n", "v llm", None])
def test_any_other_script_and_an_interactive_job_do_not_touch_the_socket(slurmctld, script):
    assert not was_asked(slurmctld, script)
    assert slurmctld.touches == ["read script"]
    assert slurmctld.sockets == []


def test_patterns_are_plain_text_and_can_be_set(slurmctld):
    slurmctld.setup(patterns=["s.rve", "%d+"])
    assert not was_asked(slurmctld, "vllm serve 12")
    assert was_asked(slurmctld, "./S.RVE")


def test_without_patterns_nobody_is_asked_about(slurmctld):
    slurmctld.setup(patterns=[])
    assert not was_asked(slurmctld)


def test_a_script_of_64_kib_is_sent_and_a_byte_more_is_not(slurmctld):
    padding = "x" * (65536 - len(SERVE))
    assert not was_asked(slurmctld, SERVE + padding + "x")
    assert slurmctld.touches == ["read script"]
    assert was_asked(slurmctld, SERVE + padding)


def test_root_is_exempt_unless_set_otherwise(slurmctld):
    slurmctld.setup(exempt_root=True)
    assert not was_asked(slurmctld, uid=0)
    slurmctld.setup(exempt_root=False)
    assert was_asked(slurmctld, uid=0)


def test_a_job_that_root_submits_for_a_user_is_exempt_with_root(slurmctld):
    slurmctld.setup(exempt_root=True)
    assert not was_asked(slurmctld, uid=0, user_id=1000)
    assert was_asked(slurmctld, uid=1000)


def test_exempt_users_are_names_or_uids(slurmctld):
    slurmctld.setup(exempt_users=["user7", 8])
    assert not was_asked(slurmctld, uid=7)
    assert not was_asked(slurmctld, uid=8)
    assert was_asked(slurmctld, uid=9)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_component_of_a_heterogeneous_job_is_left_alone(slurmctld, offset):
    assert not was_asked(slurmctld, het_job_offset=offset)


def test_the_kill_file_lets_every_job_pass_and_is_logged_once(slurmctld, tmp_path):
    kill_file = tmp_path / "off"
    slurmctld.setup(kill_file=str(kill_file))
    kill_file.touch()
    assert not was_asked(slurmctld)
    assert not was_asked(slurmctld)
    assert slurmctld.lines() == [f"omnipilot: off, because of {kill_file}"]
    kill_file.unlink()
    assert was_asked(slurmctld)
    assert slurmctld.lines()[1] == f"omnipilot: on again, without {kill_file}"


def test_a_kill_file_that_cannot_be_looked_for_counts_as_there(slurmctld, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    slurmctld.setup(kill_file=str(loop))
    assert not was_asked(slurmctld)


def test_a_missing_folder_of_the_kill_file_means_no_kill_file(slurmctld, tmp_path):
    (tmp_path / "file").touch()
    slurmctld.setup(kill_file=str(tmp_path / "none" / "off"))
    assert was_asked(slurmctld)
    slurmctld.setup(kill_file=str(tmp_path / "file" / "off"))
    assert was_asked(slurmctld)


def test_a_job_with_more_arguments_than_are_sent_is_left_alone(slurmctld):
    assert not was_asked(slurmctld, argv=["x"] * 1000)
    assert was_asked(slurmctld, argv=["x"] * 999)


def test_a_request_over_256_kib_is_not_sent(slurmctld):
    assert not was_asked(slurmctld, argv=["x" * 300 for _ in range(900)])
    assert slurmctld.lines() == []
