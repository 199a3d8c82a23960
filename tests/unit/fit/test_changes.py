"""The smallest changes: each makes the server start, and the least intrusive comes first."""

from dataclasses import replace

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.changes import smallest_changes
from omnipilot_slurm.vllm.checks.outcome import outcome
from omnipilot_slurm.vllm.fit import Question, Told, answer
from omnipilot_slurm.vllm.report import CheckKind, Place

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
CARDS = tuple(CATALOG.gpu(gpu_id) for gpu_id in CATALOG.gpu_ids())
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def question(model, gpu, *, n_gpus=None, **engine):
    return Question(
        model=CATALOG.model(model).facts,
        gpu=CATALOG.gpu(gpu) if gpu else None,
        engine=EngineArgs(**{"vllm_version": "0.11.0"} | engine),
        place=Place(n_gpus=n_gpus, gpus_per_node=n_gpus),
        cards=CARDS,
        siblings=CATALOG.siblings(CATALOG.model(model).facts.id),
    )


def changes_of(asked):
    return smallest_changes(asked, answer(asked, COEFFICIENTS), COEFFICIENTS)


def texts(asked):
    return [change.text for change in changes_of(asked)]


def test_nothing_is_offered_where_the_server_starts():
    assert changes_of(question(LLAMA_8B, "H100-80GB", max_model_len=8192)) == ()


def test_a_context_too_long_is_cut_to_what_certainly_starts():
    first = changes_of(question(LLAMA_8B, "L4"))[0]
    assert (first.sets, first.starts, first.p_starts) == ("max_model_len", Starts.STARTS, None)
    assert first.text == f"--max-model-len {first.value}"
    at = question(LLAMA_8B, "L4", max_model_len=int(first.value))
    assert answer(at, COEFFICIENTS).verdict is Starts.STARTS
    longer = question(LLAMA_8B, "L4", max_model_len=int(first.value) + 1024)
    assert answer(longer, COEFFICIENTS).verdict is not Starts.STARTS


def test_heads_that_do_not_divide_get_the_nearest_degree_within_the_gpus_held():
    held = question("Qwen/Qwen2.5-7B-Instruct", "H100-80GB", n_gpus=8, tensor_parallel=8)
    assert texts(held)[0] == "--tensor-parallel-size 4"
    few = question("Qwen/Qwen2.5-7B-Instruct", "H100-80GB", n_gpus=2, tensor_parallel=3)
    assert texts(few)[:2] == ["--tensor-parallel-size 2", "--tensor-parallel-size 4 on 4 GPUs"]


def test_weights_beyond_the_card_get_a_split_other_files_or_another_card():
    offered = changes_of(question(LLAMA_70B, "A100-80GB", n_gpus=1, max_model_len=8192))
    assert [change.sets for change in offered] == [
        "tensor_parallel_size",
        "model",
        "model",
        "gpu",
        "gpu",
    ]
    assert offered[0].text == "--tensor-parallel-size 2 on 2 GPUs"
    assert all(change.starts is Starts.STARTS for change in offered)


def test_too_large_a_share_is_lowered():
    tight = question(LLAMA_8B, "H100-80GB", max_model_len=8192, gpu_memory_utilization=0.99)
    assert texts(tight)[0] == "--gpu-memory-utilization 0.95"


def test_a_card_without_bfloat16_gets_float16():
    asked = question(LLAMA_8B, "V100-32GB", dtype="bfloat16", max_model_len=4096)
    assert texts(asked)[0] == "--dtype half"


def test_more_gpus_are_named_where_the_job_holds_too_few():
    asked = question(LLAMA_8B, "A100-40GB", n_gpus=1, tensor_parallel=4, max_model_len=8192)
    assert texts(asked)[0] == "GPUs of the job: 4"


def test_an_option_that_the_version_does_not_take_is_left_out():
    told = Told(
        outcome("options", CheckKind.FLAG, Starts.FAILS, "--swap-space: unrecognized"),
        "--swap-space",
    )
    asked = replace(question(LLAMA_8B, "H100-80GB", max_model_len=8192), told=(told,))
    assert texts(asked)[0] == "leave out --swap-space"
    kept = replace(asked, told=(told._replace(option=""),))
    assert texts(kept) == []


def test_a_doubt_that_a_change_was_not_to_cure_stays_and_is_said():
    asked = question("Qwen/Qwen3-30B-A3B", None, tensor_parallel=4, quantization="fp8_per_block")
    asked = replace(asked, engine=replace(asked.engine, vllm_version=None))
    offered = {change.text: change for change in changes_of(asked)}
    change = offered["--tensor-parallel-size 2"]
    assert (change.starts, change.p_starts is not None) == (Starts.UNSURE, True)


@pytest.mark.parametrize("gpu", ["L4", "A10", "A100-40GB", "H100-80GB"])
@pytest.mark.parametrize("model", [LLAMA_8B, LLAMA_70B, "openai/gpt-oss-120b"])
@pytest.mark.parametrize("version", ["0.6.3", "0.11.0", None])
def test_every_change_of_options_starts_when_it_is_made(gpu, model, version):
    asked = question(model, gpu, n_gpus=8, vllm_version=version)
    fields = {"tensor_parallel_size": "tensor_parallel", "max_model_len": "max_model_len"}
    for change in changes_of(asked):
        if change.sets not in fields or " on " in change.text or change.p_starts is not None:
            continue
        made = {fields[change.sets]: int(change.value)}
        if "--max-model-len" in change.text:
            made["max_model_len"] = int(change.text.split("--max-model-len ")[1].split()[0])
        at = replace(asked, engine=replace(asked.engine, **made))
        assert answer(at, COEFFICIENTS).verdict is Starts.STARTS, change.text


def test_a_video_that_fills_the_memory_may_be_given_up():
    asked = question("Qwen/Qwen3-VL-235B-A22B-Instruct", "A100-80GB", n_gpus=8)
    engine = replace(asked.engine, tensor_parallel=8, max_model_len=128000, vllm_version="0.11.0")
    offered = [text for text in texts(replace(asked, engine=engine)) if "--limit-mm" in text]
    assert offered == ["--limit-mm-per-prompt '{\"video\": 0}'"]
    old = replace(engine, vllm_version="0.8.4")  # takes no JSON there
    assert not [text for text in texts(replace(asked, engine=old)) if "--limit-mm" in text]
