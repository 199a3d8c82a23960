"""A decision as plain values holds all that it rests on, under the names on the wire."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_for_tests import Rates, around, ask, script, site, submit

from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.decide.decision import Decision, decide
from omnipilot_slurm.decide.outcome import outcome_of
from omnipilot_slurm.decide.site import Site, UnknownModel
from omnipilot_slurm.records import Mode, Verdict

LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
RATES = {(gpu, n): 1000.0 for gpu in ("a100-40g", "a100-80g", "h100") for n in (1, 2, 4)} | {
    ("h200", 1): 3000.0
}


def where(**changes: Any) -> Site:
    return replace(site(), predictor=Rates(RATES), **changes)


def moved() -> Decision:
    text = script("gpu:h100:1", "#OMNIPILOT auto concurrency=32 slo_ttft_ms=250", LLAMA_8B)
    return ask(text, where(), partition="h100", time_limit_min=480)


def test_every_decision_is_json_without_infinities() -> None:
    silent = ask(script("gpu:h100:1", "python train.py"))
    refused = ask(script("gpu:a100:3", f"{LLAMA_8B} -tp 3"), where())
    unpriced = ask(script("gpu:a100:1", LLAMA_8B), site())
    for decision in (moved(), silent, refused, unpriced):
        again = json.loads(json.dumps(as_json(decision), allow_nan=False))
        assert again["verdict"] == str(decision.verdict)
        assert again["would_be"] == str(decision.finding.verdict)


def test_arms_show_their_worth_term_by_term() -> None:
    record = json.loads(json.dumps(as_json(moved())))
    assert len(record["arms"]) > 4
    for arm in (record["asked"], record["chosen"]):
        terms = arm["utility_terms_usd"]
        assert set(terms) == {"value", "gpu_cost", "slo", "wait", "failure"}
        costs = sum(terms[name] for name in ("gpu_cost", "slo", "wait", "failure"))
        assert arm["utility_usd"] == pytest.approx(terms["value"] - costs, abs=1e-3)
    unknown = [arm for arm in record["arms"] if arm["gpu"] == "h200" and arm["n_gpus"] > 1]
    assert unknown
    assert all(arm["utility_usd"] is arm["utility_terms_usd"] is None for arm in unknown)


def test_probabilities_and_waits_come_with_what_they_rest_on() -> None:
    chosen: Any = as_json(moved())["chosen"]
    assert chosen["launch"] == {"p": 0.98, "n": 0, "assumed": True, "source": "assumed"}
    assert chosen["p_launch"] == 0.98
    wait = chosen["wait_h"]
    assert wait["lo"] < wait["mean"] < wait["hi"]
    assert (wait["n"], wait["assumed"], wait["source"]) == (0, True, "assumed")


def test_predictions_have_their_unit_and_bounds_only_where_calibrated() -> None:
    chosen: Any = as_json(moved())["chosen"]
    assert chosen["calibrated"] is True
    assert chosen["predictions"]["output_tok_s"] == {
        "lo": 2500.0,
        "mid": 3000.0,
        "hi": 3600.0,
        "unit": "tok/s",
    }
    estimated: Any = as_json(ask(script("gpu:a100:1", LLAMA_8B), site()))["asked"]
    assert estimated["calibrated"] is False
    figure = estimated["predictions"]["output_tok_s"]
    assert figure["lo"] is figure["hi"] is None
    assert figure["mid"] > 0


def test_gain_names_what_would_turn_it() -> None:
    record: Any = as_json(moved())
    gain = record["gain"]
    assert gain["usd"]["lo"] < gain["usd"]["mid"] < gain["usd"]["hi"]
    assert (gain["hours"], gain["flip"]) == (8.0, None)
    assert gain["confidence"] > 0.9
    assert as_json(ask(script("gpu:a100:1", LLAMA_8B), site()))["gain"] is None


def test_workload_names_its_sources_and_what_else_is_plausible() -> None:
    load: Any = as_json(ask(script("gpu:a100:1", LLAMA_8B), where()))["workload"]
    assert load["source"]["concurrency"] == "site"
    assert (load["plausible_concurrency"], load["n_jobs"]) == ([8, 128], 0)
    said: Any = as_json(moved())["workload"]
    assert said["slo_ttft_ms"] == 250.0
    assert (said["source"]["concurrency"], said["plausible_concurrency"]) == ("directive", None)


def test_support_is_that_of_the_arm_spoken_of() -> None:
    low = Rates(RATES, tier="low", axes=("workload",))
    decision = ask(script("gpu:a100:1", LLAMA_8B), replace(site(), predictor=low))
    assert as_json(decision)["support"] == {"tier": "low", "axes": ["workload"]}
    assert as_json(ask(script("gpu:a100:1", LLAMA_8B), site()))["support"] == {
        "tier": None,
        "axes": [],
    }


def test_refusal_shows_its_obstacle_and_checks() -> None:
    tied = ask(script("gpu:a100:3", f"{LLAMA_8B} -tp 2"), where(), ntasks_per_gpu=1)
    assert as_json(tied)["obstacle"] is None
    text = script("gpu:a100:1", "vllm serve meta-llama/Llama-3.1-70B-Instruct")
    record: Any = as_json(ask(text, where(), ntasks_per_gpu=1))
    assert record["obstacle"]["text"].startswith("--ntasks-per-gpu ties")
    failing = [check for check in record["asked"]["checks"] if check["ok"] == "fails"]
    assert failing[0]["id"] == "weights"
    assert record["asked"]["memory"]["weights_gib"]["mid"] > 100


# what the shim is told


def test_only_a_rewrite_that_is_made_carries_changes() -> None:
    made = outcome_of(moved())
    assert (made.verdict, made.tag, made.code) == (Verdict.REWRITE, True, "worth_more")
    assert made.fields == {"partition": "h200", "gres": "gpu:h200:1"}
    text = script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct")
    advised = outcome_of(ask(text, site(Mode.ADVISE)))
    assert (advised.verdict, advised.tag) == (Verdict.ADVISE, True)
    assert (advised.fields, advised.env, advised.edits) == ({}, {}, ())


def test_job_that_passes_gets_no_tag() -> None:
    passed = outcome_of(ask(script("gpu:a100:2", LLAMA_8B + " -tp 2"), site()))
    assert (passed.verdict, passed.tag, passed.messages) == (Verdict.PASS, False, ())


def test_record_is_made_when_it_is_asked_for() -> None:
    made = outcome_of(moved())
    assert callable(made.record)
    assert made.record()["verdict"] == "rewrite"


def test_answer_about_a_model_that_is_looked_up_does_not_last() -> None:
    pending = UnknownModel(text="its folder is being looked up", pending=True)
    looking = ask(script("gpu:a100:1", "vllm serve /models/x"), where(models=lambda _: pending))
    assert outcome_of(looking).lasting is False
    assert outcome_of(moved()).lasting is True


def test_listed_arms_are_those_that_were_chosen_among() -> None:
    text = script("gpu:h100:1", LLAMA_8B)
    job = submit(text, partition="h100", time_limit_min=480)
    decision = decide(job, where(), expired=lambda: False, all_arms=True)
    assert decision.finding.chosen in decision.arms
    every = decide(
        submit(script("gpu:a100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct")),
        where(),
        expired=lambda: False,
        all_arms=True,
    )
    assert len(every.arms) == len(decision.arms)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_rate_a_model_predicts_is_json(rate: float) -> None:
    wild = replace(site(), predictor=Rates(RATES | {("h100", 1): rate}))
    decision = ask(script("gpu:h100:1", LLAMA_8B), wild, partition="h100")
    json.dumps(as_json(decision), allow_nan=False)


def test_brief_record_leaves_out_of_listed_arms_what_follows_from_the_rest() -> None:
    class Whole(Rates):
        def _one(self, each: Any, workload: Any) -> Any:
            found = super()._one(each, workload)
            return replace(found, targets={**found.targets, "req_s": around(4.0)})

    text = script("gpu:h100:1", "#OMNIPILOT concurrency=32", LLAMA_8B)
    every = dict.fromkeys(RATES, 1000.0) | {("h200", n): 3000.0 for n in (1, 2, 4, 8)}
    decision = ask(
        text, replace(site(), predictor=Whole(every)), partition="h100", time_limit_min=480
    )
    brief: Any = as_json(decision, brief=True)
    whole: Any = as_json(decision)
    assert "req_s" in brief["asked"]["predictions"]
    assert "req_s" in brief["chosen"]["predictions"]
    assert len(brief["arms"]) == len(whole["arms"]) > 4
    for short, full in zip(brief["arms"], whole["arms"], strict=True):
        assert set(full["predictions"]) - set(short["predictions"]) == {"req_s"}
        assert "checks" not in short
