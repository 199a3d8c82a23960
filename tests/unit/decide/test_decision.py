"""The decisions that issue and docs promise, one by one, on the sandbox's cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from site_for_tests import SNAPSHOT, ask, script, site

from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.records import Mode, Verdict
from omnipilot_slurm.script.rewrite import apply

LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def test_70b_in_bf16_on_one_a100_40gb_moves_to_the_smallest_arm_that_starts() -> None:
    text = script("gpu:a100:1", f"vllm serve {LLAMA_70B} --max-model-len 8192")
    decision = ask(text)
    assert decision.verdict is Verdict.REWRITE, decision.finding
    assert decision.finding.chosen is not None
    arm = decision.finding.chosen.arm
    assert (arm.partition, arm.n_gpus, arm.tensor_parallel) != ("a100", 1, 1)
    change = decision.finding.change
    assert change is not None
    assert change.fields == {
        "partition": arm.partition,
        "gres": f"gpu:{arm.gres_type}:{arm.n_gpus}",
    }
    moved = apply(text.encode(), change.edits).decode()
    assert moved.endswith(f"--max-model-len 8192 --tensor-parallel-size {arm.tensor_parallel}\n")


def test_two_gpus_without_a_tp_flag_get_tp_2() -> None:
    decision = ask(script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct"))
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert decision.finding.change.fields == {}
    assert [edit.new for edit in decision.finding.change.edits] == [b" --tensor-parallel-size 2"]


def test_tp_3_for_32_heads_on_4_gpus_becomes_tp_4() -> None:
    decision = ask(script("gpu:a100:4", "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 3"))
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert [edit.new for edit in decision.finding.change.edits] == [b"4"]


def test_tp_3_for_32_heads_on_3_gpus_is_refused_naming_2_and_4() -> None:
    decision = ask(script("gpu:a100:3", "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 3"))
    assert decision.verdict is Verdict.REJECT
    assert decision.finding.valid_tps == (2, 4)
    assert "2 or 4" in "\n".join(decision.messages)


def test_good_job_passes_in_silence() -> None:
    decision = ask(
        script("gpu:h100:1", "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"),
        partition="h100",
    )
    assert decision.verdict is Verdict.PASS
    assert decision.messages == ()


def test_two_servers_get_one_line_of_advice() -> None:
    decision = ask(script("gpu:a100:2", "vllm serve a/b &\nvllm serve c/d &\nwait"))
    assert decision.verdict is Verdict.ADVISE
    assert len(decision.messages) == 1


def test_unknown_model_abstains_and_names_it() -> None:
    decision = ask(script("gpu:a100:1", "vllm serve nobody/has-this-one"))
    assert decision.verdict is Verdict.ABSTAIN
    assert "nobody/has-this-one" in decision.messages[0]


def test_opt_outs_are_silent() -> None:
    text = script("gpu:a100:1", f"#OMNIPILOT off\nvllm serve {LLAMA_70B}")
    for decision in (
        ask(text),
        ask(text.replace("#OMNIPILOT off\n", ""), comment="x; omnipilot=off"),
    ):
        assert decision.verdict is Verdict.PASS
        assert decision.messages == ()
        assert decision.finding.reason.code == "opted_out"


def test_observe_says_nothing_and_advise_changes_nothing() -> None:
    text = script("gpu:a100:1", f"vllm serve {LLAMA_70B} --max-model-len 8192")
    observed = ask(text, site(Mode.OBSERVE))
    assert (observed.verdict, observed.messages) == (Verdict.PASS, ())
    assert observed.finding.verdict is Verdict.REWRITE
    advised = ask(text, site(Mode.ADVISE))
    assert advised.verdict is Verdict.ADVISE
    assert "would be changed to" in advised.messages[0]


def test_ntasks_per_gpu_is_never_rewritten() -> None:
    text = script("gpu:a100:1", f"vllm serve {LLAMA_70B} --max-model-len 8192")
    decision = ask(text, ntasks_per_gpu=1)
    assert decision.verdict is Verdict.ADVISE
    assert decision.finding.change is None


def test_partition_left_open_becomes_the_one_that_has_the_gpus_asked() -> None:
    decision = ask(script("gpu:h100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct"))
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert decision.finding.change.fields == {"partition": "h100"}
    assert decision.finding.change.edits == ()


def test_partition_left_open_and_too_little_memory_are_mended_together() -> None:
    text = script("gpu:h100:1", f"vllm serve {LLAMA_70B} --max-model-len 8192")
    decision = ask(text)
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert decision.finding.chosen is not None
    arm = decision.finding.chosen.arm
    gres = f"gpu:{arm.gres_type}:{arm.n_gpus}"
    assert decision.finding.change.fields == {"partition": arm.partition, "gres": gres}


def test_partition_named_that_lacks_the_gpus_is_the_users_to_mend() -> None:
    decision = ask(script("gpu:h100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct"), partition="a100")
    assert (decision.verdict, decision.messages) == (Verdict.PASS, ())
    assert decision.finding.reason.code == "gpus_elsewhere"


def test_canary_acts_on_its_share_of_names_and_always_on_the_same_ones() -> None:
    text = script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct")
    share = site(canary_percent=25)
    acted = [ask(text, share, name=f"job-{i}").verdict is Verdict.REWRITE for i in range(200)]
    again = [ask(text, share, name=f"job-{i}").verdict is Verdict.REWRITE for i in range(200)]
    assert acted == again
    assert 25 <= sum(acted) <= 75
    assert ask(text, site(canary_percent=0)).messages == ()
    by_partition = site(canary_percent=0, canary_percent_by_partition={"a100": 100})
    assert ask(text, by_partition, partition="a100").verdict is Verdict.REWRITE


def test_job_without_a_partition_is_treated_as_the_default_one_is() -> None:
    text = script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct")
    acts = site(Mode.OBSERVE, by_partition={"a100": Mode.ENFORCE})
    assert ask(text, acts).verdict is Verdict.REWRITE
    watches = site(Mode.ENFORCE, by_partition={"a100": Mode.OBSERVE})
    assert ask(text, watches).verdict is Verdict.PASS
    share = site(canary_percent_by_partition={"a100": 0})
    assert ask(text, share).verdict is Verdict.PASS
    nowhere = replace(SNAPSHOT.partitions[0], is_default=False)
    homeless = Snapshot(partitions=(nowhere, *SNAPSHOT.partitions[1:]))
    assert ask(text, site(snapshot=homeless)).verdict is Verdict.REWRITE


@pytest.mark.parametrize(
    ("policy", "job", "mode"),
    [
        ({"by_user": {"alice": Mode.ADVISE}, "by_account": {"llm": Mode.OBSERVE}}, {}, "advise"),
        ({"by_account": {"llm": Mode.OBSERVE}}, {"account": "llm"}, "observe"),
        ({"by_account": {"llm": Mode.OBSERVE}}, {"default_account": "llm"}, "observe"),
        ({"by_partition": {"h100": Mode.OBSERVE}}, {"partition": "a100,h100"}, "observe"),
        ({}, {"partition": "a100,h100"}, "enforce"),
    ],
)
def test_most_specific_entry_sets_the_mode(
    policy: dict[str, Any], job: dict[str, Any], mode: str
) -> None:
    text = script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct")
    assert ask(text, site(**policy), **job).mode == Mode(mode)


def test_directive_can_lower_the_mode_and_never_raise_it() -> None:
    serve = "vllm serve Qwen/Qwen2.5-7B-Instruct"
    lowered = ask(script("gpu:a100:2", "#OMNIPILOT advise", serve))
    assert (lowered.verdict, lowered.mode) == (Verdict.ADVISE, Mode.ADVISE)
    raised = ask(script("gpu:a100:2", "#OMNIPILOT advise", serve), site(Mode.OBSERVE))
    assert raised.mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"user_name": "root"}, "exempt"),
        ({"account": "admin"}, "exempt"),
        ({"default_account": "admin"}, "exempt"),
        ({"het_job_offset": 0}, "heterogeneous"),
        ({"held": True}, "held"),
        ({"reservation": "course"}, "reservation"),
        ({"req_nodes": "n1"}, "nodelist"),
        ({"exc_nodes": "n1"}, "exclude"),
    ],
)
def test_jobs_that_are_left_alone_pass_in_silence(job: dict[str, Any], code: str) -> None:
    where = site(exempt_accounts=frozenset({"admin"}))
    decision = ask(script("gpu:a100:1", f"vllm serve {LLAMA_70B}"), where, **job)
    assert (decision.verdict, decision.messages) == (Verdict.PASS, ())
    assert decision.finding.reason.code == code


def test_job_without_a_server_passes_in_silence_even_with_a_directive() -> None:
    decision = ask(script("gpu:a100:1", "#OMNIPILOT auto", "python train.py"))
    assert (decision.verdict, decision.messages) == (Verdict.PASS, ())


def test_job_whose_gpus_cannot_be_counted_passes() -> None:
    decision = ask("#!/bin/bash\nvllm serve Qwen/Qwen2.5-7B-Instruct\n")
    assert (decision.verdict, decision.finding.reason.code) == (Verdict.PASS, "no_gpus")


def test_absent_tp_that_makes_it_fail_is_filled_in_with_what_was_asked() -> None:
    decision = ask(script("gpu:a100-80:2", f"vllm serve {LLAMA_70B} --max-model-len 4096"))
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.reason.code == "weights"
    assert decision.finding.change is not None
    assert [edit.new for edit in decision.finding.change.edits] == [b" --tensor-parallel-size 2"]


def test_tp_beyond_the_gpus_asked_becomes_theirs_or_moves_where_that_does_not_fit() -> None:
    small = ask(script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct -tp 4"))
    assert small.verdict is Verdict.REWRITE
    assert small.finding.change is not None
    assert [edit.new for edit in small.finding.change.edits] == [b"2"]
    large = ask(script("gpu:a100:1", f"vllm serve {LLAMA_70B} --max-model-len 4096 -tp 2"))
    assert large.verdict is Verdict.REWRITE
    assert large.finding.chosen is not None
    assert large.finding.chosen.arm.n_gpus > 1


def test_failure_that_no_gpus_mend_is_refused() -> None:
    decision = ask(
        script("gpu:a100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 1000000")
    )
    assert decision.verdict is Verdict.REJECT
    assert decision.finding.change is None


@pytest.mark.parametrize("around", ["if curl -s localhost; then {}; fi", "while true; do {}; done"])
def test_failing_launch_that_may_not_run_is_advised_on(around: str) -> None:
    decision = ask(script("gpu:a100:1", around.format(f"vllm serve {LLAMA_70B}")))
    assert (decision.verdict, decision.finding.change) == (Verdict.ADVISE, None)
    assert decision.finding.obstacle is not None
    assert decision.finding.obstacle.code == "not_editable"


def test_partition_open_and_refused_everywhere_is_refused() -> None:
    text = script("gpu:h100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 1000000")
    assert ask(text).verdict is Verdict.REJECT


def test_tp_from_a_slurm_variable_follows_the_gpus() -> None:
    text = script(
        "gpu:a100:1", f"vllm serve {LLAMA_70B} --max-model-len 8192 -tp $SLURM_GPUS_ON_NODE"
    )
    decision = ask(text)
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.change is not None
    assert decision.finding.change.edits == ()


@pytest.mark.parametrize(
    ("model", "flags", "precision"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "", "bf16"),
        ("Qwen/Qwen2.5-7B-Instruct", "--dtype half", "fp16"),
        ("Qwen/Qwen2.5-7B-Instruct", "--dtype float32", "fp32"),
        ("Qwen/Qwen2.5-7B-Instruct", "--quantization fp8", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "", "awq"),
    ],
)
def test_precision_is_that_of_the_weights(model: str, flags: str, precision: str) -> None:
    decision = ask(script("gpu:h100:1", f"vllm serve {model} {flags}"), partition="h100")
    assert decision.finding.asked is not None
    assert decision.finding.asked.arm.precision == precision


def test_pinned_devices_are_what_the_server_sees() -> None:
    text = script(
        "gpu:a100:4", "export CUDA_VISIBLE_DEVICES=0", "vllm serve Qwen/Qwen2.5-7B-Instruct -tp 4"
    )
    decision = ask(text, partition="a100")
    assert decision.finding.asked is not None
    failing = [c.id for c in decision.finding.asked.report.checks if str(c.ok) == "fails"]
    assert failing == ["world_size"]


def test_length_that_no_gpus_mend_is_refused_without_looking_elsewhere() -> None:
    serve = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 40000"
    decision = ask(script("gpu:h100:1", serve), partition="h100")
    assert decision.verdict is Verdict.REJECT
    assert decision.finding.arms == ()


def test_tp_beyond_the_gpus_asked_that_does_not_fit_them_either_moves_the_job() -> None:
    serve = f"vllm serve {LLAMA_70B} --max-model-len 8192 -tp 8"
    decision = ask(script("gpu:a100:2", serve))
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.chosen is not None
    assert decision.finding.chosen.arm.partition != "a100"


def test_cache_that_may_hold_no_request_is_under_endless_pressure() -> None:
    serve = f"vllm serve {LLAMA_70B} --max-model-len 16384 -tp 2"
    decision = ask(script("gpu:a100-80:2", serve), partition="a100-80")
    asked = decision.finding.asked
    assert asked is not None
    assert asked.prediction is not None
    usage = asked.prediction.targets["kv_usage_frac"]
    assert 0 < usage.lo <= usage.mid <= usage.hi == 1.0
