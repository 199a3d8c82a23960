"""Every arm that may start says how long that takes, as an estimate with bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from site_for_tests import ask, site

from omnipilot_slurm.decide.as_json import arm_json
from omnipilot_slurm.records import Interval, Starts

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.site import Site

#: it does not fit where it is asked for, so that other arms are weighed
SERVER = "#!/bin/bash\n#SBATCH --gres=gpu:a100:1\nvllm serve meta-llama/Llama-3.1-70B{}\n"


def able(words: str = "", where: Site | None = None) -> list[RatedArm]:
    arms = ask(SERVER.format(words), where).arms
    return [arm for arm in arms if arm.starts is not Starts.FAILS]


def test_an_arm_shows_its_cold_start_as_estimated_with_bounds() -> None:
    assert able()
    for arm in map(arm_json, able()):
        shown = arm["predictions"]["cold_start_s"]
        assert shown["unit"] == "s"
        assert shown["estimated"] is True
        assert 10 < shown["lo"] < shown["mid"] < shown["hi"] < 3600
        assert not arm["predictions"]["output_tok_s"].get("estimated")


def test_the_share_of_the_cache_has_its_bounds_without_a_cost_model_too() -> None:
    for arm in map(arm_json, able()):
        usage = arm["predictions"]["kv_usage_frac"]
        assert 0 < usage["lo"] <= usage["mid"] <= usage["hi"] <= 1
        assert arm["predictions"]["ttft_ms"]["lo"] is None


def test_eager_mode_starts_sooner() -> None:
    plain, eager = (cold_start_of(able(words)[0]) for words in ("", " --enforce-eager"))
    assert eager.mid < plain.mid


def cold_start_of(arm: RatedArm) -> Interval:
    assert arm.prediction is not None
    return arm.prediction.targets["cold_start_s"]


def test_time_spent_starting_serves_nobody() -> None:
    usual = site()
    slow = replace(usual.cold_start, process_s=Interval(lo=3600, mid=3600, hi=3600))
    late, soon = (able("", where)[0] for where in (replace(usual, cold_start=slow), usual))
    assert late.terms is not None
    assert soon.terms is not None
    assert late.terms.value < soon.terms.value
