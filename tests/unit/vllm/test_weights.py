"""Parameter counts from the fields of a model, against the counts that checkpoints state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.vllm.weights import n_moe_layers, parameter_count

CATALOG = Catalog.load(site=None)

#: the checkpoints' own counts (safetensors metadata), in 10**9; towers included
STATED = {
    "meta-llama/Llama-3.1-8B-Instruct": 8.030,
    "meta-llama/Llama-3.1-405B-Instruct": 405.853,
    "meta-llama/Llama-3.2-1B": 1.236,
    "meta-llama/Llama-4-Scout-17B-16E": 108.642,
    "meta-llama/Llama-4-Maverick-17B-128E": 401.584,
    "Qwen/Qwen2.5-7B-Instruct": 7.616,
    "Qwen/Qwen2-57B-A14B-Instruct": 57.409,
    "Qwen/Qwen3-30B-A3B": 30.532,
    "Qwen/Qwen3-235B-A22B": 235.094,
    "Qwen/Qwen3.5-397B-A17B": 397.0,
    "google/gemma-2-27b-it": 27.227,
    "google/gemma-3-27b-it": 27.432,
    "mistralai/Mixtral-8x7B-v0.1": 46.703,
    "deepseek-ai/DeepSeek-V3": 671.026,
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct": 15.706,
    "moonshotai/Kimi-K2-Instruct": 1026.408,
    "openai/gpt-oss-120b": 116.829,
    "openai/gpt-oss-20b": 20.915,
    "zai-org/GLM-5": 744.0,
    "MiniMaxAI/MiniMax-M2.5": 228.704,
    "ai21labs/AI21-Jamba-Mini-1.5": 51.570,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.578,
    "nvidia/Nemotron-H-56B-Base-8K": 56.324,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49.867,
    "tiiuae/Falcon-H1-34B-Instruct": 33.643,
    "ibm-granite/granite-4.0-h-small": 32.207,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79.674,
    "MiniMaxAI/MiniMax-Text-01": 456.090,
    "facebook/opt-125m": 0.12524,
    "EleutherAI/gpt-j-6b": 6.051,
    "bigcode/starcoder": 15.517,
    "bigscience/bloom-7b1": 7.069,
    "Deci/DeciLM-7B": 7.044,
    "google/flan-t5-xxl": 11.135,
    "BAAI/bge-large-en-v1.5": 0.33514,
}


@pytest.mark.parametrize(("model_id", "billions"), STATED.items())
def test_the_fields_imply_the_count_that_the_checkpoint_states(model_id, billions):
    count = parameter_count(CATALOG.model(model_id).facts)
    assert count.total == pytest.approx(billions * 1e9, rel=0.02)


#: what the makers say a token goes through, in 10**9
ACTIVE = {
    "Qwen/Qwen3-235B-A22B": 22.2,
    "deepseek-ai/DeepSeek-V3": 37.5,
    "mistralai/Mixtral-8x7B-v0.1": 12.9,
    "moonshotai/Kimi-K2-Instruct": 32.9,
    "meta-llama/Llama-4-Maverick-17B-128E": 17.2,
}


@pytest.mark.parametrize(("model_id", "billions"), ACTIVE.items())
def test_active_parameters_leave_out_the_experts_a_token_is_not_sent_to(model_id, billions):
    facts = CATALOG.model(model_id).facts
    count = parameter_count(facts)
    text_active = count.active - count.tower
    assert text_active == pytest.approx(billions * 1e9, rel=0.03)
    assert facts.active_params == count.active


def test_every_model_of_the_catalog_is_within_two_percent_of_its_count():
    for model_id in CATALOG.model_ids():
        facts = CATALOG.model(model_id).facts
        assert parameter_count(facts).total == pytest.approx(facts.params, rel=0.02), model_id


def test_a_dense_model_is_the_sum_of_its_matrices():
    count = parameter_count(CATALOG.model("meta-llama/Llama-3.1-8B").facts)
    assert count.embedding == 128256 * 4096
    assert count.head == 128256 * 4096
    assert count.attention == 32 * (4096 * 4096 * 2 + 2 * 4096 * 8 * 128)
    assert count.mlp == 32 * 3 * 4096 * 14336
    assert count.experts == count.mixer == count.tower == 0
    assert count.total == count.linear + count.unquantized == count.active


def test_tied_embeddings_have_no_head():
    facts = CATALOG.model("meta-llama/Llama-3.1-8B").facts
    tied = parameter_count(replace(facts, tied_embeddings=True))
    assert parameter_count(facts).total - tied.total == 128256 * 4096


def test_experts_stand_in_every_layer_but_the_dense_ones():
    assert n_moe_layers(CATALOG.model("deepseek-ai/DeepSeek-V3").facts) == 58
    assert n_moe_layers(CATALOG.model("meta-llama/Llama-4-Maverick-17B-128E").facts) == 24
    assert n_moe_layers(CATALOG.model("meta-llama/Llama-3.1-8B").facts) == 0


def test_a_quantised_sibling_counts_the_same_parameters():
    base = CATALOG.model("Qwen/Qwen2.5-32B-Instruct").facts
    awq = CATALOG.model("Qwen/Qwen2.5-32B-Instruct-AWQ").facts
    assert parameter_count(awq) == parameter_count(base)


def test_a_checkpoint_whose_widths_were_padded_for_its_groups_has_a_shape_of_its_own():
    base = CATALOG.model("Qwen/Qwen2.5-72B-Instruct").facts
    awq = CATALOG.model("Qwen/Qwen2.5-72B-Instruct-AWQ").facts
    assert (base.intermediate, awq.intermediate) == (29568, 29696)
