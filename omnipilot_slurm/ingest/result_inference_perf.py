"""Reports of inference-perf: summary_ and stage_N_lifecycle_metrics.json.

In: the JSON of a file. Out: Results. The format is that of the code in the wheels of inference-perf
0.1.1, 0.2.0 and 0.7.0. A summary over several stages mixes their rates: read the stages' files.
Model and arm stand in neither. Called by benchmark_files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.result import Result, member, mode_of, number, positive
from omnipilot_slurm.store.benchmarks import Load, RunOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MS_PER_S: Final = 1000.0


def is_lifecycle(value: Any) -> bool:
    """Return whether a JSON value is a lifecycle report of inference-perf."""
    return isinstance(value, dict) and {"load_summary", "successes", "failures"} <= value.keys()


def read_lifecycle(value: dict[str, Any], where: str) -> Iterator[Result]:
    """Yield the run.

    Raises: DataError when it is not what it must be.
    """
    answered, asked = value["successes"], value["load_summary"]
    n_ok = number(member(answered, "count"), "successes.count")
    if n_ok == 0:
        raise DataError("successes.count must be above 0, no request was answered")
    level, rate = asked.get("concurrency"), asked.get("requested_rate")
    concurrency = None if level is None else number(level, "load_summary.concurrency")
    rate_per_s = (
        None if rate is None or level is not None else number(rate, "load_summary.requested_rate")
    )
    if concurrency is None and rate_per_s is None:
        raise DataError(
            "load_summary.requested_rate or .concurrency must be there: a summary over stages has "
            "neither, read the files stage_*_lifecycle_metrics.json"
        )
    throughput, latency = member(answered, "throughput"), member(answered, "latency")
    yield Result(
        where=where,
        source="inference_perf",
        content=value,
        model=None,
        load=Load(
            mode=mode_of(concurrency, rate_per_s),
            isl=_length(answered, "prompt_tokens", "prompt_len"),
            osl=_length(answered, "output_tokens", "output_len"),
            concurrency=concurrency,
            requests_per_s=rate_per_s,
            n_requests=int(n_ok),
            n_failed=int(number(member(value, "failures", "count"), "failures.count")),
        ),
        targets=positive(
            {
                "output_tok_s": _rate(throughput, "output_tokens_per_sec"),
                "total_tok_s": _rate(throughput, "total_tokens_per_sec"),
                "req_s": _rate(throughput, "requests_per_sec"),
                "ttft_ms": _median_ms(latency, "time_to_first_token"),
                "tpot_ms": _median_ms(latency, "time_per_output_token"),
                "e2e_ms": _median_ms(latency, "request_latency"),
            }
        ),
        outcome=RunOutcome.OK,
        details={"latency_s": latency},
    )


def _rate(throughput: Mapping[str, Any], name: str) -> float:
    return number(member(throughput, name), f"throughput.{name}")


def _length(answered: Mapping[str, Any], *names: str) -> float:
    """Return the mean length under the name that this version gives it."""
    for name in names:
        found = answered.get(name)
        if isinstance(found, dict) and "mean" in found:
            return number(found["mean"], f"{name}.mean")
    raise DataError(f"successes.{names[0]}.mean must be there, is not")


def _median_ms(latency: Mapping[str, Any], name: str) -> float | None:
    """Return a median time; a server that does not stream has no time of a first token."""
    found = latency.get(name)
    if not isinstance(found, dict):
        return None
    return number(found.get("median", found.get("p50")), f"latency.{name}.median") * _MS_PER_S
