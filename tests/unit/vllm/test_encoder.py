"""What a profiling step encodes, version by version, by hand and against public logs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.encoder import NO_ENCODING, Batch, Encoded, encoding
from omnipilot_slurm.vllm.grammar import candidates
from omnipilot_slurm.vllm.options import VERSIONS
from omnipilot_slurm.vllm.planned import memory_of

CATALOG = Catalog.load(site=None)
STARTUP = load_startup()
QWEN2 = "Qwen/Qwen2-VL-7B-Instruct"
QWEN2_5 = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN3 = "Qwen/Qwen3-VL-30B-A3B-Instruct"
GEMMA_3 = "google/gemma-3-27b-it"
GEMMA_4 = "google/gemma-4-31b-it"
INTERN = "OpenGVLab/InternVL3-78B"
MISTRAL = "mistralai/Mistral-Small-3.1-24B-Instruct-2503"
LLAMA_4 = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
TOWERS = (QWEN2, QWEN2_5, QWEN3, GEMMA_3, GEMMA_4, INTERN, MISTRAL, LLAMA_4)
#: patches of the largest image of Qwen-VL
LARGEST = 65536


def encoded(name, version, tokens=2048, seqs=256, length=32768, *, v1=True, **options):
    """Return what is usually encoded."""
    batches = (Batch(tokens, seqs, length),) * 3
    model, engine = CATALOG.model(name).facts, EngineArgs(**options)
    return encoding(model, engine, candidates(version), batches, v1=v1).usual


@pytest.mark.parametrize(
    ("name", "version", "tokens", "length", "patches"),
    [
        # the longest video is made for the step's tokens, then for its own, then for the context
        (QWEN2_5, "0.8.5", 2048, 128000, LARGEST),
        (QWEN2_5, "0.9.2", 40000, 128000, 2 * LARGEST),
        (QWEN2_5, "0.10.0", 2048, 128000, 6 * LARGEST),
        (QWEN2_5, "0.10.2", 2048, 128000, LARGEST),
        # a log of 0.23.0: a budget of 114688 tokens, one video
        (QWEN2_5, "0.23.0", 2048, 128000, 7 * LARGEST),
        (QWEN2_5, "0.23.0", 2048, 32768, 2 * LARGEST),
        # a context shorter than a frame pair still has one
        (QWEN2_5, "0.23.0", 2048, 8192, LARGEST),
        # a log of 0.11.0: a budget of 153600 tokens, one video
        (QWEN3, "0.11.0", 2048, 65536, 49152),
        (QWEN3, "0.19.0", 2048, 65536, LARGEST),
        # a larger budget takes more images
        (QWEN3, "0.19.0", 40000, 65536, 2 * LARGEST),
        (GEMMA_3, "0.9.2", 2048, 131072, 8 * 4096),
        (GEMMA_3, "0.9.2", 2049, 131072, 9 * 4096),
        (GEMMA_3, "0.10.0", 2049, 131072, 8 * 4096),
        (MISTRAL, "0.11.0", 2048, 32768, 12100),
        (LLAMA_4, "0.11.0", 8192, 32768, 3 * 17 * 577),
        # frames of a video go through one by one
        (GEMMA_4, "0.20.0", 8192, 32768, 630),
        # as many frames as the context holds
        (INTERN, "0.11.0", 2048, 8192, 32 * 1025),
    ],
)
def test_v1_encodes_the_largest_item_as_often_as_the_budget_holds_it(
    name, version, tokens, length, patches
):
    assert encoded(name, version, tokens, length=length).patches == patches


def test_no_more_items_are_encoded_than_the_sequences_may_have():
    assert encoded(GEMMA_3, "0.10.0", 8192, seqs=2, mm_limits='{"image": 3}').patches == 6 * 4096
    # up to 0.8.4 a prompt had one item unless it was given more
    assert encoded(GEMMA_3, "0.8.4", 8192, seqs=2).patches == 2 * 4096
    assert encoded(GEMMA_3, "0.8.5", 8192, seqs=2).patches == 32 * 4096


def test_no_more_items_are_encoded_than_a_context_has_room_for():
    assert encoded(GEMMA_3, "0.10.2", 8192, seqs=1, length=1024).patches == 4 * 4096
    assert encoded(GEMMA_3, "0.10.0", 8192, seqs=1, length=1024).patches == 32 * 4096


def test_outputs_were_laid_into_a_cache_of_the_whole_budget():
    # 12.5 x 12288 tokens of 2048 values, in four parts
    assert encoded(QWEN3, "0.11.0", length=65536).outputs == 153600 * 2048 * 4
    assert encoded(QWEN3, "0.19.0", length=65536).outputs == 16384 * 2048 * 4
    assert encoded(QWEN3, "0.19.0", length=65536).deep == 16384 * 2048 * 3


@pytest.mark.parametrize(
    ("version", "options", "patches", "tokens", "seqs"),
    [
        # images only, one a prompt
        ("0.6.3.post1", {}, LARGEST, 16384, 2),
        ("0.6.3.post1", {"mm_limits": '{"image": 2}'}, 2 * LARGEST, 32768, 1),
        # image and video, a frame pair fewer for the image
        ("0.7.3", {}, LARGEST, 32768, 1),
        ("0.7.3", {"mm_limits": '{"video": 0}'}, 2 * LARGEST, 32768, 2),
        # items that exceed the step are left out, then they are not
        ("0.7.3", {"mm_limits": '{"image": 3}'}, 0, 0, 1),
        ("0.8.3", {"mm_limits": '{"image": 3}'}, 3 * LARGEST, 65536, 1),
    ],
)
def test_v0_encodes_all_items_of_a_prompt(version, options, patches, tokens, seqs):
    found = encoded(QWEN2, version, 32768, v1=False, **options)
    if seqs == 2:
        patches, tokens = 2 * LARGEST, 32768
    assert (found.patches, found.tokens, found.seqs) == (patches, tokens, seqs)


def test_internvl_got_its_processor_and_its_videos_later():
    # 16 images of 13 tiles on a step of 8192 tokens
    limits, tiles = '{"image": 16}', 16 * 13 * 1025
    assert encoded(INTERN, "0.6.6.post1", 8192, v1=False, mm_limits=limits).patches == tiles
    assert encoded(INTERN, "0.7.2", 8192, v1=False, mm_limits=limits).patches == 0
    assert encoded(INTERN, "0.8.5", 8192).patches == 3 * 13 * 1025
    assert encoded(INTERN, "0.9.0", 8192).patches == 32 * 1025


@pytest.mark.parametrize(
    "options",
    [
        {"language_model_only": True},
        {"skip_mm_profiling": True},
        {"mm_limits": '{"image": 0, "video": 0, "audio": 0}'},
    ],
)
def test_nothing_is_encoded_where_it_is_switched_off(options):
    batches = (Batch(2048, 256, 32768),) * 3
    model = CATALOG.model(QWEN2_5).facts
    found = encoding(model, EngineArgs(**options), candidates("0.19.0"), batches, v1=True)
    assert found is NO_ENCODING


def test_a_limit_of_no_videos_leaves_the_image():
    limits = '{"image": 1, "video": 0}'
    assert encoded(QWEN2_5, "0.23.0", length=128000, mm_limits=limits).patches == LARGEST
    assert encoded(QWEN2_5, "0.23.0", mm_limits='{"image": 0, "video": 0}') == Encoded()


def test_a_tower_that_is_not_known_is_not_computed():
    model = CATALOG.model("zai-org/GLM-4.5V").facts
    batches = (Batch(2048, 256, 32768),) * 3
    assert encoding(model, EngineArgs(), candidates("0.19.0"), batches, v1=True) is None


def test_a_pipeline_may_be_fullest_where_nothing_is_encoded():
    model, batches = CATALOG.model(QWEN2_5).facts, (Batch(2048, 256, 32768),) * 3
    split = EngineArgs(pipeline_parallel=2)
    found = encoding(model, split, candidates("0.19.0"), batches, v1=True)
    assert found.least == (Encoded(),)
    assert found.usual.patches == 2 * LARGEST


def test_of_several_versions_the_least_and_the_most_are_kept():
    model, batches = CATALOG.model(GEMMA_3).facts, (Batch(2049, 256, 32768),) * 3
    both = candidates("0.9.2") | candidates("0.10.0")
    found = encoding(model, EngineArgs(), both, batches, v1=True)
    # what stands around an image leaves room for one fewer
    assert {e.patches for e in found.least} == {8 * 4096, 7 * 4096}
    assert {e.patches for e in found.most} == {9 * 4096, 8 * 4096}
    assert found.usual.patches == 8 * 4096


LIMITS = st.dictionaries(st.sampled_from(["image", "video"]), st.integers(0, 4), max_size=2)


ENGINES = st.builds(
    EngineArgs,
    tensor_parallel=st.sampled_from([1, 2, 4]),
    max_model_len=st.none() | st.integers(64, 131072),
    max_num_batched_tokens=st.none() | st.integers(64, 131072),
    mm_limits=st.none() | LIMITS.map(json.dumps),
    mm_processor_kwargs=st.none()
    | st.integers(1, 10**8).map(lambda pixels: json.dumps({"max_pixels": pixels})),
    vllm_version=st.sampled_from([None, *VERSIONS]),
)


@given(st.sampled_from(TOWERS), ENGINES)
def test_every_activation_is_an_interval(name, engine):
    model, gpu = CATALOG.model(name).facts, CATALOG.gpu("H100-80GB")
    found = memory_of(model, gpu, engine, STARTUP).plan.activation
    assert 0 <= found.lo <= found.mid <= found.hi
