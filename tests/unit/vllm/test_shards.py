"""Weights on one GPU against what vLLM logged that it loaded."""

from pathlib import Path

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.facts import Quantization
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.train.startup import read_figures
from omnipilot_slurm.vllm.checks.quantization import quantization_in_force
from omnipilot_slurm.vllm.shards import weights_gib

CATALOG = Catalog.load(site=None)
FIGURES = read_figures(Path(__file__).parents[2] / "fixtures" / "startup_figures.yaml")
LOADED = [figure for figure in FIGURES if "weights" in figure.fits]
GIB = 2.0**30


@pytest.mark.parametrize("figure", LOADED, ids=[figure.id for figure in LOADED])
def test_the_weights_of_every_public_figure_come_out_within_three_percent(figure):
    model = CATALOG.model(figure.model).facts
    computed = weights_gib(
        model,
        quantization_in_force(model, EngineArgs()),
        dtype_bytes=2.0,
        tensor_parallel=figure.tensor_parallel,
    )
    assert figure.weights_gib == pytest.approx(computed.mid, rel=0.03)


def loaded(name, quantization=None, **split):
    model = CATALOG.model(name).facts
    return weights_gib(model, quantization, dtype_bytes=2.0, **{"tensor_parallel": 1} | split)


#: sines and cosines of 131072 positions for a head of 128
ROTATIONS = 131072 * 128 * 2 / GIB


def test_a_dense_model_takes_two_bytes_a_parameter_and_tp_divides_all_but_norms():
    params = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts.params
    whole = loaded("meta-llama/Llama-3.1-8B-Instruct").lo
    assert whole == pytest.approx(params * 2 / GIB, rel=0.001)
    assert loaded("meta-llama/Llama-3.1-8B-Instruct", tensor_parallel=4).lo == pytest.approx(
        whole / 4, rel=0.001
    )


@pytest.mark.parametrize("tensor_parallel", [1, 8])
def test_each_gpu_holds_the_whole_table_of_rotations(tensor_parallel):
    found = loaded("meta-llama/Llama-3.1-8B-Instruct", tensor_parallel=tensor_parallel)
    assert found.mid - found.lo == pytest.approx(ROTATIONS)
    # of latent attention only a part of a head is rotated
    latent = loaded("deepseek-ai/DeepSeek-V3", tensor_parallel=tensor_parallel)
    absorbed = 61 * 128 * 512 * (128 + 128) * 2 / GIB / tensor_parallel
    assert latent.mid - latent.lo == pytest.approx(absorbed + 163840 * 64 * 2 / GIB)


def test_positions_on_three_axes_have_a_longer_table():
    found = loaded("Qwen/Qwen2.5-VL-7B-Instruct")
    assert found.mid - found.lo == pytest.approx(4 * 128000 * 128 * 2 / GIB)


def test_of_a_tower_that_is_known_at_most_its_projections_are_copied():
    known, tower = loaded("google/gemma-3-27b-it", tensor_parallel=4), 420e6 * 2 / GIB
    assert known.hi - known.mid == pytest.approx(0.25 * 3 / 4 * tower)
    unknown = loaded("zai-org/GLM-4.5V", tensor_parallel=4)
    assert unknown.hi - unknown.mid == pytest.approx(3 / 4 * 860e6 * 2 / GIB)


def test_a_tower_whose_heads_tp_does_not_divide_copies_its_attention():
    # a third of an InternViT-6B, whose MLPs are four times as wide as its 25 heads
    split, whole = (loaded("OpenGVLab/InternVL3-78B", tensor_parallel=n) for n in (8, 1))
    tower = 5.71e9 * 2 / GIB
    copied = tower * (1 - 1 / 8) / 3
    assert split.lo == pytest.approx(whole.lo / 8 + copied, rel=0.001)


def test_a_tower_that_each_gpu_is_asked_to_hold_is_whole_and_may_still_be_divided():
    split = loaded("google/gemma-3-27b-it", tensor_parallel=4)
    asked = loaded("google/gemma-3-27b-it", tensor_parallel=4, whole_tower=True)
    assert asked.lo == split.lo
    assert asked.mid - split.mid == pytest.approx(3 / 4 * 420e6 * 2 / GIB)
    assert asked.hi == asked.mid


def test_fp8_halves_the_layers_and_leaves_embeddings_and_head_in_16_bits():
    fp8 = Quantization(method="fp8", bits=8)
    facts = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
    in_16_bits = 2 * facts.vocab * facts.hidden
    expected = (facts.params - in_16_bits + 2 * in_16_bits) / GIB
    assert loaded(facts.id, fp8).lo == pytest.approx(expected, rel=0.002)


def test_a_pipeline_stage_holds_its_layers_and_an_end_of_the_model():
    whole = loaded("meta-llama/Llama-3.1-8B-Instruct").lo
    head = 128256 * 4096 * 2 / GIB
    stage = loaded("meta-llama/Llama-3.1-8B-Instruct", pipeline_parallel=4).lo
    assert stage == pytest.approx((whole - 2 * head) / 4 + head, rel=0.001)


def test_layers_that_do_not_divide_leave_one_stage_fuller():
    even = loaded("meta-llama/Llama-3.1-8B-Instruct", pipeline_parallel=4)
    uneven = loaded("meta-llama/Llama-3.1-8B-Instruct", pipeline_parallel=5)
    assert uneven.hi > uneven.mid
    assert even.hi == pytest.approx(even.mid)


def test_data_parallel_replicas_of_a_mixture_share_its_experts():
    alone = loaded("Qwen/Qwen3-30B-A3B").mid
    assert loaded("Qwen/Qwen3-30B-A3B", data_parallel=4).lo < alone
