"""What users read, verdict by verdict, as whole texts; the figures come from a stand-in model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_for_tests import NODES, Rates, ask, partition, priced, script, site

from omnipilot_slurm.cluster_facts import FreeNodes, Snapshot
from omnipilot_slurm.decide import explain, figures
from omnipilot_slurm.decide.finding import Finding
from omnipilot_slurm.decide.site import UnknownModel
from omnipilot_slurm.decide.success import LaunchCounts, LaunchGroup, Outcomes, launch_priors
from omnipilot_slurm.decide.wait_history import WaitGroup, WaitHistory, WaitSample, queue_waits
from omnipilot_slurm.records import Mode, Reason, Verdict, Workload
from omnipilot_slurm.site_settings import MessageSettings

if TYPE_CHECKING:
    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.decide.site import Site

LLAMA_70B = "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192"
LLAMA_8B = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
KEEP = "to keep your choice: add `#OMNIPILOT off` to the script, or --comment omnipilot=off"
OR_KEEP = "or add `#OMNIPILOT off` to the script, or --comment omnipilot=off"
MORE = "more: omnipilot explain {decision_id}"
SAME = {(gpu, n): 1000.0 for gpu in ("a100-40g", "a100-80g", "h100", "h200") for n in (1, 2, 4, 8)}
ON_H100 = {"partition": "h100", "time_limit_min": 480}


def where(mode: Mode = Mode.ENFORCE, **rates: float) -> Site:
    """Return a site where every arm delivers 1000 tok/s, but those that are named."""
    said = {(name.replace("_", "-"), 1): rate for name, rate in rates.items()}
    return replace(site(mode), predictor=Rates(SAME | said))


def told(decision: Decision) -> list[str]:
    """Return the lines without what each begins with."""
    assert len(decision.messages) <= 5
    assert all(line.startswith("omnipilot: ") for line in decision.messages)
    return [line.removeprefix("omnipilot: ") for line in decision.messages]


def there(rate: str, usd: str, start: str, wait: str) -> str:
    return (
        f"there: {rate}, 200 ms TTFT (100 to 400) at ${usd}/h, "
        f"chance of a start {start} % (n = 0, assumed), wait {wait}, assumed)"
    )


FLAT = "1,000 tok/s (830 to 1,200)"
MOVED = "changed to 2x A100-SXM4-80GB, TP 2 in partition a100-80 (asked: 1x A100-SXM4-40GB, TP 1)"


def test_job_that_is_well_placed_is_admitted_in_silence() -> None:
    decision = ask(script("gpu:h100:1", LLAMA_8B), where(h100=2000.0), **ON_H100)
    assert (decision.verdict, told(decision)) == (Verdict.PASS, [])


def test_certain_failure_of_memory_is_moved() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), where())
    assert decision.verdict is Verdict.REWRITE
    assert told(decision) == [
        MOVED,
        "why: the weights take 131.7 GiB per GPU, the card has 39.4",
        there(FLAT, "3.60", "96", "0.2 h (0.0 to 0.5"),
        KEEP,
        MORE,
    ]


def test_cache_that_does_not_fit_is_moved_and_names_the_length_that_fits_as_asked() -> None:
    serve = "vllm serve meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization 0.8"
    decision = ask(script("gpu:a100:1", serve), where())
    assert decision.verdict is Verdict.REWRITE
    assert decision.finding.asked is not None
    length = decision.finding.asked.report.max_model_len_that_fits
    assert length is not None
    assert 100_000 < length < 131_072
    lines = told(decision)
    assert lines[0] == (
        "changed to 1x A100-SXM4-80GB, TP 1 in partition a100-80 (asked: 1x A100-SXM4-40GB, TP 1)"
    )
    assert lines[1].startswith("why: of 31.5 GiB per GPU, 15.0 of weights, ")
    assert lines[1].endswith(" GiB for the cache; one request of 131072 tokens needs 16.00 GiB")
    fits = f"--max-model-len {length} fits the GPUs asked"
    assert lines[3] == f"to keep your choice: {fits}; {OR_KEEP}"
    advised = ask(script("gpu:a100:1", serve), where(Mode.ADVISE))
    assert told(advised)[3] == f"or, on the GPUs asked: --max-model-len {length} fits"


def test_advise_mode_says_what_would_be_changed() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), where(Mode.ADVISE))
    assert decision.verdict is Verdict.ADVISE
    assert told(decision) == [
        MOVED.replace("changed", "would be changed"),
        "why: the weights take 131.7 GiB per GPU, the card has 39.4",
        there(FLAT, "3.60", "96", "0.2 h (0.0 to 0.5"),
        MORE,
    ]


def test_job_that_cannot_be_changed_is_told_why_and_where_it_would_start() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), where(), ntasks_per_gpu=1)
    assert decision.verdict is Verdict.ADVISE
    assert told(decision)[0] == (
        "not changed (--ntasks-per-gpu ties the number of tasks to the GPUs), and will not start;"
        " better: 2x A100-SXM4-80GB, TP 2 in partition a100-80 (asked: 1x A100-SXM4-40GB, TP 1)"
    )
    assert told(decision)[-1] == MORE


def test_tp_that_was_left_open_is_filled_in() -> None:
    decision = ask(script("gpu:a100:2", "vllm serve Qwen/Qwen2.5-7B-Instruct"), where())
    assert decision.verdict is Verdict.REWRITE
    assert told(decision) == [
        "changed to 2x A100-SXM4-40GB, TP 2 in partition a100 (asked: 2x A100-SXM4-40GB, TP 1)",
        "why: without --tensor-parallel-size the server uses 1 of 2 GPUs",
        there(FLAT, "3.00", "96", "0.2 h (0.0 to 0.5"),
        KEEP,
        MORE,
    ]


def test_partition_that_was_left_open_is_filled_in() -> None:
    decision = ask(script("gpu:h100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct"), where())
    assert told(decision) == [
        "changed to 1x H100-SXM5-80GB, TP 1 in partition h100",
        "why: the default partition has no node with 1x H100-SXM5-80GB, h100 has one",
        there(FLAT, "3.00", "98", "0.1 h (0.0 to 0.2"),
        KEEP,
        MORE,
    ]


def test_tp_that_does_not_divide_is_refused_with_its_neighbours() -> None:
    text = script("gpu:a100:3", f"{LLAMA_8B} -tp 3")
    detail = (
        "3x A100-SXM4-40GB, TP 3: 32 attention heads / TP 3 leaves 2;"
        " TP must be one of 1, 2, 4, 8, 16, 32"
    )
    smallest = "smallest change: --tensor-parallel-size 2 or 4, on as many GPUs"
    decision = ask(text, where())
    assert decision.verdict is Verdict.REJECT
    assert told(decision) == [f"refused: {detail}", smallest, KEEP, MORE]
    advised = ask(text, where(Mode.ADVISE))
    assert told(advised) == [f"will not start: {detail}", smallest, MORE]


def test_model_too_large_for_the_cluster_is_refused_with_what_comes_nearest() -> None:
    parts = tuple(partition(name) for name in ("a100", "h100"))
    snapshot = Snapshot(partitions=parts)
    huge = "vllm serve deepseek-ai/DeepSeek-R1 --max-model-len 8192 -tp 4"
    decision = ask(script("gpu:a100:4", huge), site(snapshot=snapshot))
    assert decision.verdict is Verdict.REJECT
    assert told(decision) == [
        "refused: 4x A100-SXM4-40GB, TP 4: the weights take 158.2 GiB per GPU, the card has 39.4",
        (
            "it starts on no node of this cluster; 4x H100-SXM5-80GB, TP 4:"
            " the weights take 158.2 GiB per GPU, the card has 79.2"
        ),
        KEEP,
        MORE,
    ]


def test_refusal_names_the_place_that_is_closed_to_the_user() -> None:
    closed = {"allow_accounts": frozenset({"nlp"})}
    parts = tuple(partition(name, **({} if name == "a100" else closed)) for name in NODES)
    huge = "vllm serve meta-llama/Llama-3.1-405B-Instruct-FP8 --max-model-len 8192 -tp 4"
    decision = ask(script("gpu:a100:4", huge), site(snapshot=Snapshot(partitions=parts)))
    assert decision.verdict is Verdict.REJECT
    assert told(decision)[1] == (
        "it would start on 4x H200-SXM5-141GB, TP 4 in partition h200, but partition h200 does not"
        " take jobs whose account is not known"
    )


def test_refusal_names_the_place_where_it_may_start() -> None:
    alone = site(snapshot=Snapshot(partitions=(partition("a100"),)))
    decision = ask(script("gpu:a100:1", LLAMA_70B), alone)
    assert decision.verdict is Verdict.REJECT
    assert told(decision)[1] == "it may start on 4x A100-SXM4-40GB, TP 4 in partition a100"


def test_context_too_long_for_the_gpus_is_refused_with_the_longest_that_fits() -> None:
    serve = "vllm serve meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization 0.8"
    alone = site(snapshot=Snapshot(partitions=(partition("a100"),)))
    four = replace(alone, pools=tuple(replace(pool, n_per_node=1) for pool in alone.pools))
    decision = ask(script("gpu:a100:1", serve), four)
    assert decision.verdict is Verdict.REJECT
    assert decision.finding.asked is not None
    length = decision.finding.asked.report.max_model_len_that_fits
    assert told(decision)[1] == f"smallest change: --max-model-len {length} fits the GPUs asked"


def test_model_that_is_not_known() -> None:
    decision = ask(script("gpu:a100:1", "vllm serve nobody/has-this-one"), where())
    assert decision.verdict is Verdict.ABSTAIN
    assert told(decision) == [
        "no opinion on nobody/has-this-one: model 'nobody/has-this-one' is not known",
        "the job runs as submitted",
        MORE,
    ]


def test_model_whose_folder_is_being_looked_up_or_that_the_script_hides() -> None:
    pending = UnknownModel(text="its folder is being looked up", pending=True)
    looking = replace(where(), models=lambda _: pending)
    decision = ask(script("gpu:a100:1", "vllm serve /models/x"), looking)
    assert decision.finding.reason.code == "model_pending"
    assert told(decision)[0] == "no opinion on /models/x: its folder is being looked up"
    hidden = ask(script("gpu:a100:1", "vllm serve $1"), where())
    assert hidden.finding.reason.code == "model_unknown"
    assert told(hidden)[0].startswith("no opinion on this server: ")


def test_pooling_model_and_hidden_tp_and_arm_out_of_support_make_it_abstain() -> None:
    pooling = ask(script("gpu:a100:1", "vllm serve BAAI/bge-base-en"), where())
    assert told(pooling)[0] == (
        "no opinion on BAAI/bge-base-en: a pooling model: what it would deliver is not known"
    )
    hidden = ask(script("gpu:a100:1", "vllm serve Qwen/Qwen2.5-7B-Instruct -tp $TP"), where())
    assert told(hidden)[0] == (
        "no opinion on Qwen/Qwen2.5-7B-Instruct: the tensor-parallel degree cannot be told from the"
        " script"
    )
    unmeasured = replace(where(), predictor=Rates({}))
    out = ask(script("gpu:h100:1", LLAMA_8B), unmeasured, **ON_H100)
    assert told(out) == [
        (
            "no opinion on meta-llama/Llama-3.1-8B-Instruct: gpu 'h100' was not measured;"
            " measured were h100"
        ),
        "the job runs as submitted",
        "`omnipilot bench-plan JOB.sh` prints the cheapest benchmark that would tell",
        MORE,
    ]


def test_better_place_is_advised_with_its_gain_and_the_load_that_it_is_for() -> None:
    decision = ask(script("gpu:h100:1", LLAMA_8B), where(h200=3000.0), **ON_H100)
    assert decision.verdict is Verdict.ADVISE
    assert told(decision) == [
        "better: 1x H200-SXM5-141GB, TP 1 in partition h200 (asked: 1x H100-SXM5-80GB, TP 1)",
        (
            "why: for 32 requests at a time (usual here) worth $108.53 more over 8 h"
            " ($75.21 to $141.84) than yours: 1,000 tok/s (830 to 1,200), 200 ms TTFT (100 to 400)"
            " at $3.00/h"
        ),
        there("3,000 tok/s (2,500 to 3,600)", "3.80", "98", "0.1 h (0.0 to 0.2"),
        MORE,
    ]


def test_better_place_is_taken_where_all_was_left_open() -> None:
    text = script("gpu:h100:1", "#OMNIPILOT auto concurrency=1", LLAMA_8B)
    decision = ask(text, where(h200=3000.0), **ON_H100)
    assert decision.verdict is Verdict.REWRITE
    lines = told(decision)
    assert lines[0].startswith("changed to 1x H200-SXM5-141GB, TP 1 in partition h200 (asked: ")
    assert lines[1].startswith("why: for 1 request at a time (as you said) worth $108.53 more ")
    assert lines[3:] == [KEEP, MORE]


def test_low_confidence_is_said_with_its_axes() -> None:
    low = Rates(SAME | {("h200", 1): 3000.0}, tier="low", axes=("workload", "engine_version"))
    decision = ask(script("gpu:h100:1", LLAMA_8B), replace(where(), predictor=low), **ON_H100)
    assert told(decision)[2].endswith("assumed); low confidence: workload, engine_version")


def test_chance_that_rests_on_the_sites_own_launches_shows_how_many() -> None:
    counts = LaunchCounts(by_group={LaunchGroup(2, "a100-80g", 2, "bf16", "0.11"): Outcomes(57, 3)})
    known = replace(where(), launches=launch_priors(site().launches.assumed, counts))
    decision = ask(script("gpu:a100:1", LLAMA_70B), known)
    assert ", chance of a start 95 % (n = 60), wait " in told(decision)[2]


def test_start_that_is_not_certain_is_warned_of_with_its_chance_and_the_safe_length() -> None:
    serve = "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 16384 -tp 2"
    decision = ask(script("gpu:a100-80:2", serve), where(), partition="a100-80")
    assert decision.verdict is Verdict.ADVISE
    assert decision.finding.asked is not None
    assert decision.finding.asked.p_launch is not None
    chance = f"{100 * decision.finding.asked.p_launch:.0f}"
    length = decision.finding.asked.report.max_model_len_that_fits
    lines = told(decision)
    assert lines[0].startswith("may not start: 2x A100-SXM4-80GB, TP 2: of 71.2 GiB per GPU, ")
    assert lines[1:] == [
        f"chance of a start {chance} % (n = 0, assumed)",
        f"starts for certain on these GPUs: --max-model-len {length}",
        MORE,
    ]


def test_doubt_that_no_length_mends_names_none() -> None:
    serve = f"{LLAMA_8B} --kv-cache-dtype fp8"
    decision = ask(script("gpu:a100:1", serve), where(), partition="a100")
    assert decision.verdict is Verdict.ADVISE
    lines = told(decision)
    assert lines[0].startswith("may not start: 1x A100-SXM4-40GB, TP 1: a cache of fp8 ")
    assert len(lines) == 3


def test_idle_gpus_name_the_smallest_change() -> None:
    decision = ask(script("gpu:a100:4", f"{LLAMA_8B} -tp 2"), where())
    assert decision.verdict is Verdict.ADVISE
    assert told(decision) == [
        "4x A100-SXM4-40GB, TP 2: 2 of 4 GPUs are used, 2 stay idle",
        "smallest change: ask for 2 GPUs, or --tensor-parallel-size 4",
        MORE,
    ]
    odd = ask(script("gpu:a100:3", f"{LLAMA_8B} -tp 1"), where())
    assert told(odd)[1] == "smallest change: ask for 1 GPU"


def test_two_servers_get_one_line() -> None:
    text = script("gpu:a100:2", "vllm serve a/b &", "vllm serve c/d &", "wait")
    assert told(ask(text, where())) == [
        "2 servers in one script are left as they are; `omnipilot advise` checks one at a time"
    ]
    assert told(ask(text, where(Mode.OBSERVE))) == []


def test_script_that_cannot_be_told_is_spoken_of_only_to_who_wrote_a_directive() -> None:
    unclear = "source /site/vllm.sh"
    assert told(ask(script("gpu:a100:1", unclear), where())) == []
    asked = ask(script("gpu:a100:1", "#OMNIPILOT auto", unclear), where())
    assert asked.verdict is Verdict.ABSTAIN
    assert told(asked) == [
        "no opinion on this script: the launch, if any, is inside a program that is not seen",
        "the job runs as submitted",
        MORE,
    ]
    assert told(ask(script("gpu:a100:1", "#OMNIPILOT auto", unclear), where(Mode.OBSERVE))) == []


def test_sites_own_page_is_named_in_the_last_line() -> None:
    there_is_more = MessageSettings(url="https://hpc.example.org/omnipilot")
    decision = ask(script("gpu:a100:1", LLAMA_70B), replace(where(), messages=there_is_more))
    assert told(decision)[-1] == f"{MORE}  https://hpc.example.org/omnipilot"


def test_price_that_is_not_set_is_not_shown() -> None:
    unpriced = priced(where(), dict.fromkeys(("a100-80g", "h100", "h200")))
    decision = ask(script("gpu:a100:1", LLAMA_70B), unpriced)
    assert told(decision)[2].startswith(
        "there: 1,000 tok/s (830 to 1,200), 200 ms TTFT (100 to 400), chance of a start 96 %"
    )


def test_figures_by_physics_have_no_interval_and_say_so() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), site())
    line = told(decision)[2]
    assert line.startswith("there: about ")
    assert line.endswith("; estimates by physics, not calibrated")


def test_arm_out_of_support_says_what_room_is_left_instead() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), replace(where(), predictor=Rates({})))
    assert decision.verdict is Verdict.REWRITE
    line = told(decision)[2]
    assert line.startswith("there: ")
    assert line.endswith(" are left for the cache; throughput is not predicted")


@pytest.mark.parametrize(
    ("source", "n_jobs", "words"),
    [
        ("directive", 0, "64 requests at a time (as you said)"),
        ("flag", 0, "64 requests at a time (the most by your flags)"),
        ("user", 12, "64 requests at a time (as in your last 12 jobs)"),
        ("user", 1, "64 requests at a time (as in your last job)"),
        ("account", 3, "64 requests at a time (as in your account's last 3 jobs)"),
        ("site", 0, "64 requests at a time (usual here)"),
    ],
)
def test_load_says_how_it_is_known(source: str, n_jobs: int, words: str) -> None:
    load = Workload(isl=1, osl=1, concurrency=64, source={"concurrency": source}, n_jobs=n_jobs)
    assert figures.load(load) == words


@pytest.mark.parametrize(("usd", "words"), [(1234.5, "$1,234.50"), (-0.5, "-$0.50"), (0, "$0.00")])
def test_dollars_have_their_sign_in_front(usd: float, words: str) -> None:
    assert figures.dollars(usd) == words


@given(st.text(max_size=2000), st.sampled_from([Verdict.ABSTAIN, Verdict.ADVISE, Verdict.REJECT]))
def test_no_line_is_endless_and_there_are_five_at_most(text: str, done: Verdict) -> None:
    finding = Finding(verdict=done, reason=Reason(code="x", text=text))
    said: Any = explain.lines(finding, done, model="m", url=None)
    assert 1 < len(said) <= 5
    assert all(len(line) <= len("omnipilot: ") + 320 for line in said)


def test_pipelines_and_replicas_are_part_of_an_arm() -> None:
    serve = f"{LLAMA_8B} --pipeline-parallel-size 2 --data-parallel-size 2"
    decision = ask(script("gpu:h200:4", serve), where(), partition="h200")
    assert decision.finding.asked is not None
    assert figures.described(decision.finding.asked) == "4x H200-SXM5-141GB, TP 1 PP 2 DP 2"


def test_nodes_that_are_free_now_make_nobody_wait() -> None:
    free = FreeNodes(n_nodes=1, gpus={"a100-80": 4}, cpus=64, memory_mib=1_024_000)
    parts = tuple(
        replace(part, shapes=(replace(part.shapes[0], free=(free,)),))
        if part.name == "a100-80"
        else part
        for part in (partition(name) for name in NODES)
    )
    live = site(snapshot=Snapshot(partitions=parts, taken_at=1.0))
    decision = ask(script("gpu:a100:1", LLAMA_70B), replace(live, predictor=Rates(SAME)))
    assert told(decision)[2].endswith("chance of a start 96 % (n = 0, assumed), free now")


def test_wait_known_from_the_sites_own_jobs_shows_how_many() -> None:
    waits = WaitHistory(by_group={WaitGroup("a100-80", 2, "a100-80"): WaitSample(9, 1.0, (1.0,))})
    known = replace(where(), waits=queue_waits(site().waits.of_all.assumed, waits))
    assert ", n = 9)" in told(ask(script("gpu:a100:1", LLAMA_70B), known))[2]


def test_arm_of_which_nothing_was_worked_out_has_no_figures() -> None:
    decision = ask(script("gpu:a100:1", LLAMA_70B), where())
    assert decision.finding.asked is not None
    bare = replace(
        decision.finding.asked, report=replace(decision.finding.asked.report, memory=None)
    )
    said = (figures.delivery(bare), figures.launch(bare), figures.wait(bare))
    assert said == ("", "", "")
    assert figures.rate_and_price(bare) == " at $1.50/h"
