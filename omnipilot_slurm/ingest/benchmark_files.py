"""Result files of benchmarks in, rows of the store out: each file whole, or nothing of it.

In: the bytes of a file, and what is told of it beside. Out: Benchmarks. Which program wrote a file
is seen in it. Called by `omnipilot ingest bench` and by probe.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest import result_csv, result_guidellm, result_inference_perf, result_vllm
from omnipilot_slurm.ingest.told import named, setup_told
from omnipilot_slurm.store.benchmarks import Benchmark, Window
from omnipilot_slurm.store.setups import content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from omnipilot_slurm.catalog.lookup import Catalog
    from omnipilot_slurm.ingest.result import Result
    from omnipilot_slurm.store.benchmarks import Load
    from omnipilot_slurm.store.setups import Setup

_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], Iterator[Result]]], ...] = (
    (result_vllm.is_serve, result_vllm.read_serve),
    (result_vllm.is_throughput, result_vllm.read_throughput),
    (result_vllm.is_latency, result_vllm.read_latency),
    (result_guidellm.is_report, result_guidellm.read_report),
    (result_inference_perf.is_lifecycle, result_inference_perf.read_lifecycle),
)
_KNOWN = (
    "vllm bench serve, throughput or latency, GuideLLM, inference-perf, or a CSV with the columns "
    "of docs/site-data.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is told beside a file; it counts before what the file says.

    `told` has names of told.TELLABLE. `job` looks a job's server up, None where it is not known.
    """

    told: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    isl: float | None = None
    osl: float | None = None
    concurrency: float | None = None
    job: Callable[[str], Setup | None] = lambda _job_id: None


def read_results(data: bytes) -> list[Result]:
    """Return the runs that a file tells of.

    Raises: DataError naming the run and what is wrong with it, or that no reader knows the file.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"must be UTF-8 text: {error.reason} at byte {error.start}") from error
    if text.lstrip()[:1] == "{":
        values = list(_values(text))
        return [
            result
            for i, value in enumerate(values, start=1)
            for result in _results(value, f"run {i}, " if len(values) > 1 else "")
        ]
    if result_csv.is_table(text):
        return list(result_csv.read_table(text))
    raise DataError(f"must be a result of {_KNOWN}")


def benchmarks_of(
    data: bytes, file: str, beside: Beside, catalog: Catalog
) -> tuple[Benchmark, ...]:
    """Return the rows of a file.

    Raises: DataError; then nothing of the file may be stored.
    """
    rows = []
    for result in read_results(data):
        try:
            rows.append(_benchmark(result, file, beside, catalog))
        except DataError as error:
            where = f"{result.where.rstrip(', ')}: " if result.where else ""
            raise DataError(f"{where}{error}") from error
    return tuple(rows)


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values of a text: one, or one a line as --append-result writes them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"must be JSON: {error}") from error
        yield value
        while at < len(text) and text[at].isspace():
            at += 1


def _results(value: Any, where: str) -> Iterator[Result]:
    for is_one, read in _READERS:
        if is_one(value):
            try:
                yield from read(value, where)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                name = read.__name__.removeprefix("read_")
                raise DataError(
                    f"{where}is no {name} of a schema that is known: {error!r}"
                ) from error
            return
    raise DataError(f"{where}must be a result of {_KNOWN}")


def _benchmark(result: Result, file: str, beside: Beside, catalog: Catalog) -> Benchmark:
    told = {**named(result.told), **beside.told}
    job_id = told.get("job_id")
    known = None if job_id is None else beside.job(job_id)
    if job_id is not None and known is None and "gpu" not in told:
        raise DataError(f"the arm of job {job_id} is not known here: tell it with --gpu and so on")
    setup = setup_told(told, beside.model or result.model, known, catalog)
    load = _load(result.load, beside)
    return Benchmark(
        content_hash=content_hash([result.source, result.content]),
        source=result.source,
        setup=setup,
        load=load,
        targets=_completed(result.targets, load),
        outcome=result.outcome,
        file=file,
        measured_at=result.measured_at,
        job_id=job_id,
        window=_window(result),
        details=result.details,
    )


def _window(result: Result) -> Window | None:
    if result.window is None:
        return None
    start, end = result.window
    return Window(start=start, end=end)


def _load(load: Load, beside: Beside) -> Load:
    """Return the load with what is told of it.

    Raises: DataError when a length is told nowhere.
    """
    told = {name: getattr(beside, name) for name in ("isl", "osl", "concurrency")}
    load = replace(load, **{name: value for name, value in told.items() if value is not None})
    for name in ("isl", "osl"):
        if math.isnan(getattr(load, name)):
            raise DataError(f"{name} must be told, the file does not say it: --{name}")
    return load


def _completed(targets: Mapping[str, float], load: Load) -> dict[str, float]:
    """Add the throughput that follows from another of the same requests."""
    made = dict(targets)
    if "output_tok_s" not in made and "total_tok_s" in made:
        made["output_tok_s"] = made["total_tok_s"] * load.osl / (load.isl + load.osl)
    return made
