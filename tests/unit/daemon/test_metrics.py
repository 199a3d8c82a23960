"""Counts add up, and the histogram is cumulative."""

from __future__ import annotations

import threading

from omnipilot_slurm.daemon.metrics import Metrics


def test_a_decision_is_counted_by_verdict_cache_and_time() -> None:
    metrics = Metrics()
    metrics.observe("pass", 0.2, cached=False)
    metrics.observe("advise", 0.25, cached=True)
    metrics.observe("pass", 900.0, cached=True)
    metrics.count("refused_peers")
    shown = metrics.snapshot()
    assert shown["counts"] == {
        "cache_hits": 2,
        "cache_misses": 1,
        "refused_peers": 1,
        "verdict_advise": 1,
        "verdict_pass": 2,
    }
    latency = shown["latency_ms"]
    assert (latency["count"], latency["sum"]) == (3, 900.45)
    assert latency["up_to"]["0.1"] == 0
    assert latency["up_to"]["0.25"] == 2
    assert latency["up_to"]["100.0"] == 2
    assert latency["up_to"]["inf"] == 3


def test_no_count_of_another_thread_is_lost() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.count("x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.snapshot()["counts"] == {"x": 8000}
