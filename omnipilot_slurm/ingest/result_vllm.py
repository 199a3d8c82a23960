"""Result files of `vllm bench serve`, `throughput` and `latency`.

In: the JSON of a file. Out: Results. The formats are those of the code in the wheels of vLLM 0.9.0,
0.11.0, 0.20.0 and 0.33.0 (`--save-result`, `--append-result`, `--output-json`); a key of
`--metadata KEY=VALUE` may name what the arm was. Called by benchmark_files.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.result import Result, member, mode_of, number, positive
from omnipilot_slurm.predict.rows import OFFLINE
from omnipilot_slurm.store.benchmarks import Load, RunOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: keys of the file itself; any other text in it is a --metadata
_OWN: Final = frozenset((
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "best_of",
    "request_rate", "ramp_up_strategy",
))  # fmt: skip
#: per-request lists of --save-detailed, texts and prompts among them, which are not kept
_KEPT: Final = (int, float, type(None))
_MS_PER_S: Final = 1000.0


def is_serve(value: Any) -> bool:
    """Return whether a JSON value is a result of `vllm bench serve`."""
    return isinstance(value, dict) and {"model_id", "duration", "completed"} <= value.keys()


def is_throughput(value: Any) -> bool:
    """Return whether a JSON value is a result of `vllm bench throughput`."""
    return isinstance(value, dict) and {"elapsed_time", "tokens_per_second"} <= value.keys()


def is_latency(value: Any) -> bool:
    """Return whether a JSON value is a result of `vllm bench latency`."""
    return isinstance(value, dict) and {"avg_latency", "latencies"} <= value.keys()


def read_serve(value: dict[str, Any], where: str) -> Iterator[Result]:
    """Yield the run.

    Raises: DataError when a figure is not what it must be.
    """
    n_ok = number(value["completed"], "completed")
    if n_ok == 0:
        raise DataError("completed must be above 0, no request was answered")
    n_sent = number(value.get("num_prompts", n_ok), "num_prompts")
    failed = value.get("failed", max(0.0, n_sent - n_ok))
    if "total_output_tokens" not in value:
        raise DataError("total_output_tokens must be there: results of pooling are not read")
    rate = value.get("request_rate", "inf")
    rate_per_s = None if rate in {"inf", math.inf} else number(rate, "request_rate")
    limit = value.get("max_concurrency")
    concurrency = None if limit is None else number(limit, "max_concurrency")
    kept = {name: item for name, item in value.items() if isinstance(item, _KEPT)}
    yield Result(
        where=where,
        source="vllm_bench_serve",
        content=_without_lists(value),
        model=str(value["model_id"]),
        load=Load(
            mode=mode_of(concurrency, rate_per_s),
            isl=number(value["total_input_tokens"], "total_input_tokens") / n_ok,
            osl=number(value["total_output_tokens"], "total_output_tokens") / n_ok,
            concurrency=concurrency,
            requests_per_s=rate_per_s,
            n_requests=int(n_ok),
            n_failed=int(number(failed, "failed")),
        ),
        targets=positive(
            {
                "output_tok_s": number(member(value, "output_throughput"), "output_throughput"),
                "total_tok_s": number(
                    member(value, "total_token_throughput"), "total_token_throughput"
                ),
                "req_s": number(member(value, "request_throughput"), "request_throughput"),
                **{f"{name}_ms": _median(value, key) for name, key in _TIMES.items()},
            }
        ),
        outcome=RunOutcome.OK,
        measured_at=_date(value.get("date")),
        told={
            name: str(item)
            for name, item in value.items()
            if name not in _OWN and isinstance(item, str)
        },
        details={"backend": value.get("backend") or value.get("endpoint_type"), **kept},
    )


_TIMES: Final = {"ttft": "median_ttft_ms", "tpot": "median_tpot_ms", "e2e": "median_e2el_ms"}


def read_throughput(value: dict[str, Any], where: str) -> Iterator[Result]:
    """Yield the run: how long prompts and answers were must be told, all requests came at once.

    Raises: DataError.
    """
    n = number(member(value, "num_requests"), "num_requests")
    yield Result(
        where=where,
        source="vllm_bench_throughput",
        content=value,
        model=_model(value),
        load=Load(mode=OFFLINE, isl=math.nan, osl=math.nan, n_requests=int(n)),
        targets=positive(
            {
                "total_tok_s": number(value["tokens_per_second"], "tokens_per_second"),
                "req_s": number(member(value, "requests_per_second"), "requests_per_second"),
            }
        ),
        outcome=RunOutcome.OK,
        details={name: item for name, item in value.items() if isinstance(item, _KEPT)},
    )


def read_latency(value: dict[str, Any], where: str) -> Iterator[Result]:
    """Yield the run: lengths and batch size must be told, one batch came after the other.

    Raises: DataError.
    """
    latency_s = number(value["avg_latency"], "avg_latency")
    percentiles = value.get("percentiles") or {}
    median_s = number(percentiles.get("50", latency_s), "percentiles.50")
    yield Result(
        where=where,
        source="vllm_bench_latency",
        content=value,
        model=_model(value),
        load=Load(mode=OFFLINE, isl=math.nan, osl=math.nan, n_requests=len(value["latencies"])),
        targets=positive({"e2e_ms": median_s * _MS_PER_S}),
        outcome=RunOutcome.OK,
        details={"avg_latency_s": latency_s, "percentiles_s": percentiles},
    )


def _model(value: Mapping[str, Any]) -> str | None:
    """Return the model where the file says it: newer versions do."""
    model = value.get("model_id")
    return None if model is None else str(model)


def _median(value: Mapping[str, Any], name: str) -> float | None:
    return None if value.get(name) is None else number(value[name], name)


def _date(text: Any) -> float | None:
    """Return a date such as 20261129-174500, of the machine's zone, as Unix seconds."""
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").astimezone().timestamp()
    except ValueError:
        return None


def _without_lists(value: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what --save-detailed adds: with it or without, the run is the same."""
    return {name: item for name, item in value.items() if not isinstance(item, list)}
