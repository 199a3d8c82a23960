"""Runs, starts and outcomes come back as they were written, once, the last word counting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.records import TARGET_UNITS, Arm
from omnipilot_slurm.store import outcomes as outcomes_table
from omnipilot_slurm.store.benchmarks import (
    Benchmark,
    Load,
    RunOutcome,
    Window,
    benchmarks,
    record_benchmarks,
)
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.outcomes import JobOutcome, LinkedBy, outcomes, record_outcomes
from omnipilot_slurm.store.progress import Progress, progress, set_progress
from omnipilot_slurm.store.server_starts import (
    ServerStart,
    StartFigures,
    record_server_starts,
    server_starts,
)
from omnipilot_slurm.store.setups import Setup, Software, content_hash
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_800_000_000.0
SETUP = Setup(
    model="Qwen/Qwen2.5-7B-Instruct",
    arm=Arm(
        partition=None,
        gpu="h100",
        gres_type=None,
        n_gpus=4,
        n_nodes=2,
        tensor_parallel=2,
        pipeline_parallel=2,
        expert_parallel=True,
        precision="fp8",
        kv_cache_dtype="fp8",
    ),
    software=Software(vllm="0.11.0", torch="2.8.0", cuda="12.8", driver="570.1"),
    model_facts={"layers": 28},
    flags={"max_num_seqs": 256, "hf_token": "hf_abcdefghijk"},
)
RUN = Benchmark(
    content_hash=content_hash({"run": 1}),
    source="vllm_bench_serve",
    setup=SETUP,
    load=Load(mode="online_closed_loop", isl=1024.0, osl=256.0, concurrency=32.0, n_requests=320),
    targets={"output_tok_s": 1000.0, "ttft_ms": 80.0},
    file="run.json",
    measured_at=NOW,
    job_id="4711",
    window=Window(start=NOW - 60.0, end=NOW, n_power_samples=12),
    details={"p99_ttft_ms": 120.0},
)
START = ServerStart(
    content_hash=content_hash({"start": 1}),
    started_at=NOW,
    observed_at=NOW + 60.0,
    setup=SETUP,
    outcome=LaunchOutcome.OK,
    figures=StartFigures(weights_gib=14.2, n_kv_tokens=400_000, cold_start_s=48.5),
    job_id="4711",
    decision_id="k3f9",
)
OUTCOME = JobOutcome(
    job_id="4711_3",
    submitted_at=NOW,
    decision_id="k3f9",
    linked_by=LinkedBy.TAG,
    started_at=NOW + 10.0,
    ended_at=NOW + 100.0,
    state="FAILED",
    outcome=LaunchOutcome.OOM,
    evidence="cuda_out_of_memory",
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def test_a_run_comes_back_whole_but_for_secrets(connection: sqlite3.Connection) -> None:
    assert record_benchmarks(connection, [RUN], at=NOW) == 1
    (kept,) = benchmarks(connection)
    assert kept.setup.flags["hf_token"] != "hf_abcdefghijk"
    assert replace(kept, setup=SETUP) == RUN


def test_every_target_is_a_column(connection: sqlite3.Connection) -> None:
    targets = {name: float(i) for i, name in enumerate(TARGET_UNITS)}
    record_benchmarks(connection, [replace(RUN, targets=targets)], at=NOW)
    assert next(benchmarks(connection)).targets == targets


def test_a_target_of_another_name_is_a_programming_error(connection: sqlite3.Connection) -> None:
    with pytest.raises(KeyError, match="tok_s are not targets"):
        record_benchmarks(connection, [RUN, replace(RUN, targets={"tok_s": 1.0})], at=NOW)
    assert list(benchmarks(connection)) == []


def test_a_run_read_again_under_another_name_is_the_same_run(
    connection: sqlite3.Connection,
) -> None:
    record_benchmarks(connection, [RUN], at=NOW)
    assert record_benchmarks(connection, [replace(RUN, file="copy.json")], at=NOW + 1) == 0
    assert next(benchmarks(connection)).file == "run.json"


def test_a_run_read_again_with_another_arm_replaces_itself_in_its_place(
    connection: sqlite3.Connection,
) -> None:
    other = replace(RUN, content_hash=content_hash({"run": 2}))
    record_benchmarks(connection, [RUN, other], at=NOW)
    mended = replace(RUN, setup=replace(SETUP, arm=replace(SETUP.arm, gpu="h200")))
    assert record_benchmarks(connection, [mended], at=NOW) == 1
    assert [run.setup.arm.gpu for run in benchmarks(connection)] == ["h200", "h100"]
    assert [run.content_hash for run in benchmarks(connection, after_row=1)] == [other.content_hash]


def test_runs_of_one_cell_say_so(connection: sqlite3.Connection) -> None:
    offered = replace(RUN, content_hash="b", load=replace(RUN.load, requests_per_s=2.5))
    record_benchmarks(connection, [RUN, offered], at=NOW)
    cells = [row[0] for row in connection.execute("SELECT cell FROM benchmarks ORDER BY row_id")]
    assert cells == [
        "Qwen/Qwen2.5-7B-Instruct|in1024|out256|c32",
        "Qwen/Qwen2.5-7B-Instruct|in1024|out256|c32|r2.5",
    ]


def test_a_run_that_failed_has_no_targets(connection: sqlite3.Connection) -> None:
    failed = replace(RUN, targets={}, outcome=RunOutcome.OOM, window=None)
    record_benchmarks(connection, [failed], at=NOW)
    (kept,) = benchmarks(connection)
    assert (kept.targets, kept.outcome, kept.window) == ({}, RunOutcome.OOM, None)


def test_a_start_comes_back_whole_and_a_later_word_on_it_counts(
    connection: sqlite3.Connection,
) -> None:
    assert record_server_starts(connection, [START]) == 1
    assert record_server_starts(connection, [replace(START, observed_at=NOW + 90.0)]) == 0
    (kept,) = server_starts(connection, NOW)
    assert replace(kept, setup=SETUP) == START
    assert record_server_starts(connection, [replace(START, outcome=LaunchOutcome.OOM)]) == 1
    assert [one.outcome for one in server_starts(connection, NOW)] == [LaunchOutcome.OOM]
    assert list(server_starts(connection, NOW + 1.0)) == []


def test_an_outcome_comes_back_and_what_is_learned_later_replaces_it(
    connection: sqlite3.Connection,
) -> None:
    assert record_outcomes(connection, [OUTCOME]) == 1
    assert record_outcomes(connection, [OUTCOME]) == 0
    assert list(outcomes(connection, NOW)) == [OUTCOME]
    assert record_outcomes(connection, [OUTCOME._replace(outcome=LaunchOutcome.OTHER)]) == 1
    assert outcomes_table.delete_before(connection, NOW + 1000.0, limit=5) == 1
    assert list(outcomes(connection, 0.0)) == []


def test_progress_is_the_last_that_was_written(connection: sqlite3.Connection) -> None:
    assert progress(connection, "sacct") is None
    for now in (Progress(at=1.0, read_to=0.5), Progress(at=2.0, read_to=1.5, n_bytes=7)):
        set_progress(connection, "sacct", now)
        assert progress(connection, "sacct") == now


def test_a_content_hash_knows_contents_not_their_order() -> None:
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})
