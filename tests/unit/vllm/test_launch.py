from dataclasses import replace

import pytest

from omnipilot_slurm.facts import GpuFacts, ModelFacts
from omnipilot_slurm.records import EngineArgs, Interval, Starts
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.overhead import StartupCoefficients
from omnipilot_slurm.vllm.report import Place


def _interval(lo: float, mid: float, hi: float) -> Interval:
    return Interval(lo=lo, mid=mid, hi=hi)


COEFFICIENTS = StartupCoefficients(
    weights_frac=_interval(0.98, 1.0, 1.03),
    sampler_bytes=_interval(37.0, 38.7, 41.0),
    hidden_copies=_interval(2.0, 4.0, 8.0),
    activation_gib=_interval(0.0, 0.1, 0.6),
    tower_activation_gib=_interval(0.0, 1.5, 6.0),
    graphs_gib=_interval(0.0, 0.2, 0.8),
    graphs_per_layer_gib=_interval(0.0, 0.008, 0.02),
    non_torch_gib=_interval(0.0, 0.15, 0.7),
    non_torch_parallel_gib=_interval(0.1, 0.6, 3.6),
    context_gib=_interval(0.3, 0.5, 0.8),
)
LLAMA_70B = ModelFacts(
    id="meta-llama/Meta-Llama-3-70B-Instruct",
    family="llama",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128256,
    params=70.55e9,
    active_params=70.55e9,
    max_model_len=8192,
)
A100 = GpuFacts(
    id="a100-80g",
    name="NVIDIA A100 80GB PCIe",
    vendor="nvidia",
    mem_gib=79.25,
    bandwidth_gb_s=1935,
    peak_tflops={"bf16": 312},
    link_gb_s=600,
    tdp_w=300,
    capability=(8, 0),
    price_usd_per_gpu_hour=None,
    mem_is_measured=True,
)


@pytest.mark.parametrize(
    ("tensor_parallel", "verdict", "failed"),
    [
        (1, Starts.FAILS, ["weights", "kv_cache"]),
        (3, Starts.FAILS, ["heads"]),
        (4, Starts.STARTS, []),
    ],
)
def test_a_70b_model_starts_only_where_its_weights_and_heads_fit(tensor_parallel, verdict, failed):
    engine = EngineArgs(tensor_parallel=tensor_parallel)
    report = assess(LLAMA_70B, A100, engine, Place(n_gpus=4), COEFFICIENTS)
    assert report.verdict is verdict
    assert [check.id for check in report.checks if check.ok is Starts.FAILS] == failed


def test_more_gpus_than_the_job_holds_is_a_certain_failure():
    report = assess(LLAMA_70B, None, EngineArgs(tensor_parallel=8), Place(n_gpus=4), COEFFICIENTS)
    assert report.verdict is Starts.FAILS
    assert report.checks[-1].detail.text == "TP x PP x DP = 8 of 4 GPUs"


def test_the_longest_length_that_fits_starts_and_one_block_more_does_not():
    small = replace(A100, mem_gib=56.0)
    wide = replace(LLAMA_70B, max_model_len=1_000_000)
    engine = EngineArgs(tensor_parallel=4, gpu_memory_utilization=0.9)
    longest = assess(wide, small, engine, Place(), COEFFICIENTS).max_model_len_that_fits
    assert longest
    for length, starts in ((longest, True), (longest + 16, False)):
        at = replace(engine, max_model_len=length)
        report = assess(wide, small, at, Place(), COEFFICIENTS)
        assert (report.verdict is Starts.STARTS) == starts
