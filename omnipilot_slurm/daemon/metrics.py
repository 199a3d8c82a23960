"""Counts and latencies of this daemon's life, in memory; `status` shows them.

In: one call per event, from any thread. Out: a mapping for the status answer.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

#: upper bounds of the latency histogram in ms; what is slower falls in the last, open bucket
BOUNDS_MS = (0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)


class Metrics:
    """Thread-safe counters by name, and the histogram of the time that decide calls took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._buckets = [0] * (len(BOUNDS_MS) + 1)
        self._sum_ms = 0.0

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` events of this name."""
        with self._lock:
            self._counts[name] += n

    def observe(self, verdict: str, elapsed_ms: float, *, cached: bool) -> None:
        """Note an answered decide call: its verdict and the time from accept to answer sent."""
        with self._lock:
            self._counts[f"verdict_{verdict}"] += 1
            self._counts["cache_hits" if cached else "cache_misses"] += 1
            self._buckets[bisect_left(BOUNDS_MS, elapsed_ms)] += 1
            self._sum_ms += elapsed_ms

    def snapshot(self) -> dict[str, object]:
        """Return the counts by name and the histogram as cumulative counts by upper bound."""
        with self._lock:
            counts, buckets, sum_ms = dict(self._counts), list(self._buckets), self._sum_ms
        total, cumulative = 0, {}
        for bound, n in zip((*map(str, BOUNDS_MS), "inf"), buckets, strict=True):
            total += n
            cumulative[bound] = total
        return {
            "counts": dict(sorted(counts.items())),
            "latency_ms": {"count": total, "sum": round(sum_ms, 3), "up_to": cumulative},
        }
