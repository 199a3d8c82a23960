"""The cache's formulas against figures that vLLM printed, and the closed form against trying."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.vllm.kv import KvShape, kv_shape, longest_request, request_bytes

CATALOG = Catalog.load(site=None)
GIB = 2.0**30


def shape_of(name, *, tp=1, pp=1, kv_cache_dtype="auto"):
    return kv_shape(
        CATALOG.model(name).facts,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        kv_cache_dtype=kv_cache_dtype,
        dtype_bytes=2.0,
    )


@pytest.mark.parametrize(
    ("name", "options", "bytes_per_token"),
    [
        # 32 layers x 8 KV heads x 128 x (K and V) x 2 bytes
        ("meta-llama/Llama-3.1-8B-Instruct", {}, 131072),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tp": 2}, 65536),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tp": 8}, 16384),
        # beyond its KV heads each GPU keeps a copy of one
        ("meta-llama/Llama-3.1-8B-Instruct", {"tp": 16}, 16384),
        ("meta-llama/Llama-3.1-8B-Instruct", {"pp": 3}, 131072 * 11 / 32),
        ("meta-llama/Llama-3.1-8B-Instruct", {"kv_cache_dtype": "fp8"}, 65536),
        ("meta-llama/Llama-3.1-8B-Instruct", {"kv_cache_dtype": "fp8_per_token_head"}, 67584),
        # 61 layers x (512 latent + 64 rope) x 2 bytes, whatever TP is
        ("deepseek-ai/DeepSeek-V3", {"tp": 8}, 70272),
        ("deepseek-ai/DeepSeek-V3", {"kv_cache_dtype": "fp8_ds_mla"}, 656 * 61),
    ],
)
def test_a_token_costs_what_its_heads_or_its_latent_vector_take(name, options, bytes_per_token):
    shape = shape_of(name, **options)
    assert shape.full + shape.sliding == pytest.approx(bytes_per_token)


def test_a_long_request_of_gpt_oss_needs_what_vllm_printed():
    # "4.54 GiB KV cache is needed" for 131072 tokens; 18 of 36 layers hold 128 tokens and the batch
    need = request_bytes(
        shape_of("openai/gpt-oss-120b"),
        131072,
        block_size=16,
        n_batched_tokens=1024,
        hybrid=True,
    )
    assert round(need / GIB, 2) == 4.54


def test_without_the_hybrid_manager_a_sliding_layer_is_cached_whole():
    shape = KvShape(full=100.0, sliding=100.0, window=128, state=0.0)
    whole = request_bytes(shape, 4096, block_size=16, n_batched_tokens=512, hybrid=False)
    assert whole == 4096 * 200.0


def test_recurrent_layers_take_the_same_at_any_length():
    shape = KvShape(full=0.0, sliding=0.0, window=None, state=1e6)
    lengths = [1, 16, 100_000]
    assert {
        request_bytes(shape, length, block_size=16, n_batched_tokens=512, hybrid=True)
        for length in lengths
    } == {1e6}


shapes = st.builds(
    KvShape,
    full=st.sampled_from([0.0, 64.0, 1000.0]),
    sliding=st.sampled_from([0.0, 64.0, 3000.0]),
    window=st.sampled_from([None, 1, 100, 1000]),
    state=st.sampled_from([0.0, 5000.0]),
)
schedulings = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 16, 64]),
        "n_batched_tokens": st.sampled_from([1, 512, 2048]),
        "hybrid": st.booleans(),
    }
)


@given(
    shape=shapes,
    scheduling=schedulings,
    available=st.floats(min_value=-1e4, max_value=5e6),
    limit=st.integers(min_value=0, max_value=3000),
)
def test_the_longest_request_is_the_one_that_trying_every_length_finds(
    shape, scheduling, available, limit
):
    found = longest_request(shape, available, limit, **scheduling)
    fitting = [
        length
        for length in range(1, limit + 1)
        if request_bytes(shape, length, **scheduling) <= available
    ]
    assert found == 0 or found in fitting
    assert max(fitting, default=0) - found < scheduling["block_size"]
