"""How the start of a server ended: from what accounting says and the signs in its log. Pure.

In: state and times of a job, the text of its log's two ends. Out: a LaunchOutcome, and which sign
told. Called by decided.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from omnipilot_slurm.store.site_tables import LaunchOutcome

#: a job that ran so long had a server: those that do not come up end within minutes
LONG_RUN_S: Final = 1800.0

_CAME_UP: Final = re.compile(
    r"Application startup complete|Uvicorn running on|Avg prompt throughput:|HTTP/1\.[01]\" 200"
)
#: what vLLM, torch, Slurm or the kernel write when memory does not suffice
_OOM: Final = re.compile(
    r"(?P<cuda_out_of_memory>OutOfMemoryError|(?:CUDA|HIP) out of memory)"
    r"|(?P<no_room_for_kv_cache>No available memory for the cache blocks"
    r"|To serve at least one request|can be stored in KV cache)"
    r"|(?P<gpu_is_taken>Free memory on device .{0,80}less than desired)"
    r"|(?P<host_out_of_memory>oom[-_ ]kill|Out Of Memory)"
)
_INCOMPATIBLE: Final = re.compile(
    r"(?P<not_divisible>(?:must be|not|isn't) (?:evenly )?divisible by)"
    r"|(?P<too_few_gpus>World size \(\d+\) is larger than)"
    r"|(?P<context_too_long>is greater than the derived max_model_len)"
    r"|(?P<capability>only supported on GPUs with compute capability|[Mm]inimum capability"
    r"|no kernel image is available)"
    r"|(?P<unknown_model>does not recognize this architecture|are not supported for now"
    r"|Unrecognized model|Cannot find model module)"
    r"|(?P<unknown_option>unrecognized arguments|error: argument )"
    r"|(?P<batch_limits>max_num_batched_tokens \(\d+\) (?:is smaller|must be greater) than)"
    r"|(?P<quantization>quantization method .{0,80}not supported"
    r"|is not supported for the current GPU)"
)
_VERSION: Final = re.compile(r"(?:API server version|LLM engine \(v)\s*v?(\d+\.\d+(?:\.\d+)?)")
_NODE_STATES: Final = frozenset(("NODE_FAIL", "BOOT_FAIL"))
_ENDED_BY_OTHERS: Final = frozenset(("CANCELLED", "PREEMPTED", "REQUEUED", "REVOKED", "RESIZING"))
_ENDED_BY_TIME: Final = frozenset(("TIMEOUT", "DEADLINE"))


class LogSigns(NamedTuple):
    """What a log shows: whether the server came up, what stopped it, vLLM's version."""

    came_up: bool = False
    complaint: tuple[LaunchOutcome, str] | None = None
    version: str | None = None


NO_LOG: Final = LogSigns()


class Ending(NamedTuple):
    """How a server ended, which sign told, and vLLM's version where its log says it."""

    outcome: LaunchOutcome
    evidence: str
    version: str | None


def signs_of(text: str) -> LogSigns:
    """Return what a log, or its beginning and end, shows."""
    version = _VERSION.search(text)
    return LogSigns(
        came_up=_CAME_UP.search(text) is not None,
        complaint=_complaint(text),
        version=version[1] if version else None,
    )


def ending(
    state: str, started_at: float | None, ended_at: float, signs: LogSigns
) -> tuple[LaunchOutcome, str]:
    """Return how a job's server ended, and by which sign: its log counts before its job's state."""
    if state in _NODE_STATES and not signs.came_up:
        return LaunchOutcome.NODE_FAILURE, f"state_{state.lower()}"
    if started_at is None:
        return LaunchOutcome.CANCELLED, "never_started"
    if signs.came_up:
        return LaunchOutcome.OK, "log_serving"
    if ended_at - started_at >= LONG_RUN_S:
        return LaunchOutcome.OK, "ran_30_min"
    if signs.complaint is not None:
        outcome, sign = signs.complaint
        return outcome, f"log_{sign}"
    return _by_state(state)


def _by_state(state: str) -> tuple[LaunchOutcome, str]:
    sign = f"state_{state.lower()}"
    if state == "OUT_OF_MEMORY":
        return LaunchOutcome.OOM, sign
    if state == "COMPLETED":
        return LaunchOutcome.OK, sign
    if state in _ENDED_BY_OTHERS:
        return LaunchOutcome.CANCELLED, sign
    if state in _ENDED_BY_TIME:
        return LaunchOutcome.TIMEOUT, sign
    return LaunchOutcome.OTHER, sign


def _complaint(text: str) -> tuple[LaunchOutcome, str] | None:
    for outcome, pattern in (
        (LaunchOutcome.OOM, _OOM),
        (LaunchOutcome.INCOMPATIBLE, _INCOMPATIBLE),
    ):
        match = pattern.search(text)
        if match is not None:
            return outcome, str(match.lastgroup)
    return None
