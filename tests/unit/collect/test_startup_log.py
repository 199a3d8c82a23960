"""The figures of a start are read in the words of every generation of vLLM."""

from __future__ import annotations

import pytest

from omnipilot_slurm.collect.startup_log import read_start
from omnipilot_slurm.store.server_starts import StartFigures

V0_6_0 = """\
INFO 09-06 10:00:00 api_server.py:459] vLLM API server version 0.6.0
INFO 09-06 10:00:30 model_runner.py:926] Loading model weights took 14.9888 GB
INFO 09-06 10:00:33 gpu_executor.py:122] # GPU blocks: 27896, # CPU blocks: 2048
INFO 09-06 10:00:55 model_runner.py:1335] Graph capturing finished in 21 secs.
"""
V0_7_3 = """\
INFO 02-20 10:00:00 api_server.py:912] vLLM API server version 0.7.3
INFO 02-20 10:00:30 model_runner.py:1115] Loading model weights took 14.9888 GB
INFO 02-20 10:00:33 worker.py:267] the current vLLM instance can use total_gpu_memory (79.10GiB) x \
gpu_memory_utilization (0.90) = 71.19GiB
INFO 02-20 10:00:33 worker.py:267] model weights take 14.99GiB; non_torch_memory takes 0.15GiB; \
PyTorch activation peak memory takes 1.23GiB; the rest of the memory reserved for KV Cache is \
54.82GiB.
INFO 02-20 10:00:33 executor_base.py:111] # cuda blocks: 28068, # CPU blocks: 2048
INFO 02-20 10:00:55 model_runner.py:1562] Graph capturing finished in 18 secs, took 0.21 GiB
INFO 02-20 10:00:55 llm_engine.py:436] init engine (profile, create kv cache, warmup model) took \
25.40 seconds
"""
V0_11_0 = """\
(APIServer pid=1) INFO 10-02 10:00:00 [api_server.py:1839] vLLM API server version 0.11.0
(EngineCore_DP0 pid=9) INFO 10-02 10:00:05 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with
(Worker_TP0 pid=20) INFO 10-02 10:00:20 [default_loader.py:267] Loading weights took 8.50 seconds
(Worker_TP1 pid=21) INFO 10-02 10:00:21 [default_loader.py:267] Loading weights took 9.25 seconds
(Worker_TP0 pid=20) INFO 10-02 10:00:21 [gpu_model_runner.py:2653] Model loading took 33.8800 GiB \
and 10.123456 seconds
(Worker_TP1 pid=21) INFO 10-02 10:00:21 [gpu_model_runner.py:2653] Model loading took 33.9000 GiB \
and 10.223456 seconds
(Worker_TP0 pid=20) INFO 10-02 10:00:40 [monitor.py:34] torch.compile takes 19.30 s in total
(Worker_TP0 pid=20) DEBUG 10-02 10:00:50 [gpu_worker.py:280] Memory profiling takes 1.90 seconds. \
Total non KV cache memory: 39.27GiB; torch peak memory increase: 4.84GiB; non-torch forward \
increase memory: 0.55GiB; weights memory: 33.88GiB.
(Worker_TP0 pid=20) INFO 10-02 10:00:50 [gpu_worker.py:298] Available KV cache memory: 32.00 GiB
(EngineCore_DP0 pid=9) INFO 10-02 10:00:51 [kv_cache_utils.py:1087] GPU KV cache size: 209,712 \
tokens
(EngineCore_DP0 pid=9) INFO 10-02 10:00:51 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 \
tokens per request: 25.60x
(Worker_TP0 pid=20) INFO 10-02 10:00:55 [gpu_model_runner.py:3480] Graph capturing finished in 4 \
secs, took -0.42 GiB
(EngineCore_DP0 pid=9) INFO 10-02 10:00:56 [core.py:210] init engine (profile, create kv cache, \
warmup model) took 34.87 seconds
"""
V0_33_0 = """\
INFO 11-20 10:00:00 [startup.py:18] vLLM server version 0.33.0, serving model m
INFO 11-20 10:00:20 [default_loader.py:300] Loading weights took 8.50 seconds
INFO 11-20 10:00:21 [model_runner.py:429] Model loading took 14.99 GiB memory and 9.100000 seconds
INFO 11-20 10:00:40 [monitor.py:50] torch.compile took 19.30 s in total
INFO 11-20 10:00:50 [gpu_worker.py:773] Available KV cache memory: 50.1 GiB
INFO 11-20 10:00:51 [kv_cache_utils.py:1148] GPU KV cache size: 410,448 tokens, Maximum \
concurrency for 8,192 tokens per request: 50.10x
INFO 11-20 10:00:55 [model_runner.py:1164] Graph capturing finished in 4 secs, took 0.62 GiB
DEBUG 11-20 10:00:55 [gpu_worker.py:900] Actual usage is 14.99 GiB for weight, 4.76 GiB for peak \
activation, 0.13 GiB for non-torch memory, and 0.62 GiB for CUDAGraph memory.
INFO 11-20 10:00:56 [core.py:396] init engine (profile, create kv cache, warmup model) took \
34.87 s (compilation: 19.30 s)
"""


@pytest.mark.parametrize(
    ("text", "version", "figures"),
    [
        (
            V0_6_0,
            "0.6.0",
            StartFigures(weights_gib=14.9888, n_kv_tokens=27896 * 16, graphs_s=21.0),
        ),
        (
            V0_7_3,
            "0.7.3",
            StartFigures(
                weights_gib=14.9888,
                activation_gib=1.23,
                non_torch_gib=0.15,
                graphs_gib=0.21,
                kv_cache_gib=54.82,
                n_kv_tokens=28068 * 16,
                graphs_s=18.0,
                engine_s=25.4,
            ),
        ),
        (
            V0_11_0,
            "0.11.0",
            StartFigures(
                weights_gib=33.9,
                activation_gib=4.84,
                non_torch_gib=0.55,
                kv_cache_gib=32.0,
                n_kv_tokens=209712,
                load_s=9.25,
                compile_s=19.3,
                graphs_s=4.0,
                engine_s=34.87,
            ),
        ),
        (
            V0_33_0,
            "0.33.0",
            StartFigures(
                weights_gib=14.99,
                activation_gib=4.76,
                non_torch_gib=0.13,
                graphs_gib=0.62,
                kv_cache_gib=50.1,
                n_kv_tokens=410448,
                load_s=8.5,
                compile_s=19.3,
                graphs_s=4.0,
                engine_s=34.87,
            ),
        ),
    ],
)
def test_each_generation_is_read(text: str, version: str, figures: StartFigures) -> None:
    found = read_start(text)
    assert (found.version, found.figures) == (version, figures)


def test_the_banner_names_the_version_too() -> None:
    assert read_start("  █▄█▀ █     █  version 0.33.0\n  ▀▀  model m\n").version == "0.33.0"


def test_of_two_starts_in_one_log_the_last_counts() -> None:
    long_service = "INFO served a request\n" * 2000
    found = read_start(V0_7_3 + long_service + V0_6_0)
    assert found.version == "0.6.0"
    assert found.figures.activation_gib is None
    assert found.n_blocks == 27896


@pytest.mark.parametrize("text", ["", "Loading weights took . seconds", "a job without a server"])
def test_a_log_that_says_nothing_gives_nothing(text: str) -> None:
    found = read_start(text)
    assert (found.version, found.figures, found.n_blocks) == (None, StartFigures(), None)
