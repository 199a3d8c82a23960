"""Each program's result is the same run, whoever wrote it, and a file is stored whole or not."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from results_for_tests import (
    CSV,
    guidellm,
    inference_perf,
    vllm_latency,
    vllm_serve,
    vllm_throughput,
)

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.benchmark_files import Beside, benchmarks_of, read_results
from omnipilot_slurm.ingest.result_csv import COLUMNS
from omnipilot_slurm.ingest.told import named
from omnipilot_slurm.records import TARGET_UNITS, Arm
from omnipilot_slurm.store.benchmarks import RunOutcome
from omnipilot_slurm.store.setups import Setup, Software

if TYPE_CHECKING:
    from omnipilot_slurm.store.benchmarks import Benchmark

RESULTS = Path(__file__).parents[2] / "fixtures" / "results"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
H100 = Beside(told={"gpu": "h100"})
#: what every program measured of the one run that the examples tell of
TARGETS = {
    "output_tok_s": 2508.8,
    "total_tok_s": 12544.0,
    "req_s": 9.8,
    "ttft_ms": 80.0,
    "tpot_ms": 12.0,
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load(site=None)


def rows(value: Any, beside: Beside, catalog: Catalog) -> tuple[Benchmark, ...]:
    data = value if isinstance(value, str) else json.dumps(value)
    return benchmarks_of(data.encode(), "result", beside, catalog)


def fault(value: Any, beside: Beside, catalog: Catalog) -> str:
    with pytest.raises(DataError) as caught:
        rows(value, beside, catalog)
    return str(caught.value)


# what the programs say


@pytest.mark.parametrize(
    ("value", "beside", "e2e_ms"),
    [
        (vllm_serve(), H100, None),
        (guidellm({"type_": "concurrent", "streams": 32}), H100, 3200.0),
        (inference_perf(concurrency=32, requested_rate=0.0), replace(H100, model=MODEL), 3200.0),
    ],
    ids=["vllm", "guidellm", "inference_perf"],
)
def test_the_same_run_is_the_same_row_whoever_wrote_it(
    value: Any, beside: Beside, e2e_ms: float | None, catalog: Catalog
) -> None:
    (row,) = rows(value, beside, catalog)
    expected = TARGETS if e2e_ms is None else TARGETS | {"e2e_ms": e2e_ms}
    assert row.targets == pytest.approx(expected)
    assert (row.load.isl, row.load.osl, row.load.concurrency) == (1024.0, 256.0, 32.0)
    assert (row.load.mode, row.load.requests_per_s) == ("online_closed_loop", None)
    assert (row.load.n_requests, row.load.n_failed) == (98, 2)
    assert (row.setup.model, row.setup.arm.gpu, row.outcome) == (MODEL, "h100", RunOutcome.OK)
    assert row.setup.arm.precision == "bf16"
    assert row.setup.model_facts is not None
    assert row.setup.model_facts["layers"] == 28


def test_a_rate_is_offered_and_without_either_the_queue_is_never_empty(catalog: Catalog) -> None:
    load = {"max_concurrency": None}
    assert rows(vllm_serve(**load), H100, catalog)[0].load.mode == "online_saturated"
    offered = rows(vllm_serve(**load, request_rate=2.5), H100, catalog)[0].load
    assert (offered.mode, offered.requests_per_s) == ("online_closed_loop", 2.5)


def test_an_older_vllm_says_neither_failures_nor_backend(catalog: Catalog) -> None:
    value = vllm_serve()
    for name in ("failed", "backend", "max_concurrent_requests", "rtfx"):
        del value[name]
    (row,) = rows(value, H100, catalog)
    assert (row.load.n_failed, row.details["backend"]) == (2, "openai")


def test_what_save_detailed_adds_changes_nothing_and_is_not_kept(catalog: Catalog) -> None:
    detailed = vllm_serve(generated_texts=["a secret"], ttfts=[0.1])
    (row,), (plain,) = rows(detailed, H100, catalog), rows(vllm_serve(), H100, catalog)
    assert row == plain
    assert "secret" not in str(row)


def test_a_date_is_of_this_machines_zone(catalog: Catalog) -> None:
    (row,) = rows(vllm_serve(), H100, catalog)
    assert row.measured_at == datetime(2026, 11, 29, 17, 45).astimezone().timestamp()
    assert rows(vllm_serve(date="lately"), H100, catalog)[0].measured_at is None


def test_appended_results_are_runs_of_one_file(catalog: Catalog) -> None:
    lines = [json.dumps(vllm_serve(max_concurrency=n)) for n in (1, 2, 4)]
    found = rows("\n".join(lines), H100, catalog)
    assert [row.load.concurrency for row in found] == [1.0, 2.0, 4.0]
    assert len({row.content_hash for row in found}) == 3


def test_offline_runs_need_to_be_told_their_lengths(catalog: Catalog) -> None:
    told = replace(H100, isl=1024.0, osl=256.0, concurrency=8.0)
    (throughput,) = rows(vllm_throughput(), told, catalog)
    assert throughput.targets == {"total_tok_s": 12800.0, "req_s": 10.0, "output_tok_s": 2560.0}
    assert throughput.load.mode == "offline_static_batch"
    (latency,) = rows(vllm_latency(), told, catalog)
    assert (latency.targets, latency.load.concurrency) == ({"e2e_ms": 1500.0}, 8.0)
    assert fault(vllm_latency(), H100, catalog) == (
        "isl must be told, the file does not say it: --isl"
    )
    older = vllm_throughput()
    del older["model_id"]
    assert fault(older, told, catalog) == "the model must be told: --model"


@pytest.mark.parametrize(
    ("strategy", "concurrency", "rate"),
    [
        ({"type_": "synchronous"}, 1.0, None),
        ({"type_": "throughput", "max_concurrency": None}, None, None),
        ({"type_": "throughput", "max_concurrency": 64}, 64.0, None),
        ({"type_": "constant", "rate": 2.0, "max_concurrency": None}, None, 2.0),
        ({"type_": "poisson", "rate": 3.0, "max_concurrency": 9}, 9.0, 3.0),
    ],
)
def test_every_strategy_of_guidellm_is_a_load(
    strategy: dict[str, Any], concurrency: float | None, rate: float | None, catalog: Catalog
) -> None:
    (row,) = rows(guidellm(strategy), H100, catalog)
    assert (row.load.concurrency, row.load.requests_per_s) == (concurrency, rate)
    assert row.window is not None
    assert row.window.end - row.window.start == 60.0


def test_a_summary_over_the_stages_of_inference_perf_is_refused(catalog: Catalog) -> None:
    assert fault(inference_perf(), replace(H100, model=MODEL), catalog) == (
        "load_summary.requested_rate or .concurrency must be there: a summary over stages has "
        "neither, read the files stage_*_lifecycle_metrics.json"
    )
    value = inference_perf(requested_rate=2.0)
    assert rows(value, replace(H100, model=MODEL), catalog)[0].load.requests_per_s == 2.0


@pytest.mark.parametrize("version", ["0.1.1", "0.2.0", "0.7.0"])
def test_what_inference_perf_itself_made_of_four_requests_is_read(
    version: str, catalog: Catalog
) -> None:
    """Four requests of 100 tokens, one a second, each answered by 8 tokens."""
    text = (RESULTS / f"inference_perf-{version}.json").read_text()
    (row,) = rows(text, replace(H100, model=MODEL), catalog)
    assert (row.load.isl, row.load.osl, row.load.requests_per_s) == (100.0, 8.0, 1.0)
    assert (row.load.n_requests, row.load.n_failed) == (4, 0)
    whole_s = 3.164
    assert row.targets == pytest.approx(
        {
            "output_tok_s": 32 / whole_s,
            "total_tok_s": 432 / whole_s,
            "req_s": 4 / whole_s,
            "ttft_ms": 80.0,
            "tpot_ms": 12.0,
            "e2e_ms": 164.0,
        }
    )


def test_a_server_that_does_not_stream_has_no_first_token(catalog: Catalog) -> None:
    value = inference_perf(requested_rate=2.0)
    value["successes"]["latency"] |= {"time_to_first_token": None, "time_per_output_token": None}
    (row,) = rows(value, replace(H100, model=MODEL), catalog)
    assert {"ttft_ms", "tpot_ms"} & row.targets.keys() == set()


# CSV


def test_a_csv_has_a_run_in_each_row(catalog: Catalog) -> None:
    found = rows(CSV, Beside(), catalog)
    assert [row.load.concurrency for row in found] == [32.0, 64.0]
    assert found[0].targets == {"output_tok_s": 2508.8, "ttft_ms": 80.0}
    assert (found[0].setup.arm.tensor_parallel, found[0].setup.arm.n_gpus) == (2, 2)
    assert found[0].setup.software.vllm == "0.11.0"


def test_a_csv_tells_of_runs_that_failed(catalog: Catalog) -> None:
    text = "model,gpu,isl,osl,outcome,note\nQwen/Qwen2.5-7B-Instruct,h100,8,8,oom,no room\n"
    (row,) = rows(text, Beside(), catalog)
    assert (row.outcome, row.targets, row.details) == (RunOutcome.OOM, {}, {"note": "no room"})


def test_every_fault_of_a_csv_is_told_at_once(catalog: Catalog) -> None:
    text = (
        "model,gpu,isl,osl,outptu_tok_s,outcome,load_mode,measured_at,ttft_ms\n"
        ",h100,x,256,1,ok,online_closed_loop,,5\n"
        "m,h100,1,2\n"
        "m,h100,1,2,1,fine,closed,yesterday,-1\n"
        "m,h100,1,2,1,,,,\n"
    )
    modes = "online_closed_loop, offline_static_batch, online_saturated"
    assert fault(text, Beside(), catalog).splitlines() == [
        "line 1: column 'outptu_tok_s' is not known; did you mean 'output_tok_s'",
        "line 2: model: must not be empty",
        "line 2: isl: must be a number not below 0, was 'x'",
        "line 3: must have 9 cells, has 4",
        "line 4: ttft_ms: must be a number not below 0, was '-1'",
        f"line 4: load_mode: must be one of {modes}, was 'closed'",
        "line 4: outcome: must be one of ok, oom, incompatible, timeout, other, was 'fine'",
        "line 4: measured_at: must be a time as 2026-11-29T17:45:00, was 'yesterday'",
        f"line 5: one of {', '.join(TARGET_UNITS)} must be measured",
    ]


def test_every_column_of_a_csv_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "site-data.md").read_text()
    words = set(re.findall(r"\w+", page.partition("### CSV")[2].partition("\n## ")[0]))
    assert set(COLUMNS) <= words


# the arm


def test_the_file_tells_the_arm_in_its_metadata(catalog: Catalog) -> None:
    value = vllm_serve(
        gpu="H100", tensor_parallel_size="2", quantization="fp8", vllm_version="0.11.0", who="me"
    )
    (row,) = rows(value, Beside(), catalog)
    arm = row.setup.arm
    assert (arm.gpu, arm.tensor_parallel, arm.n_gpus, arm.precision) == ("h100", 2, 2, "fp8")
    assert row.setup.software.vllm == "0.11.0"


def test_what_is_told_beside_counts_before_the_file(catalog: Catalog) -> None:
    value = vllm_serve(gpu="h100", tp="2")
    beside = Beside(told=named({"tensor-parallel": "4", "max-num-seqs": "128"}), model="other/m")
    beside = replace(beside, told={**beside.told, "precision": "awq"})
    (row,) = rows(value, beside, catalog)
    assert (row.setup.arm.tensor_parallel, row.setup.model) == (4, "other/m")
    assert (row.setup.flags, row.setup.model_facts) == ({"max_num_seqs": 128}, None)


KNOWN = Setup(
    model=MODEL,
    arm=Arm(
        partition=None, gpu="a100-80g", gres_type=None, n_gpus=4, tensor_parallel=4, precision="fp8"
    ),
    software=Software(vllm="0.10.0"),
    flags={"max_model_len": 4096},
)


def test_a_job_that_is_known_tells_the_arm(catalog: Catalog) -> None:
    asked: list[str] = []

    def job(job_id: str) -> Setup:
        asked.append(job_id)
        return KNOWN

    (row,) = rows(vllm_serve(slurm_job_id="4711"), Beside(job=job), catalog)
    assert (asked, row.job_id) == (["4711"], "4711")
    assert replace(row.setup, model_facts=None) == KNOWN
    beside = Beside(job=job, told={"job_id": "4712", "tensor_parallel": "2"})
    (row,) = rows(vllm_serve(), beside, catalog)
    assert (row.setup.arm.tensor_parallel, row.setup.arm.n_gpus) == (2, 2)


@pytest.mark.parametrize(
    ("beside", "text"),
    [
        (
            Beside(),
            "the GPU type must be told: --gpu, a metadata of the file, or --job of a known job",
        ),
        (
            Beside(told={"job_id": "9"}),
            "the arm of job 9 is not known here: tell it with --gpu and so on",
        ),
        (
            Beside(told={"gpu": "h100", "tensor_parallel": "two"}),
            "tensor_parallel must be a whole number, was 'two'",
        ),
        (
            Beside(told={"gpu": "h100", "tensor_parallel": "0"}),
            "tensor_parallel must be above 0, was '0'",
        ),
        (
            Beside(told={"gpu": "h100", "tensor_parallel": "4", "n_gpus": "2"}),
            "n_gpus must be at least tensor x pipeline x data parallel = 4, was 2",
        ),
        (
            Beside(told={"gpu": "h100", "expert_parallel": "maybe"}),
            "expert_parallel must be true or false, was 'maybe'",
        ),
        (
            Beside(told={"gpu": "h100"}, model="no/such"),
            "the precision must be told, model 'no/such' is not in the catalog: --precision",
        ),
    ],
)
def test_what_cannot_be_told_of_the_arm_is_said(
    beside: Beside, text: str, catalog: Catalog
) -> None:
    assert fault(vllm_serve(), beside, catalog) == text


def test_a_gpu_that_no_catalog_knows_is_refused(catalog: Catalog) -> None:
    assert fault(vllm_serve(), Beside(told={"gpu": "h1000"}), catalog).startswith("gpu: ")


# files that are none

EXAMPLES = (
    vllm_serve(),
    vllm_throughput(),
    vllm_latency(),
    guidellm({"type_": "concurrent", "streams": 32}),
    inference_perf(concurrency=32),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_result_of_any_shape_is_read_or_refused(data: st.DataObject, catalog: Catalog) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    place: Any = value
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(ANYTHING)
    beside = replace(H100, model=MODEL, isl=8.0, osl=8.0)
    try:
        found = rows(value, beside, catalog)
    except DataError:
        return
    for row in found:
        assert all(math.isfinite(target) and target > 0 for target in row.targets.values())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"completed": 0}, "completed must be above 0, no request was answered"),
        (
            {"output_throughput": math.inf},
            "output_throughput must be finite and not below 0, was inf",
        ),
        ({"output_throughput": "fast"}, "output_throughput must be a number, was 'fast'"),
        ({"median_ttft_ms": -1}, "median_ttft_ms must be finite and not below 0, was -1"),
        ({"request_rate": True}, "request_rate must be a number, was True"),
    ],
)
def test_a_figure_that_is_none_is_told(change: dict[str, Any], text: str, catalog: Catalog) -> None:
    assert fault(vllm_serve(**change), H100, catalog) == text


def test_results_of_pooling_are_refused(catalog: Catalog) -> None:
    value = vllm_serve()
    del value["total_output_tokens"]
    assert fault(value, H100, catalog) == (
        "total_output_tokens must be there: results of pooling are not read"
    )


def test_one_bad_run_refuses_its_file_and_says_which(catalog: Catalog) -> None:
    value = guidellm({"type_": "synchronous"}, {"type_": "synchronous"})
    del value["benchmarks"][1]["metrics"]["request_latency"]
    assert fault(value, H100, catalog) == "run 2: request_latency must be there, is not"
    text = json.dumps(vllm_serve()) + "\n" + json.dumps({"other": 1})
    assert fault(text, H100, catalog).startswith("run 2, must be a result of vllm bench serve")


@pytest.mark.parametrize("data", [b"", b"[]", b"a,b\n1,2\n", b"plain text", b"{}"])
def test_a_file_of_none_of_the_programs_is_refused(data: bytes) -> None:
    with pytest.raises(DataError) as caught:
        read_results(data)
    assert str(caught.value) == (
        "must be a result of vllm bench serve, throughput or latency, GuideLLM, inference-perf, "
        "or a CSV with the columns of docs/site-data.md"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xfe", "must be UTF-8 text: invalid start byte at byte 0"),
        (b'{"a": ', "must be JSON: Expecting value: line 1 column 7 (char 6)"),
    ],
)
def test_a_file_that_is_no_text_or_no_json_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(DataError) as caught:
        read_results(data)
    assert str(caught.value) == text
