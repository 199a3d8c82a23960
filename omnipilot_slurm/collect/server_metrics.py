"""What vLLM's /metrics say between two scrapes: load, throughput and latencies of that stretch.

In: scrapes of one server with their times. Out: `Stretch`. Pure. Called by the collector. Names as
in the sources of 0.6.0 to 0.33.0: counters are exported with `_total`, the cache's usage is
gpu_cache_usage_perc before 0.9.2, TPOT of a request has a histogram of its own from 0.11 on
(earlier servers only tell the gaps between tokens, which stand in for it).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.predict.rows import CLOSED_LOOP, SATURATED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.collect.exposition import Scrape

_COUNTERS: Final = {
    "output_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "requests": ("vllm:request_success_total", "vllm:request_success"),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
}
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_KV_USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
#: targets from histograms of seconds, newest name first
_LATENCIES: Final = {
    "ttft_ms": ("vllm:time_to_first_token_seconds",),
    "tpot_ms": (
        "vllm:request_time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    "e2e_ms": ("vllm:e2e_request_latency_seconds",),
}
_LENGTHS: Final = {"isl": "vllm:request_prompt_tokens", "osl": "vllm:request_generation_tokens"}

#: what makes a stretch steady: requests finished in it, and how far the running ones may wander
MIN_REQUESTS: Final = 10
_WANDER_FRAC, _WANDER_REQUESTS = 0.5, 2.0
_MS: Final = 1e3


@dataclass(frozen=True, slots=True)
class Seen:
    """A scrape and when it was taken, Unix time in s."""

    at: float
    scrape: Scrape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a server did between two times (Unix, s); `targets` as in records.TARGET_UNITS."""

    start: float
    end: float
    load_mode: str
    concurrency: float
    isl: float
    osl: float
    n_requests: int
    n_preemptions: int
    targets: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A stretch that says nothing of a steady load, and why."""

    why: str


def stretch(seen: Sequence[Seen]) -> Stretch | Unsteady:
    """Return what at least two scrapes, in order of time, say of the time between them."""
    first, last = seen[0], seen[-1]
    duration = last.at - first.at
    # none at all where the clock went back
    if duration <= 0:
        return Unsteady("fewer than two scrapes")
    if any(_restarted(one.scrape, other.scrape) for one, other in pairwise(seen)):
        return Unsteady("the server was restarted")
    running = [each.scrape.total(_RUNNING) or 0.0 for each in seen]
    concurrency = sum(running) / len(running)
    if min(running) < 1:
        return Unsteady("the server was idle")
    if max(running) - min(running) > max(_WANDER_REQUESTS, _WANDER_FRAC * concurrency):
        return Unsteady(f"between {min(running):g} and {max(running):g} requests were running")
    made = {name: _made(first.scrape, last.scrape, names) for name, names in _COUNTERS.items()}
    if made["requests"] < MIN_REQUESTS:
        return Unsteady(f"{made['requests']:g} requests ended, {MIN_REQUESTS} are needed")
    isl, osl = (_mean(first.scrape, last.scrape, name) for name in _LENGTHS.values())
    if not isl or not osl:
        return Unsteady("the lengths of requests are not told")
    waiting = [(each.scrape.total(_WAITING) or 0.0) > 0 for each in seen]
    return Stretch(
        start=first.at,
        end=last.at,
        load_mode=SATURATED if sum(waiting) * 2 > len(waiting) else CLOSED_LOOP,
        concurrency=concurrency,
        isl=isl,
        osl=osl,
        n_requests=round(made["requests"]),
        n_preemptions=round(made["preemptions"]),
        targets=_targets(seen, made, duration),
    )


def _targets(seen: Sequence[Seen], made: Mapping[str, float], duration: float) -> dict[str, float]:
    first, last = seen[0].scrape, seen[-1].scrape
    targets = {
        "output_tok_s": made["output_tokens"] / duration,
        "total_tok_s": (made["output_tokens"] + made["prompt_tokens"]) / duration,
        "req_s": made["requests"] / duration,
    }
    usage = [value for each in seen if (value := each.scrape.highest(*_KV_USAGE)) is not None]
    if usage:
        targets["kv_usage_frac"] = max(usage)
    for target, names in _LATENCIES.items():
        medians = (_median_s(first, last, name) for name in names)
        found = next((median for median in medians if median is not None), None)
        if found is not None:
            targets[target] = _MS * found
    return targets


def _restarted(one: Scrape, other: Scrape) -> bool:
    """Tell whether a counter went down between two scrapes."""
    return any((_made(one, other, names)) < 0 for names in _COUNTERS.values())


def _made(first: Scrape, last: Scrape, names: tuple[str, ...]) -> float:
    return (last.total(*names) or 0.0) - (first.total(*names) or 0.0)


def _mean(first: Scrape, last: Scrape, name: str) -> float | None:
    """Return the mean of what a histogram took in between two scrapes."""
    count = _made(first, last, (f"{name}_count",))
    return _made(first, last, (f"{name}_sum",)) / count if count > 0 else None


def _median_s(first: Scrape, last: Scrape, name: str) -> float | None:
    """Return the median of what a histogram took in, linear within its bucket; None: nothing."""
    before = first.buckets(name)
    counts = {bound: n - before.get(bound, 0.0) for bound, n in last.buckets(name).items()}
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    lower, below = 0.0, 0.0
    for bound in sorted(counts):
        if counts[bound] >= total / 2:
            # the highest bucket has no upper end: its lower one is all that is known
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (total / 2 - below) / (counts[bound] - below)
        lower, below = bound, counts[bound]
    return None
