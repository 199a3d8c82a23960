"""An admin's day on a real Slurm: observe, report, one edit, check, enforce. All parts real."""

from __future__ import annotations

import contextlib
import io
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.sandbox.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.sandbox import Sandbox

pytestmark = pytest.mark.slurm

TOO_LARGE = """#!/bin/bash
#SBATCH --gres=gpu:a100:1
vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192
"""
OFF = TOO_LARGE.replace("vllm", "#OMNIPILOT off\nvllm")


def omnipilot(*words: object) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*map(str, words)])
    return code, out.getvalue()


def report(site: Sandbox, n: int) -> dict[str, Any]:
    """Return the report on decisions once `n` of them are stored, twice a second."""
    for _ in range(60):
        code, out = omnipilot("report", "decisions", "--json", "--config", site.folders.pilot)
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        if found["n"] >= n:
            break
        time.sleep(0.5)
    assert found["n"] == n
    return found


def test_from_observe_to_enforce_by_one_edit(make_sandbox: Callable[..., Sandbox]) -> None:
    site = make_sandbox(pilot=Pilot(mode="observe"))
    site.up()
    folder = site.folders.pilot
    observed = [site.submit(script=script) for script in (TOO_LARGE, TOO_LARGE, OFF)]
    assert [each.stderr for each in observed] == ["", "", ""]
    assert {site.wait(each.job_id).partition for each in observed} == {"a100"}
    found = report(site, 3)
    assert found["would_be_by_mode"] == {"pass": {"observe": 1}, "rewrite": {"observe": 2}}
    assert found["by_verdict"] == {"pass": 3}
    assert (found["done"]["n_rewrites"], found["not_done"]["n_rewrites"]) == (0, 2)
    assert found["not_done"]["n_failing"] == 2
    assert found["opted_out"] == {"n": 1, "n_users": 1}

    own = folder / "omnipilot.yaml"
    before = own.read_text()
    own.write_text(before.replace('"mode": "observe"', '"mode": "enforced"'))
    code, out = omnipilot("config", "check", "--config", folder)
    assert code == 1
    assert out.rstrip().endswith("was 'enforced'; did you mean 'enforce'")
    assert omnipilot("reload", "--socket", site.pilot_socket) == (1, out)
    own.write_text(before.replace('"mode": "observe"', '"mode": "enforce"'))
    assert omnipilot("config", "check", "--config", folder) == (0, "")
    assert omnipilot("reload", "--config", folder) == (0, "")
    assert omnipilot("status", "--config", folder)[0] == 0

    enforced = site.submit(script=TOO_LARGE)
    assert "changed to" in enforced.stderr
    moved = site.wait(enforced.job_id)
    assert (moved.state, moved.partition == "a100") == ("COMPLETED", False)
    found = report(site, 4)
    assert (found["done"]["n_rewrites"], found["done"]["n_failing"]) == (1, 1)
    decision_id = enforced.stderr.rsplit("omnipilot explain ", 1)[1].split()[0]
    code, shown = omnipilot("explain", decision_id, "--config", folder)
    assert code == 0
    assert "<- chosen" in shown
