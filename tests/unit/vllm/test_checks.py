"""The start-up checks that read no memory: each kind of failure, by version."""

from dataclasses import replace

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.facts import Quantization
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.report import CheckKind, Place

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
LLAMA_8B = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
QWEN_7B = CATALOG.model("Qwen/Qwen2.5-7B-Instruct").facts
QWEN_MOE = CATALOG.model("Qwen/Qwen3-30B-A3B").facts
FAILS, UNSURE, STARTS = Starts.FAILS, Starts.UNSURE, Starts.STARTS


def checks_of(model, engine, *, place=None, capability=None):
    report = assess(
        model,
        None,
        engine,
        place or Place(),
        COEFFICIENTS,
        capability=capability,
    )
    found = {}
    for check in report.checks:
        if check.id not in found or check.ok is not STARTS:
            found[check.id] = check
    return found


def state_of(check_id, model, engine, **known):
    check = checks_of(model, engine, **known).get(check_id)
    return None if check is None else check.ok


def quantised(model, **kind):
    return replace(model, quantization=Quantization(**kind))


# what TP and PP divide


@pytest.mark.parametrize(("tp", "state"), [(2, STARTS), (4, STARTS), (3, FAILS), (8, FAILS)])
def test_tp_must_divide_the_attention_heads(tp, state):
    check = checks_of(QWEN_7B, EngineArgs(tensor_parallel=tp))["heads"]
    assert (check.ok, check.kind) == (state, CheckKind.DIVISIBILITY)


def test_the_heads_that_do_not_divide_are_said_with_the_degrees_that_do():
    check = checks_of(QWEN_7B, EngineArgs(tensor_parallel=8))["heads"]
    text = "28 attention heads / TP 8 leaves 4; TP must be one of 1, 2, 4, 7, 14, 28"
    assert check.detail.text == text


def test_tp_beyond_the_kv_heads_must_be_a_multiple_of_them():
    odd = replace(QWEN_7B, heads=28, kv_heads=4)
    assert state_of("kv_heads", odd, EngineArgs(tensor_parallel=28)) is STARTS
    assert state_of("kv_heads", odd, EngineArgs(tensor_parallel=14)) is FAILS


def test_whole_experts_are_not_cut():
    odd = replace(QWEN_MOE, experts=replace(QWEN_MOE.experts, intermediate=766))
    cut = EngineArgs(tensor_parallel=4)
    assert state_of("widths", odd, cut) is FAILS
    assert state_of("widths", odd, replace(cut, expert_parallel=True)) is not FAILS


def test_more_stages_than_layers_fail():
    assert state_of("layers", QWEN_7B, EngineArgs(pipeline_parallel=29)) is FAILS
    assert state_of("layers", QWEN_7B, EngineArgs(pipeline_parallel=28)) is STARTS


# the GPUs held


@pytest.mark.parametrize(
    ("engine", "state"),
    [
        (EngineArgs(tensor_parallel=4), STARTS),
        (EngineArgs(tensor_parallel=2), STARTS),
        (EngineArgs(tensor_parallel=4, pipeline_parallel=2), FAILS),
        (EngineArgs(tensor_parallel=4, data_parallel=2), FAILS),
        (EngineArgs(tensor_parallel=4, data_parallel=2, data_parallel_local=1), STARTS),
        (EngineArgs(tensor_parallel=4, data_parallel=8, data_parallel_rank=3), STARTS),
    ],
)
def test_the_world_must_not_exceed_the_gpus_held(engine, state):
    assert state_of("world_size", LLAMA_8B, engine, place=Place(n_gpus=4)) is state


def test_gpus_that_stay_idle_are_said():
    checks = checks_of(LLAMA_8B, EngineArgs(tensor_parallel=2), place=Place(n_gpus=4))
    assert checks["world_size"].detail.text == "TP 2 = 2 of 4 GPUs held, 2 stay idle"


@pytest.mark.parametrize(
    ("version", "executor", "state"),
    [
        ("0.11.2", None, FAILS),
        ("0.10.2", None, UNSURE),
        (None, None, UNSURE),
        (None, "mp", FAILS),
        ("0.11.2", "ray", STARTS),
    ],
)
def test_a_server_over_several_nodes_needs_ray_or_nnodes(version, executor, state):
    engine = EngineArgs(tensor_parallel=8, executor=executor, vllm_version=version)
    place = Place(n_gpus=4, gpus_per_node=4, n_nodes=2)
    assert state_of("node_gpus", LLAMA_8B, engine, place=place) is state


# lengths


@pytest.mark.parametrize(
    ("engine", "state"),
    [
        (EngineArgs(max_model_len=32768), STARTS),
        (EngineArgs(max_model_len=32769), FAILS),
        (EngineArgs(max_model_len=32769, allow_long_context=True), UNSURE),
        (EngineArgs(max_model_len=32769, hf_overrides='{"rope_scaling": {}}'), UNSURE),
        (EngineArgs(max_model_len=-1), None),
    ],
)
def test_a_context_beyond_the_models_own_is_refused_unless_told_otherwise(engine, state):
    assert state_of("max_model_len", QWEN_7B, engine) is state


def test_a_longer_model_max_length_lets_newer_versions_go_further():
    further = replace(QWEN_7B, extra={"model_max_length": 131072.0})
    assert state_of("max_model_len", further, EngineArgs(max_model_len=65536)) is UNSURE
    assert state_of("max_model_len", further, EngineArgs(max_model_len=200_000)) is FAILS


@pytest.mark.parametrize(
    ("version", "chunked", "state"),
    [
        ("0.6.3", None, FAILS),
        ("0.6.3", True, None),
        ("0.10.2", None, None),
        ("0.10.2", False, None),
        ("0.12.0", False, FAILS),
        (None, None, UNSURE),
        (None, True, None),
    ],
)
def test_a_step_must_hold_the_context_only_where_prefill_is_in_one_piece(version, chunked, state):
    engine = EngineArgs(
        max_model_len=8192,
        max_num_batched_tokens=4096,
        chunked_prefill=chunked,
        vllm_version=version,
    )
    assert state_of("batched_tokens", LLAMA_8B, engine) is state


def test_a_step_must_hold_a_token_of_each_sequence():
    engine = EngineArgs(max_num_batched_tokens=64, max_num_seqs=128, chunked_prefill=True)
    assert state_of("batched_seqs", LLAMA_8B, engine) is FAILS


def test_too_few_blocks_for_one_request_are_a_doubt():
    engine = EngineArgs(n_gpu_blocks=100, max_model_len=8192)
    check = checks_of(LLAMA_8B, engine)["gpu_blocks"]
    assert check.ok is UNSURE
    assert check.detail.text == "100 blocks of 16 tokens hold 1600, max_model_len is 8192"


# quantised weights


@pytest.mark.parametrize(
    ("method", "scheme", "capability", "version", "state"),
    [
        ("awq", None, 70, None, FAILS),
        ("awq", None, 75, None, STARTS),
        ("fp8", None, 75, "0.10.2", FAILS),
        ("fp8", None, 75, "0.16.0", STARTS),
        ("fp8", None, 75, None, UNSURE),
        ("gptq", None, 70, None, STARTS),
        ("compressed-tensors", "w4a16", 70, None, FAILS),
        ("compressed-tensors", "w4a8-fp8", 80, None, FAILS),
        ("modelopt", None, 80, "0.20.0", FAILS),
    ],
)
def test_a_method_needs_its_capability_in_the_version_in_use(
    method, scheme, capability, version, state
):
    model = quantised(LLAMA_8B, method=method, bits=4, scheme=scheme)
    engine = EngineArgs(vllm_version=version)
    found = state_of("quantization_capability", model, engine, capability=capability)
    assert found is state


@pytest.mark.parametrize(
    ("method", "version", "state"),
    [
        ("bitsandbytes", "0.27.0", STARTS),
        ("bitsandbytes", "0.28.0", FAILS),
        ("gguf", "0.33.0", FAILS),
        ("gguf", None, UNSURE),
        ("squeezellm", "0.8.0", FAILS),
        ("fp8_per_block", "0.10.2", FAILS),
        ("of_my_own", None, UNSURE),
    ],
)
def test_a_method_must_exist_in_the_version_in_use(method, version, state):
    engine = EngineArgs(quantization=method, vllm_version=version)
    assert state_of("quantization_method", LLAMA_8B, engine) is state


@pytest.mark.parametrize(
    ("name", "quantization", "state"),
    [
        ("Qwen/Qwen3-8B", "awq", FAILS),
        ("Qwen/Qwen3-8B", "fp8", STARTS),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "gptq", FAILS),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "awq_marlin", STARTS),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "gptq_marlin", STARTS),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", FAILS),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "compressed-tensors", STARTS),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "fp8", STARTS),
        ("Qwen/Qwen3-8B", None, None),
    ],
)
def test_quantization_must_be_what_the_files_are_stored_in(name, quantization, state):
    model = CATALOG.model(name).facts
    named = EngineArgs(model=model.id, quantization=quantization)
    assert state_of("quantization_config", model, named) is state
    folder = replace(named, model="/models/of-mine")
    assert state_of("quantization_config", model, folder) is None


@pytest.mark.parametrize(("share", "state"), [(1.5, FAILS), (-1, FAILS), (0, FAILS), (1.0, None)])
def test_a_share_of_memory_is_above_0_and_at_most_1(share, state):
    engine = EngineArgs(gpu_memory_utilization=share)
    assert state_of("utilization", LLAMA_8B, engine) is state


def test_groups_that_share_a_scale_must_not_be_cut():
    grouped = quantised(QWEN_7B, method="awq", bits=4, group_size=128)
    # 18944 / 128 = 148 groups: TP 4 takes 37 of them each, TP 8 none evenly
    assert state_of("quantization_group", grouped, EngineArgs(tensor_parallel=4)) is STARTS
    cut = replace(grouped, heads=32, intermediate=18944)
    assert state_of("quantization_group", cut, EngineArgs(tensor_parallel=8)) is FAILS


@pytest.mark.parametrize(
    ("tp", "expert_parallel", "state"), [(2, False, STARTS), (4, False, FAILS), (4, True, STARTS)]
)
def test_blocks_of_an_expert_must_not_be_cut(tp, expert_parallel, state):
    engine = EngineArgs(
        tensor_parallel=tp,
        expert_parallel=expert_parallel,
        quantization="fp8_per_block",
        vllm_version="0.21.0",
    )
    assert state_of("quantization_block", QWEN_MOE, engine) is state


def test_newer_versions_pad_the_blocks_of_experts_that_tp_cuts():
    engine = EngineArgs(tensor_parallel=4, quantization="fp8_per_block")
    assert state_of("quantization_block", QWEN_MOE, engine) is UNSURE
    padded = replace(engine, vllm_version="0.26.0")
    assert state_of("quantization_block", QWEN_MOE, padded) is STARTS


def test_marlin_takes_whole_tiles_where_no_other_kernel_steps_in():
    tiled = quantised(replace(QWEN_7B, intermediate=10944), method="awq", bits=4, group_size=64)
    for version, state in (("0.6.3", FAILS), ("0.7.3", STARTS), (None, UNSURE)):
        engine = EngineArgs(vllm_version=version)
        assert state_of("quantization_tile", tiled, engine, capability=80) is state


# types


@pytest.mark.parametrize(
    ("dtype", "capability", "version", "state"),
    [
        ("bfloat16", 70, None, FAILS),
        ("bfloat16", 80, None, STARTS),
        ("auto", 70, "0.8.5", FAILS),
        ("auto", 75, "0.9.2", STARTS),
        ("auto", 75, None, UNSURE),
        ("half", 70, None, None),
    ],
)
def test_bfloat16_needs_a_card_that_has_it(dtype, capability, version, state):
    engine = EngineArgs(dtype=dtype, vllm_version=version)
    assert state_of("dtype", LLAMA_8B, engine, capability=capability) is state


def test_an_8_bit_cache_on_an_older_card_is_a_doubt_once_v0_is_gone():
    engine = EngineArgs(kv_cache_dtype="fp8_e5m2")
    assert state_of("kv_cache_dtype", LLAMA_8B, engine, capability=80) is UNSURE
    assert state_of("kv_cache_dtype", LLAMA_8B, engine, capability=89) is STARTS
    old, new = (replace(engine, vllm_version=version) for version in ("0.10.2", "0.11.1"))
    assert state_of("kv_cache_dtype", LLAMA_8B, old, capability=80) is STARTS
    assert state_of("kv_cache_dtype", LLAMA_8B, replace(old, v1=True), capability=80) is UNSURE
    assert state_of("kv_cache_dtype", LLAMA_8B, new, capability=80) is UNSURE


@pytest.mark.parametrize(
    ("capability", "version", "state"),
    [
        (60, None, FAILS),
        (60, "0.6.0", FAILS),
        (70, None, None),
        (120, "0.8.5", UNSURE),
        (120, "0.9.0", None),
        (120, None, None),
    ],
)
def test_a_card_older_than_vllm_or_newer_than_its_version_does_not_start(
    capability, version, state
):
    engine = EngineArgs(vllm_version=version)
    assert state_of("gpu_capability", LLAMA_8B, engine, capability=capability) is state


# features


def test_experts_in_parallel_need_experts():
    engine = EngineArgs(expert_parallel=True)
    assert state_of("experts", LLAMA_8B, engine) is FAILS
    assert state_of("experts", QWEN_MOE, engine) is STARTS


def test_a_model_that_no_version_in_question_has_fails_or_goes_to_transformers():
    newer = CATALOG.model("openai/gpt-oss-20b").facts
    assert state_of("architecture", newer, EngineArgs(vllm_version="0.6.3")) is FAILS
    assert state_of("architecture", newer, EngineArgs(vllm_version="0.9.2")) is UNSURE
    assert state_of("architecture", newer, EngineArgs(vllm_version="0.11.0")) is None
    assert state_of("architecture", newer, EngineArgs()) is None


def test_what_the_script_does_not_show_is_a_doubt():
    engine = EngineArgs(tensor_parallel=8, unknown=frozenset({"tensor_parallel"}))
    check = checks_of(QWEN_7B, engine)["heads"]
    assert check.ok is UNSURE
    assert check.detail.text.endswith("; the script does not show tensor_parallel")


# memory outside the budget


@pytest.mark.parametrize(
    ("utilization", "check_id", "state"),
    [
        (0.9, "headroom", None),
        (0.96, "headroom", UNSURE),
        (0.98, "headroom", UNSURE),
        (1.0, "free_memory", UNSURE),
    ],
)
def test_little_headroom_is_a_doubt_and_no_failure(utilization, check_id, state):
    engine = EngineArgs(gpu_memory_utilization=utilization, max_model_len=4096)
    report = assess(LLAMA_8B, CATALOG.gpu("H100-80GB"), engine, Place(), COEFFICIENTS)
    found = {check.id: check.ok for check in report.checks}
    assert found.get(check_id) is state
    assert report.verdict is not FAILS


def test_a_share_that_no_free_memory_can_hold_fails_where_vllm_compares():
    engine = EngineArgs(
        gpu_memory_utilization=1.0, max_model_len=4096, vllm_version="0.12.0", enforce_eager=True
    )
    report = assess(LLAMA_8B, CATALOG.gpu("H100-80GB"), engine, Place(), COEFFICIENTS)
    assert {check.id: check.ok for check in report.checks}["free_memory"] is FAILS


def test_another_server_on_the_same_gpus_is_a_doubt():
    engine = EngineArgs(max_model_len=4096)
    report = assess(LLAMA_8B, CATALOG.gpu("H100-80GB"), engine, Place(shared=True), COEFFICIENTS)
    texts = [check.detail.text for check in report.checks if check.ok is UNSURE]
    assert texts == ["another server of the job runs on the same GPUs, each may take 0.92"]


def test_cards_that_no_figure_was_fitted_on_are_a_doubt():
    card = CATALOG.gpu("MI300X")
    report = assess(LLAMA_8B, card, EngineArgs(max_model_len=4096), Place(), COEFFICIENTS)
    assert [check.id for check in report.checks if check.ok is UNSURE] == ["vendor"]
    assert report.p_starts == 0.5
