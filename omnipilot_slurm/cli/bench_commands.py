"""The commands of a benchmark: start the server, drive it, stop it, keep what was measured.

In: an arm, a model's name, lengths and concurrencies. Out: lines of shell. Called by
`omnipilot bench-plan`. Each run keeps a fixed number of requests in flight, as the rows were
measured that the cost model learned from.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.records import Arm

#: requests of a run for each one in flight: the first and the last round are not steady
ROUNDS: Final = 8
_PORT: Final = 8000
_HEALTH: Final = f"http://127.0.0.1:{_PORT}/health"
#: how vLLM is told of weights that the checkpoint does not store so itself
_QUANTIZED_AT_LOAD: Final = {"fp8": "fp8"}
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What to run: `stored` is the format in which the checkpoint has its weights."""

    model: str
    stored: str
    arm: Arm
    isl: int
    osl: int
    concurrencies: tuple[int, ...]
    vllm_version: str | None = None


def shell_lines(plan: Benchmark) -> Iterator[str]:
    """Yield the lines of a script that runs the plan on a node with the arm's GPUs."""
    if plan.vllm_version:
        yield f"# with vLLM {plan.vllm_version}; the engine's version is an axis of its own"
    yield f"{shlex.join(serve_words(plan))} &"
    yield "server=$!"
    yield (f"until curl -sf -o /dev/null {_HEALTH}; do kill -0 $server || exit 1; sleep 2; done")
    for concurrency in plan.concurrencies:
        yield shlex.join(bench_words(plan, concurrency))
    yield "kill $server"
    yield shlex.join(ingest_words(plan))


def serve_words(plan: Benchmark) -> list[str]:
    """Return the server's command: the arm, and a context that holds one request."""
    arm = plan.arm
    words = ["vllm", "serve", plan.model, "--port", str(_PORT)]
    for option, size in (
        ("--tensor-parallel-size", arm.tensor_parallel),
        ("--pipeline-parallel-size", arm.pipeline_parallel),
        ("--data-parallel-size", arm.data_parallel),
    ):
        words += [option, str(size)] if size > 1 else []
    words += ["--enable-expert-parallel"] if arm.expert_parallel else []
    if arm.precision in _DTYPES:
        words += ["--dtype", _DTYPES[arm.precision]]
    elif arm.precision != plan.stored and arm.precision in _QUANTIZED_AT_LOAD:
        words += ["--quantization", _QUANTIZED_AT_LOAD[arm.precision]]
    words += ["--kv-cache-dtype", arm.kv_cache_dtype] if arm.kv_cache_dtype != "auto" else []
    return [*words, "--max-model-len", str(plan.isl + plan.osl)]


def bench_words(plan: Benchmark, concurrency: int) -> list[str]:
    """Return the client's command for one run."""
    words = [
        *("vllm", "bench", "serve", "--model", plan.model, "--port", str(_PORT)),
        *("--dataset-name", "random", "--ignore-eos"),
        *("--random-input-len", str(plan.isl), "--random-output-len", str(plan.osl)),
        *("--max-concurrency", str(concurrency), "--num-prompts", str(ROUNDS * concurrency)),
        *("--percentile-metrics", "ttft,tpot,itl,e2el"),
    ]
    return [*words, "--save-result", "--result-filename", _result(concurrency)]


def ingest_words(plan: Benchmark) -> list[str]:
    """Return the command that puts the results into the site's store."""
    arm = plan.arm
    words = ["omnipilot", "ingest", "bench", *map(_result, plan.concurrencies)]
    words += ["--model", plan.model, "--gpu", arm.gpu, "--n-gpus", str(arm.n_gpus)]
    for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        size = getattr(arm, name)
        words += [f"--{name.replace('_', '-')}", str(size)] if size > 1 else []
    words += ["--expert-parallel", "true"] if arm.expert_parallel else []
    words += ["--kv-cache-dtype", arm.kv_cache_dtype] if arm.kv_cache_dtype != "auto" else []
    words += ["--precision", arm.precision, "--isl", str(plan.isl), "--osl", str(plan.osl)]
    return [*words, *(["--vllm-version", plan.vllm_version] if plan.vllm_version else [])]


def _result(concurrency: int) -> str:
    return f"omnipilot-c{concurrency}.json"
