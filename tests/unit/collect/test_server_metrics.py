"""Two scrapes tell what a server did between them, under the names of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.collect.exposition import Scrape, read_exposition
from omnipilot_slurm.collect.server_metrics import Seen, Stretch, Unsteady, stretch
from omnipilot_slurm.predict.rows import CLOSED_LOOP, SATURATED

if TYPE_CHECKING:
    from collections.abc import Mapping

#: names of 0.6.0 to 0.9.1, of 0.10.2, and from 0.15 on
OLD = {"kv": "gpu_cache_usage_perc", "tpot": "time_per_output_token_seconds"}
MIDDLE = {"kv": "kv_cache_usage_perc", "tpot": "inter_token_latency_seconds"}
NEW = {"kv": "kv_cache_usage_perc", "tpot": "request_time_per_output_token_seconds"}


def histogram(name: str, n: int, mean: float, bucket: str) -> str:
    return (
        f'vllm:{name}_bucket{{le="0.01"}} 0\nvllm:{name}_bucket{{le="{bucket}"}} {n}\n'
        f'vllm:{name}_bucket{{le="+Inf"}} {n}\nvllm:{name}_count {n}\nvllm:{name}_sum {n * mean}\n'
    )


def scrape(
    names: Mapping[str, str], at: float, n: int, *, running: float = 8, waiting: float = 0
) -> Seen:
    text = (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:{names['kv']} 0.25\n"
        f"vllm:generation_tokens_total {200 * n}\nvllm:prompt_tokens_total {1000 * n}\n"
        f'vllm:request_success_total{{finished_reason="stop"}} {n}\n'
        f"vllm:num_preemptions_total {n // 10}\n"
        + histogram("time_to_first_token_seconds", n, 0.1, "0.21")
        + histogram(names["tpot"], n, 0.02, "0.03")
        + histogram("e2e_request_latency_seconds", n, 4.0, "8.01")
        + histogram("request_prompt_tokens", n, 1000, "2000")
        + histogram("request_generation_tokens", n, 200, "2000")
    )
    return Seen(at, read_exposition(text))


@pytest.mark.parametrize("names", [OLD, MIDDLE, NEW])
def test_every_version_gives_the_same_figures(names: Mapping[str, str]) -> None:
    found = stretch([scrape(names, 100.0, 50), scrape(names, 150.0, 90), scrape(names, 200.0, 150)])
    assert isinstance(found, Stretch)
    assert (found.start, found.end, found.load_mode) == (100.0, 200.0, CLOSED_LOOP)
    assert (found.isl, found.osl, found.concurrency) == pytest.approx((1000, 200, 8))
    assert (found.n_requests, found.n_preemptions) == (100, 10)
    assert found.targets == pytest.approx({
        "output_tok_s": 200.0,
        "total_tok_s": 1200.0,
        "req_s": 1.0,
        "kv_usage_frac": 0.25,
        # half way up the one bucket that all fell into
        "ttft_ms": 110.0,
        "tpot_ms": 20.0,
        "e2e_ms": 4010.0,
    })  # fmt: skip


def test_a_queue_that_does_not_empty_is_a_saturated_server() -> None:
    found = stretch([scrape(NEW, 0, 0, waiting=3), scrape(NEW, 10, 20, waiting=5)])
    assert isinstance(found, Stretch)
    assert found.load_mode == SATURATED


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([scrape(NEW, 5, 10)], "fewer than two scrapes"),
        ([scrape(NEW, 5, 10), scrape(NEW, 4, 40)], "fewer than two scrapes"),
        ([scrape(NEW, 5, 50), scrape(NEW, 9, 40)], "the server was restarted"),
        ([scrape(NEW, 5, 10, running=0), scrape(NEW, 9, 40)], "the server was idle"),
        (
            [scrape(NEW, 5, 10, running=2), scrape(NEW, 9, 40, running=20)],
            "between 2 and 20 requests were running",
        ),
        ([scrape(NEW, 5, 10), scrape(NEW, 9, 15)], "5 requests ended, 10 are needed"),
    ],
)
def test_what_is_not_steady_says_why(seen: list[Seen], why: str) -> None:
    assert stretch(seen) == Unsteady(why)


def test_without_lengths_nothing_is_made_up() -> None:
    def bare(at: float, n: int) -> Seen:
        text = f"vllm:num_requests_running 4\nvllm:request_success_total {n}\n"
        return Seen(at, read_exposition(text))

    assert stretch([bare(0, 0), bare(9, 50)]) == Unsteady("the lengths of requests are not told")


def test_a_median_beyond_the_last_bound_is_that_bound() -> None:
    far = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{le="{le}"}} {n}\n'
        for le, n in (("1", 0), ("2560", 0), ("+Inf", 40))
    )
    begin, end = scrape(NEW, 0, 0), scrape(NEW, 10, 40)
    samples = {**end.scrape.samples, **read_exposition(far).samples}
    found = stretch([begin, Seen(10, Scrape(samples))])
    assert isinstance(found, Stretch)
    assert found.targets["ttft_ms"] == pytest.approx(2560e3)
