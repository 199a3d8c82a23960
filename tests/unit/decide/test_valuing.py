"""An arm's worth rests on its price, load, launch and wait, and beyond the measured on KV."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from site_for_tests import Rates, around, ask, priced, script, site

from omnipilot_slurm.decide.success import LaunchCounts, LaunchGroup, Outcomes, launch_priors
from omnipilot_slurm.decide.utility import kv_factor

if TYPE_CHECKING:
    from omnipilot_slurm.decide.arms import RatedArm
    from omnipilot_slurm.decide.site import Site

LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
RATES = {("h100", 1): 1000.0}


def asked(where: Site, *lines: str, **job: Any) -> RatedArm:
    """Return the arm of one H100 for 8 h, as a site values it."""
    text = script("gpu:h100:1", *lines, LLAMA_8B)
    rated = ask(text, where, **({"partition": "h100", "time_limit_min": 480} | job)).finding.asked
    assert rated is not None
    return rated


def where(**more: Any) -> Site:
    return replace(site(), predictor=Rates(RATES, **more))


def test_worth_is_that_of_section_7() -> None:
    rated = asked(where())
    assert rated.terms is not None
    assert rated.prediction is not None
    cold_h = rated.prediction.targets["cold_start_s"].mid / 3600
    assert rated.terms.value == pytest.approx(2e-6 * 3600 * 1000 * (8 - cold_h))
    assert rated.terms.gpu_cost == pytest.approx(3.0 * 8)
    assert rated.terms.slo == 0.0
    assert rated.utility_usd == pytest.approx(rated.terms.total)


def test_arm_without_price_or_prediction_has_no_worth() -> None:
    assert asked(priced(where(), {"h100": None})).utility_usd is None
    assert asked(replace(site(), predictor=Rates({}))).utility_usd is None


def test_target_of_latency_costs_only_where_the_job_names_one() -> None:
    rated = asked(where(), "#OMNIPILOT slo_ttft_ms=200")
    assert rated.terms is not None
    assert rated.terms.slo == pytest.approx(10 * 8 * 0.5, rel=0.01)


def test_launches_of_the_site_change_the_chance_and_the_cost_of_failing() -> None:
    group = LaunchGroup(1, "h100", 1, "bf16", "0.11")
    counts = LaunchCounts(by_group={group: Outcomes(10, 30)})
    learned = replace(where(), launches=launch_priors(site().launches.assumed, counts))
    before, after = asked(where()), asked(learned)
    assert before.p_launch is not None
    assert after.p_launch is not None
    assert after.p_launch < 0.6 < before.p_launch
    assert before.terms is not None
    assert after.terms is not None
    assert after.terms.failure > before.terms.failure
    assert (after.launch.n, after.launch.assumed) == (40, False)  # type: ignore[union-attr]


def test_doubt_of_the_checks_is_part_of_the_chance() -> None:
    text = script(
        "gpu:a100-80:2",
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 16384 -tp 2",
    )
    rated = ask(text, where(), partition="a100-80").finding.asked
    assert rated is not None
    assert rated.report.p_starts is not None
    assert rated.launch is not None
    assert rated.p_launch == pytest.approx(rated.launch.p * rated.report.p_starts)


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, False),
        ({"tier": "low", "axes": ("workload",)}, False),
        ({"tier": "low", "axes": ("concurrency",)}, True),
        ({"calibrated": False}, True),
    ],
)
def test_kv_pressure_counts_where_it_was_not_learned(more: dict[str, Any], counts: bool) -> None:
    heavy = "#OMNIPILOT concurrency=512 isl=4000 osl=4000"
    plain, pressed = asked(where(), heavy), asked(where(**more), heavy)
    assert plain.terms is not None
    assert pressed.terms is not None
    usage = pressed.report.n_full_requests
    assert usage is not None
    pressure = 512 * 8000 / (8192 * usage.mid)
    assert pressure > 1
    factor = kv_factor(pressure, 0.85, 0.3) if counts else 1.0
    assert pressed.terms.value == pytest.approx(plain.terms.value * factor, rel=1e-6)


def test_price_of_power_counts_where_the_site_sets_one() -> None:
    class Powered(Rates):
        def _one(self, each: Any, workload: Any) -> Any:
            found = super()._one(each, workload)
            return replace(found, targets={**found.targets, "power_w": around(1000.0)})

    settings = replace(site().utility, power_usd_per_kwh=0.25)
    rated = asked(replace(site(), predictor=Powered(RATES), utility=settings))
    assert rated.terms is not None
    assert rated.terms.gpu_cost == pytest.approx(3.0 * 8 + 1.0 * 8 * 0.25)
