"""What a site may set, and what becomes of a mistake in it."""

from __future__ import annotations

import pytest

SERVE = "#!/bin/bash\nvllm serve m\n"


@pytest.mark.parametrize(
    ("name", "value", "must_be"),
    [
        ("socket", 5, "text"),
        ("deadline_ms", "fast", "number"),
        ("deadline_ms", 0, "number"),
        ("deadline_ms", float("nan"), "number"),
        ("ping_ms", -1, "number"),
        ("patterns", "vllm", "table"),
        ("kill_file", False, "text"),
        ("exempt_root", "no", "boolean"),
        ("exempt_users", "root", "table"),
        ("fail_closed", "a100", "table"),
        ("instruction_budget", True, "number"),
        ("library", 1, "text"),
    ],
)
def test_a_setting_of_a_wrong_type_is_one_log_line_and_the_default(slurmctld, name, value, must_be):
    slurmctld.setup(**{name: value})
    (line,) = slurmctld.lines()
    assert line.startswith(f"omnipilot: setting {name} must be ")
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


def test_a_list_with_a_wrong_element_is_not_used(slurmctld):
    slurmctld.setup(patterns=["x", True])
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


def test_an_unknown_setting_is_one_log_line(slurmctld):
    slurmctld.setup(sokcet="/x")
    assert slurmctld.lines() == ["omnipilot: setting sokcet is not known; ignored"]


@pytest.mark.parametrize("given", [None, "/run/x.sock", 7])
def test_settings_may_be_absent_and_anything_else_is_one_log_line(slurmctld, given):
    slurmctld.submit_function = slurmctld.module.setup(given)
    assert len(slurmctld.lines()) == (0 if given is None else 1)
    slurmctld.submit(SERVE)
    assert len(slurmctld.daemon.asked) == 1


def test_the_deadline_can_be_set(slurmctld):
    slurmctld.setup(deadline_ms=7)
    began = slurmctld.now_s
    slurmctld.submit(SERVE)
    assert slurmctld.now_s - began == pytest.approx(0.007)
