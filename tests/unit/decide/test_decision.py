"""The decisions that issue and docs promise, one by one, on the sandbox's cluster."""

from __future__ import annotations

from site_for_tests import ask, script, site

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
