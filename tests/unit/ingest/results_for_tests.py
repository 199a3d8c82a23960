"""Result files as the programs write them, hand-made from the code in their wheels."""

from __future__ import annotations

from typing import Any


def vllm_serve(**changes: Any) -> dict[str, Any]:
    """`vllm bench serve --save-result` of vLLM 0.33.0."""
    return {
        "date": "20261129-174500",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "Qwen/Qwen2.5-7B-Instruct",
        "tokenizer_id": "Qwen/Qwen2.5-7B-Instruct",
        "num_prompts": 100,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 32,
        "duration": 10.0,
        "completed": 98,
        "failed": 2,
        "total_input_tokens": 98 * 1024,
        "total_output_tokens": 98 * 256,
        "request_throughput": 9.8,
        "request_goodput": None,
        "output_throughput": 2508.8,
        "total_token_throughput": 12544.0,
        "max_output_tokens_per_s": 3000.0,
        "max_concurrent_requests": 40,
        "rtfx": 0.0,
        "mean_ttft_ms": 90.0,
        "median_ttft_ms": 80.0,
        "std_ttft_ms": 20.0,
        "p99_ttft_ms": 200.0,
        "mean_tpot_ms": 12.5,
        "median_tpot_ms": 12.0,
        "std_tpot_ms": 1.0,
        "p99_tpot_ms": 16.0,
        "mean_itl_ms": 12.4,
        "median_itl_ms": 12.0,
        "std_itl_ms": 1.0,
        "p99_itl_ms": 30.0,
    } | changes


def vllm_throughput(**changes: Any) -> dict[str, Any]:
    """`vllm bench throughput --output-json` of vLLM 0.33.0; 0.11.0 has no model_id."""
    return {
        "model_id": "Qwen/Qwen2.5-7B-Instruct",
        "elapsed_time": 100.0,
        "num_requests": 1000,
        "total_num_tokens": 1280 * 1000,
        "requests_per_second": 10.0,
        "tokens_per_second": 12800.0,
    } | changes


def vllm_latency(**changes: Any) -> dict[str, Any]:
    """`vllm bench latency --output-json` of vLLM 0.33.0; 0.11.0 has no model_id."""
    return {
        "model_id": "Qwen/Qwen2.5-7B-Instruct",
        "avg_latency": 1.6,
        "latencies": [1.5, 1.5, 1.8],
        "percentiles": {"10": 1.5, "25": 1.5, "50": 1.5, "75": 1.65, "90": 1.74, "99": 1.79},
    } | changes


def _spread(mean: float, median: float) -> dict[str, Any]:
    figures = {"mean": mean, "median": median, "count": 98, "percentiles": {"p95": 2 * median}}
    return {"successful": figures, "errored": None, "incomplete": None, "total": figures}


def guidellm(*strategies: dict[str, Any]) -> dict[str, Any]:
    """The benchmarks.json of GuideLLM 0.8.1, without the requests."""
    runs = [
        {
            "type_": "generative_benchmark",
            "config": {
                "id_": "a",
                "strategy": strategy,
                "backend": {"kind": "openai_http", "model": "Qwen/Qwen2.5-7B-Instruct"},
            },
            "metrics": {
                "request_totals": {"successful": 98, "errored": 2, "incomplete": 0, "total": 100},
                "requests_per_second": _spread(9.8, 10.0),
                "request_latency": _spread(3.3, 3.2),
                "prompt_token_count": _spread(1024.0, 1024.0),
                "output_token_count": _spread(256.0, 256.0),
                "time_to_first_token_ms": _spread(90.0, 80.0),
                "time_per_output_token_ms": _spread(12.9, 12.5),
                "inter_token_latency_ms": _spread(12.4, 12.0),
                "output_tokens_per_second": _spread(2508.8, 2500.0),
                "tokens_per_second": _spread(12544.0, 12500.0),
            },
            "start_time": 1_800_000_000.0,
            "end_time": 1_800_000_060.0 + i,
        }
        for i, strategy in enumerate(strategies)
    ]
    metadata = {"version": 2, "guidellm_version": "0.8.1", "python_version": "3.13.0"}
    return {"metadata": metadata, "config": {}, "benchmarks": runs, "conclusions": []}


def inference_perf(**load: Any) -> dict[str, Any]:
    """The stage_0_lifecycle_metrics.json of inference-perf 0.7.0."""
    return {
        "retries": {},
        "benchmark_time_seconds": 10.0,
        "load_summary": {"count": 100, "send_duration": 9.9, "achieved_rate": 10.1, **load},
        "successes": {
            "count": 98,
            "latency": {
                "request_latency": {"mean": 3.3, "min": 3.0, "max": 4.0, "median": 3.2},
                "normalized_time_per_output_token": {"mean": 0.0129, "median": 0.0125},
                "time_per_output_token": {"mean": 0.0124, "median": 0.012},
                "time_to_first_token": {"mean": 0.09, "median": 0.08},
                "inter_token_latency": {"mean": 0.0124, "median": 0.012},
            },
            "throughput": {
                "input_tokens_per_sec": 10035.2,
                "output_tokens_per_sec": 2508.8,
                "total_tokens_per_sec": 12544.0,
                "requests_per_sec": 9.8,
            },
            "prompt_tokens": {"total": 100352.0, "mean": 1024.0, "median": 1024.0},
            "output_tokens": {"total": 25088.0, "mean": 256.0, "median": 256.0},
        },
        "failures": {"count": 2, "request_latency": None, "prompt_tokens": {"total": 0.0}},
    }


CSV = (
    "model,gpu,tensor_parallel,isl,osl,concurrency,output_tok_s,ttft_ms,vllm_version\n"
    "Qwen/Qwen2.5-7B-Instruct,h100,2,1024,256,32,2508.8,80,0.11.0\n"
    "Qwen/Qwen2.5-7B-Instruct,h100,2,1024,256,64,3900,120,0.11.0\n"
)
