from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from known_models import LLAMA_8B as MODEL

from omnipilot_slurm.facts import GpuFacts, LatentAttention
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.vllm.defaults import (
    Default,
    Usage,
    block_size,
    default_model,
    gpu_memory_utilization,
    graphs_in_budget,
    prefix_caching,
    scheduling,
)
from omnipilot_slurm.vllm.options import VERSIONS

MLA = LatentAttention(
    kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)


def gpu(name: str, mem_gib: float, capability: tuple[int, int]) -> GpuFacts:
    return GpuFacts(
        id=name,
        name=name,
        vendor="nvidia",
        mem_gib=mem_gib,
        bandwidth_gb_s=1.0,
        peak_tflops={},
        link_gb_s=1.0,
        tdp_w=1.0,
        capability=capability,
        price_usd_per_gpu_hour=None,
    )


A100_40 = gpu("NVIDIA A100-SXM4-40GB", 39.4, (8, 0))
A100_80 = gpu("NVIDIA A100-SXM4-80GB", 79.3, (8, 0))
H100 = gpu("NVIDIA H100 80GB HBM3", 79.2, (9, 0))
H200 = gpu("NVIDIA H200", 139.8, (9, 0))
B200 = gpu("NVIDIA B200", 178.0, (10, 0))
T4 = gpu("Tesla T4", 14.6, (7, 5))


def batch(
    version: str | None, card: GpuFacts, length: int = 8192, **given: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    usage = given.pop("usage", Usage.SERVER)
    model = given.pop("model", MODEL)
    args = EngineArgs(vllm_version=version, **given)
    found = scheduling(args, model, card, max_model_len=length, usage=usage)
    return found.max_num_batched_tokens.values, found.max_num_seqs.values


@pytest.mark.parametrize(
    ("version", "card", "tokens", "seqs"),
    [
        ("0.6.0", H100, 8192, 256),  # V0, not chunked: the length
        ("0.7.3", A100_40, 8192, 256),
        ("0.8.0", H100, 8192, 1024),
        ("0.8.0", A100_80, 2048, 1024),  # by name, and 1024 sequences everywhere
        ("0.8.3", A100_40, 2048, 1024),
        ("0.8.4", H200, 8192, 1024),
        ("0.8.4", A100_80, 2048, 256),
        ("0.8.5", A100_80, 8192, 1024),  # by memory, the A100 too
        ("0.8.5", A100_40, 2048, 256),
        ("0.9.0", A100_80, 2048, 256),
        ("0.10.2", H100, 8192, 1024),
        ("0.20.2", A100_80, 2048, 256),
        ("0.27.1", B200, 8192, 1024),
        ("0.28.0", B200, 16384, 1024),
        ("0.33.0", H200, 8192, 1024),
        ("0.33.0", T4, 2048, 256),
    ],
)
def test_a_server_takes_the_batch_of_its_version_and_gpu(
    version: str, card: GpuFacts, tokens: int, seqs: int
) -> None:
    assert batch(version, card) == ((tokens,), (seqs,))


@pytest.mark.parametrize(
    ("card", "usage", "expected"),
    [
        (H100, Usage.LLM, ((16384,), (1024,))),
        (A100_40, Usage.LLM, ((8192,), (256,))),
        (H100, Usage.LEGACY, ((2048,), (128,))),
    ],
)
def test_other_ways_of_starting_take_other_batches(
    card: GpuFacts, usage: Usage, expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    assert batch("0.20.2", card, usage=usage) == expected


def test_an_unknown_version_gives_all_values_newest_last() -> None:
    tokens, seqs = batch(None, A100_80)
    assert set(tokens) == {2048, 8192}
    assert tokens[-1] == 2048
    assert set(seqs) == {256, 1024}
    found = scheduling(EngineArgs(), MODEL, A100_80, max_model_len=8192)
    assert not found.max_num_batched_tokens.certain
    assert found.engine.values == ("V0", "V1")


def test_a_given_value_is_certain_whatever_the_version() -> None:
    assert batch(None, A100_80, max_num_batched_tokens=4096, max_num_seqs=64) == ((4096,), (64,))


def test_v0_chunks_long_contexts_and_then_takes_few_tokens() -> None:
    assert batch("0.6.0", H100, 65536) == ((512,), (256,))
    assert batch("0.7.3", H100, 65536) == ((2048,), (256,))
    assert batch("0.7.3", H100, 65536, lora=True) == ((65536,), (256,))
    latent = replace(MODEL, mla=MLA)
    assert batch("0.7.0", H100, 65536, model=latent) == ((2048,), (256,))
    assert batch("0.7.3", H100, 65536, model=latent) == ((65536,), (256,))
    assert batch("0.7.3", H100, 65536, model=replace(MODEL, sliding_window=4096)) == (
        (65536,),
        (256,),
    )


def test_v0_takes_more_tokens_for_images_and_for_pooling() -> None:
    assert batch("0.7.3", H100, 2048, model=replace(MODEL, kind="multimodal")) == ((5120,), (256,))
    assert batch("0.7.3", H100, 2048, pooling=True) == ((32768,), (256,))


@pytest.mark.parametrize(
    ("version", "tokens"),
    [
        ("0.8.5", 8192),  # V1 chunks whatever is asked
        ("0.11.0", 8192),
        ("0.11.2", 32000),  # from here on the flag counts
        ("0.33.0", 32000),
    ],
)
def test_switching_chunked_prefill_off_raises_the_batch_to_the_length(
    version: str, tokens: int
) -> None:
    assert batch(version, H100, 32000, chunked_prefill=False)[0] == (tokens,)


def test_short_contexts_bound_the_default_batch_in_newer_versions() -> None:
    assert batch("0.20.2", H100, 64, max_num_seqs=2) == ((128,), (2,))
    assert batch("0.10.2", H100, 64, max_num_seqs=2) == ((8192,), (2,))


def test_sequences_follow_a_small_batch_from_0_10_1_on() -> None:
    assert batch("0.10.1", H100, max_num_batched_tokens=512)[1] == (512,)
    assert batch("0.10.0", H100, max_num_batched_tokens=512)[1] == (1024,)


@pytest.mark.parametrize(
    "given",
    [{"kv_cache_dtype": "fp8"}, {"speculative": True}, {"cpu_offload_gib": 4.0}, {"lora": True}],
)
def test_what_early_v1_lacks_leaves_the_engine_open(given: dict[str, Any]) -> None:
    args = EngineArgs(vllm_version="0.8.5", **given)
    found = scheduling(args, MODEL, H100, max_model_len=8192)
    assert found.engine.values == ("V0", "V1")
    newer = replace(args, vllm_version="0.11.0")
    assert scheduling(newer, MODEL, H100, max_model_len=8192).engine.values == ("V1",)


def test_a_gpu_before_ampere_leaves_the_engine_open_while_v0_exists() -> None:
    args = EngineArgs(vllm_version="0.9.2")
    assert not scheduling(args, MODEL, T4, max_model_len=8192).engine.certain


def test_each_default_changes_where_the_sources_change_it() -> None:
    assert default_model("0.9.2").values == ("facebook/opt-125m",)
    assert default_model("0.10.0").values == ("Qwen/Qwen3-0.6B",)
    assert default_model(None).values == ("facebook/opt-125m", "Qwen/Qwen3-0.6B")
    assert gpu_memory_utilization("0.19.1") == Default((0.90,))
    assert gpu_memory_utilization("0.20.0") == Default((0.92,))
    assert gpu_memory_utilization("0.19.9").values == (0.90, 0.92)
    assert graphs_in_budget("0.19.1").newest is False
    assert graphs_in_budget("0.20.0").newest is True
    assert prefix_caching("0.7.3").newest is False
    assert prefix_caching("0.8.0").newest is True


def test_mla_kernels_of_newer_gpus_want_larger_blocks() -> None:
    mla = replace(MODEL, mla=MLA)
    assert block_size("0.10.2", MODEL, H100) == Default((16,))
    assert block_size("0.10.2", mla, A100_80) == Default((16,))
    assert block_size("0.10.2", mla, H100) == Default((64,))
    assert block_size(None, mla, H100).values == (16, 64)
    assert not block_size("0.20.2", mla, B200).certain


def test_every_known_version_has_certain_values_for_a_plain_model() -> None:
    for version in VERSIONS:
        found = scheduling(EngineArgs(vllm_version=version), MODEL, H100, max_model_len=8192)
        assert found.engine.certain
        assert found.chunked_prefill.certain
        assert found.max_num_batched_tokens.certain
        assert found.max_num_seqs.certain
