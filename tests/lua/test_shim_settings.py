"""What a site may set, and what becomes of a mistake in it."""

from __future__ import annotations

import pytest

SERVE = "#!/bin/bash\nvllm serve m\n"


@pytest.mark.parametrize(
    ("name", "value", "must_be"),
    [
        ("socket", 5, "a text"),
        ("deadline_ms", "fast", "a number from 1 up"),
        ("deadline_ms", 0, "a number from 1 up"),
        ("deadline_ms", float("nan"), "a number from 1 up"),
        ("ping_ms", -1, "a number from 1 up"),
        ("patterns", "vllm", "a table of texts or numbers"),
        ("kill_file", False, "a text"),
        ("exempt_root", "no", "true or false"),
        ("exempt_users", "root", "a table of texts or numbers"),
        ("fail_closed", "a100", "a table of texts or numbers"),
        ("instruction_budget", True, "a number from 1 up"),
        ("library", 1, "a text"),
    ],
)
def test_a_setting_of_a_wrong_type_is_one_log_line_and_the_default(slurmctld, name, value, must_be):
    slurmctld.setup(**{name: value})
    (line,) = slurmctld.lines()
    assert line.startswith(f"omnipilot: setting {name} must be {must_be}, was ")
    assert line.endswith("; the default is used")
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


def test_a_list_with_a_wrong_element_is_not_used(slurmctld):
    slurmctld.setup(patterns=["x", slurmctld.lua.table()])
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


@pytest.mark.parametrize("users", [[7, "user8"], {"user7": True, "user8": True, "user9": False}])
def test_a_table_may_be_a_list_or_name_true(slurmctld, users):
    slurmctld.setup(exempt_users=users)
    for uid in (7, 8, 9):
        slurmctld.submit(SERVE, uid=uid)
    (request,) = slurmctld.daemon.asked
    assert request["job"]["user_name"] == "user9"


def test_an_unknown_setting_is_one_log_line(slurmctld):
    slurmctld.setup(sokcet="/x")
    assert slurmctld.lines() == ["omnipilot: setting sokcet is not known; ignored"]


def test_settings_may_be_left_out(slurmctld):
    slurmctld.submit_function = slurmctld.module.setup()
    assert slurmctld.lines() == []
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


def test_the_deadline_can_be_set(slurmctld):
    slurmctld.setup(deadline_ms=7)
    began = slurmctld.now_s
    slurmctld.submit(SERVE)
    assert slurmctld.now_s - began == pytest.approx(0.007)
