"""What is left for the cache, by hand and by its laws."""

from dataclasses import replace
from math import hypot
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.train.startup import read_figures
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.memory import total_gib
from omnipilot_slurm.vllm.planned import memory_of
from omnipilot_slurm.vllm.report import Place

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
LLAMA_8B = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
H100 = CATALOG.gpu("H100-80GB")
VERSIONS = ["0.5.5", "0.6.3", "0.7.3", "0.8.5", "0.10.2", "0.11.0", "0.15.0", "0.20.2", "0.33.0"]
MODELS = [
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen2.5-VL-72B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
]


def test_the_cache_gets_the_budget_less_the_middles_and_the_spreads_add_as_squares():
    engine = EngineArgs(vllm_version="0.11.0", max_model_len=8192)
    memory = memory_of(LLAMA_8B, H100, engine, COEFFICIENTS)
    (left,) = memory.eras
    plan, share = memory.plan, 0.9
    mid = plan.total.mid * share - plan.weights.mid - plan.activation.mid - plan.non_torch.mid
    down = hypot(
        (plan.total.mid - plan.total.lo) * share,
        plan.weights.hi - plan.weights.mid,
        plan.activation.hi - plan.activation.mid,
        plan.non_torch.hi - plan.non_torch.mid,
    )
    assert left.kv[1] == pytest.approx(mid)
    assert left.kv[0] == pytest.approx(mid - down)
    assert left.need == 1.0  # 8192 tokens of 128 KiB


def test_the_estimate_of_cuda_graphs_comes_off_the_cache_where_the_version_counts_it():
    left = {}
    for version in ("0.19.0", "0.20.2"):
        engine = EngineArgs(vllm_version=version, max_model_len=8192)
        (left[version],) = memory_of(LLAMA_8B, H100, engine, COEFFICIENTS).eras
    counted = {v: found.engine.graphs_in_budget for v, found in left.items()}
    assert counted == {"0.19.0": False, "0.20.2": True}
    held = left["0.20.2"]
    parts = held.beside.activation[1] + held.beside.graphs[1] + held.beside.non_torch[1]
    weights = memory_of(LLAMA_8B, H100, engine, COEFFICIENTS).plan.weights.mid
    assert held.kv[1] == pytest.approx(H100.mem_gib * 0.92 - weights - parts)


def test_a_size_that_no_report_backs_is_an_interval_of_two_percent():
    guessed = total_gib(replace(H100, mem_is_measured=False, mem_gib=100.0))
    assert (guessed.lo, guessed.hi) == (98.0, 102.0)


def test_a_given_cache_size_is_taken_as_it_is():
    engine = EngineArgs(vllm_version="0.12.0", kv_cache_memory_bytes=2**31, max_model_len=8192)
    report = assess(LLAMA_8B, H100, engine, Place(), COEFFICIENTS)
    assert (report.memory.kv.lo, report.memory.kv.hi) == (2.0, 2.0)
    assert report.n_full_requests.mid == 2.0


def test_a_version_that_is_not_known_gives_the_hull_of_all_eras():
    whole = memory_of(LLAMA_8B, H100, EngineArgs(max_model_len=8192), COEFFICIENTS).plan.kv
    for version in VERSIONS:
        engine = EngineArgs(max_model_len=8192, vllm_version=version)
        part = memory_of(LLAMA_8B, H100, engine, COEFFICIENTS).plan.kv
        assert whole.lo <= part.lo + 0.5
        assert part.hi <= whole.hi + 3.0


engines = st.builds(
    EngineArgs,
    tensor_parallel=st.sampled_from([1, 2, 4]),
    max_model_len=st.sampled_from([2048, 8192, 32768, 131072]),
    max_num_batched_tokens=st.sampled_from([2048, 16384]),
    max_num_seqs=st.sampled_from([16, 256]),
    gpu_memory_utilization=st.sampled_from([None, 0.8, 0.95]),
    enforce_eager=st.booleans(),
    chunked_prefill=st.just(True),
    vllm_version=st.sampled_from([None, *VERSIONS]),
)
questions = st.tuples(st.sampled_from(MODELS), engines, st.floats(min_value=10.0, max_value=150.0))


def cache_state(name, engine, mem_gib):
    gpu = replace(H100, mem_gib=mem_gib)
    report = assess(CATALOG.model(name).facts, gpu, engine, Place(), COEFFICIENTS)
    ids = {"weights", "kv_cache", "headroom", "free_memory"}
    return [check.ok for check in report.checks if check.id in ids]


@settings(max_examples=150)
@given(question=questions, more=st.floats(min_value=0.0, max_value=100.0))
def test_more_memory_never_turns_a_start_into_a_failure(question, more):
    name, engine, mem_gib = question
    if Starts.FAILS not in cache_state(name, engine, mem_gib):
        assert Starts.FAILS not in cache_state(name, engine, mem_gib + more)


@settings(max_examples=150)
@given(question=questions, times=st.sampled_from([0.1, 0.5, 0.9]))
def test_a_shorter_context_never_turns_a_start_into_a_failure(question, times):
    name, engine, mem_gib = question
    shorter = replace(engine, max_model_len=max(16, int(engine.max_model_len * times)))
    if Starts.FAILS not in cache_state(name, engine, mem_gib):
        assert Starts.FAILS not in cache_state(name, shorter, mem_gib)


@settings(max_examples=150)
@given(question=questions)
def test_a_higher_tp_never_turns_a_start_into_a_failure(question):
    name, engine, mem_gib = question
    doubled = replace(engine, tensor_parallel=2 * engine.tensor_parallel)
    if Starts.FAILS not in cache_state(name, engine, mem_gib):
        assert Starts.FAILS not in cache_state(name, doubled, mem_gib)


FIGURES = read_figures(Path(__file__).parents[2] / "fixtures" / "startup_figures.yaml")
MEASURED = [
    figure
    for figure in FIGURES
    if figure.kv_gib is not None and "does not sample" not in figure.note
]


#: what a server was told besides, by the figure's id
TOLD = {
    "deepseek-v2.5-tp8-v0-first": {"pipeline_parallel": 2},
    "deepseek-v2.5-tp8-v0-last": {"pipeline_parallel": 2},
    "internvl3-78b-tp8-v0": {"max_model_len": 8192, "mm_limits": '{"image": 16}'},
    "qwen2.5-vl-7b-0.23": {"max_model_len": 128000},
    "qwen3-vl-30b-tp4-0.11": {"max_model_len": 65536},
}


@pytest.mark.parametrize("figure", MEASURED, ids=[figure.id for figure in MEASURED])
def test_the_measured_cache_of_every_public_figure_is_inside_its_interval(figure):
    engine = EngineArgs(
        tensor_parallel=figure.tensor_parallel,
        gpu_memory_utilization=figure.utilization,
        max_num_batched_tokens=figure.tokens,
        max_num_seqs=figure.seqs,
        chunked_prefill=True,
        v1=False if "V0" in figure.note else None,
        vllm_version=figure.version,
        **{"max_model_len": 2048} | TOLD.get(figure.id, {}),
    )
    link = CATALOG.gpu("L40S").link_gb_s if figure.pcie else H100.link_gb_s
    gpu = replace(H100, mem_gib=figure.total_gib, link_gb_s=link)
    plan = memory_of(CATALOG.model(figure.model).facts, gpu, engine, COEFFICIENTS).plan
    assert plan.kv.lo <= figure.kv_gib <= plan.kv.hi


@pytest.mark.parametrize(
    ("version", "bytes_a_token"),
    [("0.6.3.post1", 27 * 8 * 256 * 2 * 2), ("0.7.0", 27 * 8 * 192 * 2 * 2), ("0.7.2", 27 * 1152)],
)
def test_old_versions_cache_whole_heads_of_latent_attention(version, bytes_a_token):
    model = CATALOG.model("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct").facts
    engine = EngineArgs(tensor_parallel=2, max_model_len=16384, vllm_version=version)
    plan = memory_of(model, CATALOG.gpu("L40"), engine, COEFFICIENTS).plan
    assert plan.kv_need.mid == pytest.approx(16384 * bytes_a_token / 2**30)
