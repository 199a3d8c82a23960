"""Reports of GuideLLM: benchmarks.json, with one run for each rate that it tried.

In: the JSON of a file. Out: Results. The format is that of the code in the wheels of GuideLLM 0.5.0
and 0.8.1. Its time per output token counts the first one too; what we call TPOT is its inter-token
latency, a mean over the request's tokens after the first. Called by benchmark_files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.result import Result, member, mode_of, number, positive
from omnipilot_slurm.store.benchmarks import Load, RunOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MS_PER_S: Final = 1000.0


def is_report(value: Any) -> bool:
    """Return whether a JSON value is a report of GuideLLM."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("benchmarks"), list)
        and isinstance(value.get("metadata"), dict)
        and "guidellm_version" in value["metadata"]
    )


def read_report(value: dict[str, Any], where: str) -> Iterator[Result]:
    """Yield the runs of a report.

    Raises: DataError when one is not what it must be.
    """
    for i, run in enumerate(value["benchmarks"], start=1):
        place = f"{where}run {i}"
        try:
            yield _run(run, place)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error


def _run(run: dict[str, Any], where: str) -> Result:
    metrics = member(run, "metrics")
    counts = member(metrics, "request_totals")
    n_ok = number(member(counts, "successful"), "request_totals.successful")
    if n_ok == 0:
        raise DataError("request_totals.successful must be above 0, no request was answered")
    strategy = member(run, "config", "strategy")
    limit, rate = strategy.get("streams") or strategy.get("max_concurrency"), strategy.get("rate")
    if strategy.get("type_") == "synchronous":
        limit = 1
    concurrency = None if limit is None else number(limit, "config.strategy.streams")
    rate_per_s = None if rate is None else number(rate, "config.strategy.rate")
    latency_s = _of(metrics, "request_latency", "median")
    start, end = (number(member(run, name), name) for name in ("start_time", "end_time"))
    return Result(
        where=where,
        source="guidellm",
        content={name: run.get(name) for name in ("config", "metrics", "start_time", "end_time")},
        model=_model(member(run, "config")),
        load=Load(
            mode=mode_of(concurrency, rate_per_s),
            isl=_of(metrics, "prompt_token_count", "mean"),
            osl=_of(metrics, "output_token_count", "mean"),
            concurrency=concurrency,
            requests_per_s=rate_per_s,
            n_requests=int(n_ok),
            n_failed=int(number(counts.get("errored") or 0, "request_totals.errored")),
        ),
        targets=positive(
            {
                "output_tok_s": _of(metrics, "output_tokens_per_second", "mean"),
                "total_tok_s": _of(metrics, "tokens_per_second", "mean"),
                "req_s": _of(metrics, "requests_per_second", "mean"),
                "ttft_ms": _of(metrics, "time_to_first_token_ms", "median"),
                "tpot_ms": _of(metrics, "inter_token_latency_ms", "median"),
                "e2e_ms": latency_s * _MS_PER_S,
            }
        ),
        outcome=RunOutcome.OK,
        measured_at=end,
        window=(start, end),
        details={
            "strategy": strategy.get("type_"),
            "ttft_ms_p95": _percentile(metrics, "time_to_first_token_ms"),
            "tpot_ms_p95": _percentile(metrics, "inter_token_latency_ms"),
        },
    )


def _of(metrics: Mapping[str, Any], name: str, statistic: str) -> float:
    """Return a statistic of the requests that were answered."""
    value = member(metrics, name, "successful", statistic)
    return number(value, f"{name}.successful.{statistic}")


def _percentile(metrics: Mapping[str, Any], name: str) -> Any:
    return member(metrics, name, "successful").get("percentiles", {}).get("p95")


def _model(config: Mapping[str, Any]) -> str | None:
    """Return the model that the backend was told, where it was."""
    model = (config.get("backend") or {}).get("model")
    return model if isinstance(model, str) and model else None
