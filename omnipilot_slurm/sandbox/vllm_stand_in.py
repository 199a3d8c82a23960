"""A stand-in for vLLM in the jobs of a sandbox: notes how it was started; serves when told to.

In: its own command line and environment. Out: one JSON file in $OMNIPILOT_RECORDS. The sandbox
installs this one file as `vllm` on the PATH and as the modules of the package `vllm` that batch
scripts run with `python -m`. It needs nothing but Python's standard library.

With $OMNIPILOT_STAND_IN = serve, `vllm serve` goes on: it writes the start-up lines of vLLM 0.11,
and answers /health, /v1/models, /v1/completions and /metrics like one, each request taking
$OMNIPILOT_STAND_IN_TTFT_MS and $OMNIPILOT_STAND_IN_TPOT_MS a token; `vllm bench serve` sends it
requests and writes its result file. No figure of it means anything.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import random
import signal
import socket
import statistics
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__version__ = "0.11.0+sandbox"

_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HISTOGRAMS = {
    "time_to_first_token_seconds": _BUCKETS_S,
    "request_time_per_output_token_seconds": _BUCKETS_S,
    "e2e_request_latency_seconds": _BUCKETS_S,
    "request_prompt_tokens": (1.0, 100.0, 1000.0, 10000.0),
    "request_generation_tokens": (1.0, 100.0, 1000.0, 10000.0),
}
_START_LINES = (
    "vLLM API server version 0.11.0",
    "Initializing a V1 LLM engine (v0.11.0) with config: model={model!r}",
    "Loading weights took 0.31 seconds",
    "Model loading took 14.9889 GiB and 0.512345 seconds",
    "torch.compile takes 0.42 s in total",
    (
        "Memory profiling takes 0.21 seconds. Total non KV cache memory: 19.88GiB; "
        "torch peak memory increase: 4.76GiB; non-torch forward increase memory: 0.13GiB; "
        "weights memory: 14.99GiB."
    ),
    "Available KV cache memory: 51.38 GiB",
    "GPU KV cache size: 420,896 tokens",
    "Maximum concurrency for 8,192 tokens per request: 51.38x",
    "Graph capturing finished in 1 secs, took 0.41 GiB",
    "init engine (profile, create kv cache, warmup model) took 1.63 seconds",
)


def main() -> None:
    """Write what this process was given; then serve or measure, where the sandbox wants that."""
    _write_record()
    words = sys.argv[1:]
    if os.environ.get("OMNIPILOT_STAND_IN") == "serve":
        if words[:1] == ["serve"]:
            serve(words[1:])
        elif words[:2] == ["bench", "serve"]:
            bench_serve(words[2:])


def _write_record() -> None:
    """Write the record; the file appears whole or not at all."""
    environment = os.environ
    module = __spec__.name if __spec__ else "vllm"
    record = {
        "argv": [module, *sys.argv[1:]],
        "cuda_visible_devices": environment.get("CUDA_VISIBLE_DEVICES"),
        "slurm": {key: value for key, value in environment.items() if key.startswith("SLURM_")},
        "job_id": int(environment.get("SLURM_JOB_ID", "0")),
        "step_id": environment.get("SLURM_STEP_ID"),
        "node": environment.get("SLURMD_NODENAME"),
        "host": socket.gethostname(),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "started_unix_s": time.time(),
    }
    path = Path(environment["OMNIPILOT_RECORDS"], f"{time.time_ns()}-{os.getpid()}.json")
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(record))
    unfinished.rename(path)


class Counters:
    """What /metrics tells; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = {"prompt_tokens": 0, "generation_tokens": 0, "request_success": 0}
        self._seen: dict[str, list[float]] = {name: [] for name in _HISTOGRAMS}
        self._running = 0

    def begin(self) -> None:
        """Note a request that is being answered."""
        with self._lock:
            self._running += 1

    def end(self, n_prompt: int, n_output: int, ttft_s: float, tpot_s: float) -> None:
        """Note an answered request."""
        figures = (ttft_s, tpot_s, ttft_s + tpot_s * n_output, n_prompt, n_output)
        with self._lock:
            self._running -= 1
            for name, n in zip(self._totals, (n_prompt, n_output, 1), strict=True):
                self._totals[name] += n
            for name, value in zip(self._seen, figures, strict=True):
                self._seen[name].append(float(value))

    def exposition(self) -> str:
        """Return all in Prometheus' text format, under the names of vLLM 0.11."""
        labels = 'engine="0",model_name="stand-in"'
        with self._lock:
            gauges = {
                "num_requests_running": float(self._running),
                "num_requests_waiting": 0.0,
                "kv_cache_usage_perc": min(self._running / 64, 1.0),
            }
            lines = [f"vllm:{name}{{{labels}}} {value}" for name, value in gauges.items()]
            counted = {**self._totals, "num_preemptions": 0}
            lines += [f"vllm:{name}_total{{{labels}}} {float(n)}" for name, n in counted.items()]
            for name, bounds in _HISTOGRAMS.items():
                lines += _histogram(f"vllm:{name}", labels, bounds, self._seen[name])
        return "\n".join(lines) + "\n"


def _histogram(name: str, labels: str, bounds: tuple[float, ...], seen: list[float]) -> list[str]:
    counts = [(str(bound), sum(value <= bound for value in seen)) for bound in bounds]
    return [
        f"# TYPE {name} histogram",
        *(f'{name}_bucket{{{labels},le="{bound}"}} {float(n)}' for bound, n in counts),
        f'{name}_bucket{{{labels},le="+Inf"}} {float(len(seen))}',
        f"{name}_count{{{labels}}} {float(len(seen))}",
        f"{name}_sum{{{labels}}} {sum(seen)}",
    ]


def serve(words: list[str]) -> None:
    """Come up like a server, and answer until SIGTERM."""
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model", nargs="?", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options, _ = parser.parse_known_args(words)
    for line in _START_LINES:
        _log(line.replace("{model!r}", repr(options.model)))
    server = ThreadingHTTPServer((options.host, options.port), _handler(options.model))
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    _log("Application startup complete.")
    server.serve_forever()
    server.server_close()


def _log(line: str) -> None:
    sys.stdout.write(f"INFO {time.strftime('%m-%d %H:%M:%S')} [stand_in.py:1] {line}\n")
    sys.stdout.flush()


def _handler(model: str) -> type[BaseHTTPRequestHandler]:
    counters = Counters()
    ttft_s, tpot_s = (
        float(os.environ.get(f"OMNIPILOT_STAND_IN_{name}_MS", default)) / 1000
        for name, default in (("TTFT", "10"), ("TPOT", "1"))
    )

    class Handler(BaseHTTPRequestHandler):
        """Answers like vLLM's server, as far as clients here ask."""

        def do_GET(self) -> None:
            """Answer /health, /metrics and /v1/models."""
            bodies = {
                "/health": "",
                "/metrics": counters.exposition(),
                "/v1/models": json.dumps({"object": "list", "data": [{"id": model}]}),
            }
            self._answer(bodies.get(self.path))

        def do_POST(self) -> None:
            """Answer /v1/completions after the time that the tokens take."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/completions":
                self._answer(None)
                return
            counters.begin()
            n_prompt, n_output = len(str(body["prompt"]).split()), int(body["max_tokens"])
            slower = random.uniform(0.9, 1.1)  # noqa: S311 (no secret)
            time.sleep((ttft_s + tpot_s * n_output) * slower)
            counters.end(n_prompt, n_output, ttft_s * slower, tpot_s * slower)
            usage = {"prompt_tokens": n_prompt, "completion_tokens": n_output}
            self._answer(json.dumps({"choices": [{"text": "word " * n_output}], "usage": usage}))

        def log_message(self, *_words: object) -> None:
            """Say nothing of each request."""

        def _answer(self, body: str | None) -> None:
            data = (body or "").encode()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def bench_serve(words: list[str]) -> None:
    """Send requests to a server, and write what `vllm bench serve --save-result` would."""
    options = _bench_options(words)
    prompt = "word " * options.random_input_len
    body = {"model": options.model, "prompt": prompt, "max_tokens": options.random_output_len}
    url = f"http://{options.host}:{options.port}/v1/completions"
    began = time.monotonic()
    with ThreadPoolExecutor(options.max_concurrency or options.num_prompts) as pool:
        taken_s = list(pool.map(lambda _: _ask(url, body), range(options.num_prompts)))
    duration = time.monotonic() - began
    result = _result(options, taken_s, duration)
    if options.save_result:
        Path(options.result_dir, options.result_filename).write_text(json.dumps(result))
    sys.stdout.write(f"Output token throughput (tok/s): {result['output_throughput']:.2f}\n")


def _bench_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm bench serve")
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--random-input-len", type=int, default=1024)
    parser.add_argument("--random-output-len", type=int, default=128)
    parser.add_argument("--save-result", action="store_true")
    parser.add_argument("--result-dir", default=".")
    parser.add_argument("--result-filename", default="result.json")
    return parser.parse_known_args(words)[0]


def _ask(url: str, body: dict[str, Any]) -> float:
    began = time.monotonic()
    request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310 (http, above)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (as above)
        answer.read()
    return time.monotonic() - began


def _result(options: argparse.Namespace, taken_s: list[float], duration: float) -> dict[str, Any]:
    n, n_in, n_out = len(taken_s), options.random_input_len, options.random_output_len
    ttft_ms = float(os.environ.get("OMNIPILOT_STAND_IN_TTFT_MS", "10"))
    e2e_ms = 1000 * statistics.median(taken_s)
    tpot_ms = (e2e_ms - ttft_ms) / max(n_out - 1, 1)
    return {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": options.model,
        "tokenizer_id": options.model,
        "num_prompts": n,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": options.max_concurrency,
        "duration": duration,
        "completed": n,
        "failed": 0,
        "total_input_tokens": n * n_in,
        "total_output_tokens": n * n_out,
        "request_throughput": n / duration,
        "output_throughput": n * n_out / duration,
        "total_token_throughput": n * (n_in + n_out) / duration,
        "mean_ttft_ms": ttft_ms,
        "median_ttft_ms": ttft_ms,
        "mean_tpot_ms": tpot_ms,
        "median_tpot_ms": tpot_ms,
    }


if __name__ == "__main__":
    main()
