"""How a server ended is told from its log before its job's state, and logs are read with care."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from sacct_job_for_tests import JOB

from omnipilot_slurm.ingest import job_log
from omnipilot_slurm.ingest.ending import LONG_RUN_S, NO_LOG, LogSigns, ending, signs_of
from omnipilot_slurm.ingest.job_log import log_path, read_log
from omnipilot_slurm.ingest.tags import decision_of, is_named_server
from omnipilot_slurm.store.site_tables import LaunchOutcome

if TYPE_CHECKING:
    from pathlib import Path

TASK = JOB._replace(job_id="4711_3", raw_id="4714")
OK, OOM, INCOMPATIBLE = LaunchOutcome.OK, LaunchOutcome.OOM, LaunchOutcome.INCOMPATIBLE


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to", (OOM, "cuda_out_of_memory")),
        (
            "ValueError: No available memory for the cache blocks. Try increasing",
            (OOM, "no_room_for_kv_cache"),
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (131072)",
            (OOM, "no_room_for_kv_cache"),
        ),
        (
            "ValueError: Free memory on device (3.1/79.2 GiB) on startup is less than desired",
            (OOM, "gpu_is_taken"),
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4", (OOM, "host_out_of_memory")),
        (
            "ValueError: Total number of attention heads (28) must be divisible by tensor",
            (INCOMPATIBLE, "not_divisible"),
        ),
        (
            "ValueError: World size (8) is larger than the number of available GPUs (4)",
            (INCOMPATIBLE, "too_few_gpus"),
        ),
        (
            "User-specified max_model_len (65536) is greater than the derived max_model_len (4096)",
            (INCOMPATIBLE, "context_too_long"),
        ),
        (
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8",
            (INCOMPATIBLE, "capability"),
        ),
        ("api_server.py: error: unrecognized arguments: --foo", (INCOMPATIBLE, "unknown_option")),
        ("OSError: [Errno 98] Address already in use", None),
    ],
)
def test_what_stopped_a_server_is_seen_in_its_log(
    line: str, complaint: tuple[LaunchOutcome, str] | None
) -> None:
    assert signs_of(f"INFO starting\n{line}\n").complaint == complaint


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Application startup complete.",
        "INFO 11-29 Engine 000: Avg prompt throughput: 12.0 tokens/s",
        'INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK',
    ],
)
def test_a_server_that_came_up_is_seen_in_its_log(line: str) -> None:
    signs = signs_of(f"INFO vLLM API server version 0.11.0\n{line}\nCUDA out of memory")
    assert (signs.came_up, signs.version) == (True, "0.11.0")
    assert ending("FAILED", 0.0, 60.0, signs) == (OK, "log_serving")


@pytest.mark.parametrize(
    ("state", "started_at", "ended_at", "signs", "expected"),
    [
        ("TIMEOUT", 0.0, LONG_RUN_S, NO_LOG, (OK, "ran_30_min")),
        ("CANCELLED", 0.0, 60.0, NO_LOG, (LaunchOutcome.CANCELLED, "state_cancelled")),
        ("PREEMPTED", 0.0, 60.0, NO_LOG, (LaunchOutcome.CANCELLED, "state_preempted")),
        ("TIMEOUT", 0.0, 60.0, NO_LOG, (LaunchOutcome.TIMEOUT, "state_timeout")),
        ("OUT_OF_MEMORY", 0.0, 60.0, NO_LOG, (OOM, "state_out_of_memory")),
        ("COMPLETED", 0.0, 60.0, NO_LOG, (OK, "state_completed")),
        ("FAILED", 0.0, 60.0, NO_LOG, (LaunchOutcome.OTHER, "state_failed")),
        ("NODE_FAIL", 0.0, 9e9, NO_LOG, (LaunchOutcome.NODE_FAILURE, "state_node_fail")),
        ("NODE_FAIL", 0.0, 60.0, LogSigns(came_up=True), (OK, "log_serving")),
        ("BOOT_FAIL", None, 60.0, NO_LOG, (LaunchOutcome.NODE_FAILURE, "state_boot_fail")),
        ("CANCELLED", None, 60.0, NO_LOG, (LaunchOutcome.CANCELLED, "never_started")),
        ("FAILED", 0.0, 60.0, LogSigns(complaint=(OOM, "x")), (OOM, "log_x")),
        ("COMPLETED", 0.0, 60.0, LogSigns(complaint=(OOM, "x")), (OOM, "log_x")),
    ],
)
def test_every_job_ends_in_one_of_seven_ways(
    state: str,
    started_at: float | None,
    ended_at: float,
    signs: LogSigns,
    expected: tuple[LaunchOutcome, str],
) -> None:
    assert ending(state, started_at, ended_at, signs) == expected


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/l/slurm-%A_%a.out", "/l/slurm-4711_3.out"),
        ("/l/%j-%x-%u.log", "/l/4714-serve-alice.log"),
        ("/l/%6j%%.log", "/l/004714%.log"),
        ("/l/%N.log", ""),
    ],
)
def test_patterns_of_a_logs_name_are_filled_in_where_accounting_knows_them(
    pattern: str, path: str
) -> None:
    assert log_path(TASK._replace(log=pattern)) == path


def test_a_long_log_is_read_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "HEAD_BYTES", 5)
    monkeypatch.setattr(job_log, "TAIL_BYTES", 4)
    path = tmp_path / "log"
    path.write_text("begin" + "." * 100 + "last")
    assert read_log(TASK._replace(log=str(path))) == "begin\nlast"
    path.write_text("short")
    assert read_log(TASK._replace(log=str(path))) == "short\n"


def test_what_is_no_log_is_empty(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for log in (str(pipe), str(tmp_path), str(tmp_path / "none"), "relative", "", "/a\0b"):
        assert not read_log(TASK._replace(log=log))


def test_a_tag_is_found_beside_what_others_keep_there() -> None:
    assert decision_of("omnipilot=k3f9:rewrite") == "k3f9"
    assert decision_of('{"jobstats": "x", "omnipilot": "k3f9:advise"}') == "k3f9"
    assert decision_of("JS1:abc omnipilot=a-b_1:pass omnipilot=zz:reject") == "zz"
    assert decision_of("") is decision_of("omnipilot=off") is decision_of("other") is None


def test_a_name_that_says_vllm_is_a_server() -> None:
    assert is_named_server("vLLM-serve")
    assert is_named_server("my_vllm_2")
    assert not is_named_server("villm")
    assert not is_named_server("avllmb")
