"""Activations, graphs and non-torch memory, by hand."""

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.encoder import Batch
from omnipilot_slurm.vllm.overhead import Step, overhead, widths

CATALOG = Catalog.load(site=None)
LLAMA_8B = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
QWEN_MOE = CATALOG.model("Qwen/Qwen3-30B-A3B").facts
STARTUP = load_startup()
ERA = STARTUP.numbers["sorting"]
GIB = 2.0**30


def step(tokens, seqs):
    batch = Batch(tokens, seqs, 4096)
    return Step(batch, batch, batch)


def activation(model, tokens, seqs, tensor_parallel=1):
    wide = widths(model, tensor_parallel, 2.0)
    return overhead(wide, step(tokens, seqs), tensor_parallel, None, ERA).activation[1]


def test_many_sequences_are_bound_by_the_sampler():
    states = 8192 * 4096 * 2
    by_hand = (1024 * 128256 * ERA.sampler[1] + states) * ERA.frac[1] / GIB
    assert activation(LLAMA_8B, 8192, 1024) == pytest.approx(by_hand)


def test_many_tokens_are_bound_by_the_widest_layer():
    # gate, up and their product, and copies of the hidden states
    by_hand = 32768 * 2 * (3 * 14336 + ERA.copies[1] * 4096) * ERA.frac[1] / GIB
    assert activation(LLAMA_8B, 32768, 16) == pytest.approx(by_hand)


def test_tp_narrows_the_layer_and_adds_the_reduced_copy():
    by_hand = 32768 * 2 * (3 * 14336 / 4 + (ERA.copies[1] + 1) * 4096) * ERA.frac[1] / GIB
    assert activation(LLAMA_8B, 32768, 16, tensor_parallel=4) == pytest.approx(by_hand)


def test_a_mixture_holds_the_rows_of_each_expert_that_a_token_takes():
    routed = 8 * (max(2 * 768, 2048) + 768)
    by_hand = 32768 * 2 * (routed + ERA.copies[1] * 2048) * ERA.frac[1] / GIB
    assert activation(QWEN_MOE, 32768, 16) == pytest.approx(by_hand)


def test_no_more_rows_are_sampled_than_tokens_are_run():
    assert activation(LLAMA_8B, 64, 1024) == pytest.approx(activation(LLAMA_8B, 64, 64))


def test_enforce_eager_captures_no_graphs():
    wide = widths(LLAMA_8B, 1, 2.0)
    assert overhead(wide, step(2048, 256), 1, None, ERA).graphs == (0.0, 0.0, 0.0)
    assert overhead(wide, step(2048, 256), 1, 32, ERA).graphs[1] > 0


def test_each_further_gpu_adds_to_nccls_buffers():
    wide = widths(LLAMA_8B, 2, 2.0)
    two, eight = (overhead(wide, step(2048, 256), n, 32, ERA).non_torch[1] for n in (2, 8))
    assert eight == pytest.approx(two + 6 * ERA.per_gpu[1])


def test_without_nvlink_nccls_buffers_are_smaller_and_do_not_grow():
    wide, era = widths(LLAMA_8B, 2, 2.0), STARTUP.numbers_over_pcie["sorting"]
    two, eight = (overhead(wide, step(2048, 256), n, 32, era).non_torch for n in (2, 8))
    assert two == eight == era.parallel
    assert two[1] < ERA.parallel[1]
    assert overhead(wide, step(2048, 256), 1, 32, era).non_torch == ERA.alone
