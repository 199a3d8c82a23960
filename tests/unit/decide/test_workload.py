"""What a server is taken to be asked comes from the nearest source that says, and names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_for_tests import ask, partition, script, site

from omnipilot_slurm.cluster_facts import Snapshot
from omnipilot_slurm.decide.usage import MAX_JOBS, ServedLoad, UsualLoads, usual_loads
from omnipilot_slurm.decide.workload import Known, workload_of
from omnipilot_slurm.records import EngineArgs, Workload
from omnipilot_slurm.site_settings import WorkloadDefaults, WorkloadSettings

SETTINGS = WorkloadSettings(
    default=WorkloadDefaults(isl=1024, osl=256, concurrency=32, hours=8),
    by_partition={"chat": WorkloadDefaults(osl=512, requests_per_s=3.0)},
)
SERVED = ServedLoad("alice", "llm", 2000.0, 300.0, 20.0, 1.5)


def workload(
    directives: dict[str, float] | None = None, engine: EngineArgs | None = None, **known: Any
) -> Workload:
    return workload_of(directives or {}, engine or EngineArgs(), SETTINGS, Known(**known))


def test_site_says_what_nobody_else_does() -> None:
    load = workload()
    assert (load.isl, load.osl, load.concurrency, load.hours) == (1024, 256, 32, 8)
    assert set(load.source.values()) == {"site"}
    assert (load.requests_per_s, load.slo_ttft_ms, load.slo_tpot_ms, load.n_jobs) == (
        None,
        None,
        None,
        0,
    )


def test_partition_entry_of_the_site_lies_over_its_default() -> None:
    load = workload(partition="chat")
    assert (load.isl, load.osl, load.requests_per_s) == (1024, 512, 3.0)


def test_every_directive_is_taken_and_lies_over_all_else() -> None:
    said = {
        "concurrency": 64,
        "isl": 2000,
        "osl": 300,
        "slo_ttft_ms": 800,
        "slo_tpot_ms": 50,
        "requests_per_s": 3,
        "hours": 12,
    }
    earlier = ("user", usual_loads([SERVED]).by_user["alice"])
    load = workload(
        said, EngineArgs(max_num_seqs=16, max_model_len=512), time_limit_min=60, earlier=earlier
    )
    assert {name: getattr(load, name) for name in said} == said
    assert {load.source[name] for name in said} == {"directive"}
    assert (load.plausible_concurrency, load.n_jobs) == (None, 0)


def test_directives_of_a_script_reach_the_workload() -> None:
    words = "concurrency=64 isl=2000 osl=300 slo_ttft_ms=800 requests_per_s=3 hours=12"
    text = script("gpu:a100:1", f"#OMNIPILOT {words}", "vllm serve Qwen/Qwen2.5-7B-Instruct")
    load = ask(text).workload
    assert load is not None
    assert (load.concurrency, load.isl, load.osl, load.hours) == (64, 2000, 300, 12)
    assert (load.requests_per_s, load.slo_ttft_ms) == (3.0, 800.0)


def test_hours_are_the_time_limit_then_the_partitions_default_time() -> None:
    assert workload(time_limit_min=90, default_time_min=30).hours == 1.5
    load = workload(default_time_min=30)
    assert (load.hours, load.source["hours"]) == (0.5, "partition")


@pytest.mark.parametrize(
    ("asked", "hours", "source"),
    [
        ({}, 1.0, "partition"),
        ({"partition": "h100"}, 8.0, "site"),
        ({"partition": "nowhere"}, 8.0, "site"),
        ({"time_limit_min": 240}, 4.0, "job"),
    ],
)
def test_default_time_is_that_of_the_partition_asked_for(
    asked: dict[str, Any], hours: float, source: str
) -> None:
    snapshot = Snapshot(partitions=(partition("h100"), partition("a100", default_time_min=60)))
    gres = "gpu:h100:1" if asked.get("partition") else "gpu:a100:1"
    text = script(gres, "vllm serve Qwen/Qwen2.5-7B-Instruct")
    load = ask(text, site(snapshot=snapshot), **asked).workload
    assert load is not None
    assert (load.hours, load.source["hours"]) == (hours, source)


def test_flags_cut_what_was_only_assumed() -> None:
    load = workload(engine=EngineArgs(max_num_seqs=16))
    assert (load.concurrency, load.source["concurrency"]) == (16, "flag")
    assert load.plausible_concurrency == (4, 16)
    assert workload(engine=EngineArgs(max_num_seqs=64)).source["concurrency"] == "site"


def test_requests_are_no_longer_than_the_context() -> None:
    load = workload(engine=EngineArgs(max_model_len=640))
    assert (load.isl, load.osl, load.source["isl"]) == (512, 128, "flag")
    assert workload(engine=EngineArgs(max_model_len=1280)).isl == 1024
    assert workload({"isl": 1024}, EngineArgs(max_model_len=640)).isl == 1024


@given(st.integers(2, 4000), st.integers(1, 4096), st.integers(1, 4096))
def test_cut_lengths_are_positive_and_fit(length: int, isl: int, osl: int) -> None:
    settings = replace(SETTINGS, default=replace(SETTINGS.default, isl=isl, osl=osl))
    load = workload_of({}, EngineArgs(max_model_len=length), settings, Known())
    assert min(load.isl, load.osl) >= 1
    assert load.isl + load.osl <= max(length, 2)


def test_earlier_jobs_of_the_user_come_before_the_accounts_and_both_before_the_sites() -> None:
    loads = usual_loads([SERVED, SERVED._replace(user_name="bob", isl=100.0)])
    own = workload(earlier=loads.of("alice", "llm"))
    assert (own.isl, own.osl, own.concurrency, own.requests_per_s) == (2000, 300, 20, 1.5)
    assert (own.source["isl"], own.n_jobs, own.source["hours"]) == ("user", 1, "site")
    shared = workload(earlier=loads.of("carol", "llm"))
    assert (shared.isl, shared.source["isl"], shared.n_jobs) == (100, "account", 2)
    assert loads.of("carol", "physics") is None
    assert loads.of(None, None) is None


def test_plausible_range_is_that_of_the_earlier_jobs_or_four_times_the_sites() -> None:
    flights = [8.0, *[20.0] * 8, 64.0]
    loads = usual_loads(SERVED._replace(concurrency=flight) for flight in flights)
    assert workload(earlier=loads.of("alice", None)).plausible_concurrency == (8, 20)
    assert workload().plausible_concurrency == (8, 128)
    assert workload({"isl": 5}).plausible_concurrency == (8, 128)


def test_newest_jobs_count_and_one_load_test_does_not_speak_for_all() -> None:
    newest = [SERVED._replace(concurrency=10.0)] * (MAX_JOBS - 1)
    served = [SERVED._replace(concurrency=2000.0), *newest, SERVED._replace(concurrency=1.0)]
    load = usual_loads(served).by_user["alice"]
    assert (load.n_jobs, load.concurrency, load.concurrency_hi) == (MAX_JOBS, 10, 10)


def test_rate_that_only_some_jobs_have_is_no_cap() -> None:
    load = usual_loads([SERVED, SERVED._replace(requests_per_s=None)]).by_user["alice"]
    assert load.requests_per_s is None
    assert workload(earlier=("user", load)).requests_per_s is None


def test_jobs_without_an_account_count_for_their_user_only() -> None:
    loads = usual_loads([SERVED._replace(account=None)])
    assert (set(loads.by_user), set(loads.by_account)) == ({"alice"}, set())
    assert UsualLoads().of("alice", "llm") is None


@given(
    st.lists(
        st.builds(
            ServedLoad,
            st.just("alice"),
            st.none() | st.just("llm"),
            st.floats(0.01, 1e6),
            st.floats(0.01, 1e6),
            st.floats(0.01, 1e4),
            st.none() | st.floats(0.01, 1e4),
        ),
        min_size=1,
    )
)
def test_usual_load_lies_among_those_served(served: list[ServedLoad]) -> None:
    load = usual_loads(served).by_user["alice"]
    assert 1 <= load.concurrency_lo <= load.concurrency <= load.concurrency_hi
    assert min(1, round(min(one.isl for one in served))) <= load.isl
    assert load.n_jobs == min(len(served), MAX_JOBS)
