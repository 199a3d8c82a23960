"""The paper's case: Qwen2.5-32B in bf16 saturates the cache of an A100-40GB pair.

Utility alone, with fixed roofline predictions that do not know of the cache's size: the term g(u)
is then all that tells a cache that overflows. Prices, chances, waits and hours are those of
specification section 9. With this package's memory plan the edge lies at 20 requests at a time
(u = 1.5), not at 32 (u = 2.4, where four GPUs are worth more than the pair even without g), and
among A100-40GB nodes alone: an H200 is worth more than any of them with and without g.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from site_for_tests import around, script, site, submit

from omnipilot_slurm.decide import arms, predicting
from omnipilot_slurm.decide.arms import Question, RatedArm
from omnipilot_slurm.decide.engines import Engines
from omnipilot_slurm.decide.site import KnownModel
from omnipilot_slurm.decide.utility import Run, utility_terms
from omnipilot_slurm.predict import roofline
from omnipilot_slurm.predict.rows import live_row, table
from omnipilot_slurm.records import Starts, Workload
from omnipilot_slurm.script import directives, serving, tres

PRICES_USD_PER_HOUR = {"a100-40g": 1.5, "a100-80g": 1.8, "h100": 3.0, "h200": 3.8}
SUCCESS = {1: 0.98, 2: 0.96, 4: 0.90, 8: 0.85}
WAIT_H = {1: 0.1, 2: 0.2, 4: 0.6, 8: 1.5}
#: more tokens than any cache holds: the roofline is not limited by it
ENDLESS_CACHE_TOKENS = 1e9
SERVE = "vllm serve Qwen/Qwen2.5-32B-Instruct --max-model-len 8192 -tp 2"


@lru_cache
def question(concurrency: int) -> Question:
    where = site()
    submission = submit(script("gpu:a100:2", SERVE))
    request = tres.request_of(submission)
    (launch,) = serving.find(
        submission, request, environment_is_complete=True, expired=lambda: False
    ).launches
    known = where.models(launch.engine.model or "")
    assert isinstance(known, KnownModel)
    return Question(
        submission=submission,
        request=request,
        directives=directives.omnipilot(submission.script),
        launch=launch,
        model=known.facts,
        workload=Workload(isl=1024, osl=256, concurrency=concurrency),
        site=where,
        engines=Engines(launch.engine, where.vllm),
    )


def run_on(asked: Question, rated: RatedArm) -> tuple[Run, float]:
    """Return the run on an arm without g, and the KV pressure there."""
    setup = predicting.setup_of(asked, rated)
    rows = table(
        [
            live_row(
                asked.model,
                setup.gpu,
                setup.arm,
                asked.workload,
                max_num_seqs=setup.max_num_seqs,
                max_num_batched_tokens=setup.max_num_batched_tokens,
                mem_util=setup.mem_util,
            )
        ]
    )
    work = roofline.work(rows, np.array([ENDLESS_CACHE_TOKENS]))
    rate = float(roofline.roofline(rows, work, roofline.SHIPPED).output_tok_s[0])
    pressure = predicting.kv_pressure(asked, rated)
    assert pressure is not None
    n_gpus = rated.arm.n_gpus
    cold_start_s = 15 + 0.5 * asked.model.params / 1e9 + 3 * n_gpus
    run = Run(
        n_gpus=n_gpus,
        price_usd_per_gpu_hour=PRICES_USD_PER_HOUR[rated.arm.gpu],
        wall_h=8 + cold_start_s / 3600,
        cold_start_s=cold_start_s,
        output_tok_s=around(rate, 1.0),
        p_ok=SUCCESS[n_gpus],
        wait_h=WAIT_H[n_gpus],
    )
    return run, pressure.mid


def best(concurrency: int, gpus: set[str], *, with_g: bool) -> tuple[str, int]:
    """Return GPU type and number of the arm that is worth most."""
    asked = question(concurrency)
    worth = {}
    for rated in arms.smallest_first(asked):
        if rated.starts is Starts.FAILS or rated.arm.gpu not in gpus:
            continue
        assert rated.arm.precision == "bf16"
        run, pressure = run_on(asked, rated)
        run = replace(run, kv_pressure=pressure) if with_g else run
        worth[rated.arm.gpu, rated.arm.n_gpus] = utility_terms(run, asked.site.utility).total
    return max(worth, key=worth.__getitem__)


def test_cache_of_an_a100_40gb_pair_overflows_at_the_edge() -> None:
    asked = question(20)
    (pair,) = (
        rated
        for rated in arms.smallest_first(asked)
        if (rated.arm.gpu, rated.arm.n_gpus) == ("a100-40g", 2)
    )
    assert run_on(asked, pair)[1] == pytest.approx(1.5, abs=0.1)


def test_kv_term_turns_the_choice_away_from_the_a100_40gb_pair() -> None:
    assert best(20, {"a100-40g"}, with_g=False) == ("a100-40g", 2)
    assert best(20, {"a100-40g"}, with_g=True) == ("a100-40g", 4)


def test_kv_term_turns_the_choice_from_one_h100_to_two_as_well() -> None:
    either = {"a100-40g", "a100-80g", "h100"}
    assert best(20, either, with_g=False) == ("h100", 1)
    assert best(20, either, with_g=True) == ("h100", 2)


def test_place_with_room_for_all_requests_is_chosen_with_and_without_the_kv_term() -> None:
    everything = set(PRICES_USD_PER_HOUR)
    assert best(20, everything, with_g=False) == best(20, everything, with_g=True) == ("h200", 1)
