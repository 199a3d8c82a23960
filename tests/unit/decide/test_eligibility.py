"""An arm is proposed only where every rule that Slurm would refuse it by is met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_for_tests import ask, catalog, gpu_named, partition, script, site, submit

from omnipilot_slurm.cluster_facts import QosLimits, Snapshot
from omnipilot_slurm.decide.eligibility import NodeNeed, need_of, objection, per_tres, satisfies
from omnipilot_slurm.decide.pools import GpuPool, pools_of
from omnipilot_slurm.records import Verdict
from omnipilot_slurm.site_settings import GpuMap

#: 4 GPUs, 96 CPUs, 1,024,000 MiB a node
H100 = partition("h100")


def objections(
    part: dict[str, Any] | None = None,
    *,
    n_gpus: int = 2,
    limits: tuple[QosLimits, ...] = (),
    enforces: tuple[str, ...] = ("limits",),
    **job: Any,
) -> str | None:
    """Return what forbids a job to run on GPUs of the h100 partition, changed as a test wants."""
    changed = partition("h100", **(part or {}))
    snapshot = Snapshot(partitions=(changed,), qos=limits, enforces=frozenset(enforces))
    (pool,) = site(snapshot=snapshot).pools
    reason = objection(submit("#!/bin/bash\n", **job), pool, n_gpus, snapshot)
    assert reason is None or reason.code == "not_allowed"
    return None if reason is None else reason.text


def test_job_that_meets_every_rule_may_go() -> None:
    assert objections() is None


@pytest.mark.parametrize(
    ("part", "job", "text"),
    [
        ({"is_up": False}, {}, "partition h100 takes no jobs"),
        ({"root_only": True}, {}, "partition h100 takes no jobs"),
        ({"needs_reservation": True}, {}, "partition h100 takes no jobs"),
        (
            {},
            {"partitions": frozenset({"a100"})},
            "partition h100 is not open to this user",
        ),
        (
            {"allow_submit_hosts": frozenset({"login1"})},
            {},
            "partition h100 takes jobs of some hosts only",
        ),
        (
            {"allow_groups": frozenset({"staff"})},
            {"groups": frozenset({"users"})},
            "partition h100 is for other groups",
        ),
        ({"allow_groups": frozenset({"staff"})}, {}, "partition h100 is for other groups"),
        (
            {"allow_accounts": frozenset({"llm"})},
            {"account": "physics"},
            "partition h100 does not take account physics",
        ),
        (
            {"allow_accounts": frozenset({"llm"})},
            {},
            "partition h100 does not take jobs whose account is not known",
        ),
        (
            {"deny_accounts": frozenset({"physics"})},
            {"default_account": "physics"},
            "partition h100 does not take account physics",
        ),
        (
            {"allow_qos": frozenset({"long"})},
            {"qos": "normal"},
            "partition h100 does not take QOS normal",
        ),
        (
            {"deny_qos": frozenset({"normal"})},
            {"default_qos": "normal"},
            "partition h100 does not take QOS normal",
        ),
        (
            {"max_time_min": 60},
            {"time_limit_min": 61},
            "partition h100 ends jobs after 60 min, 61 min are asked",
        ),
        ({"min_nodes": 2}, {}, "partition h100 takes no job of one node"),
        ({"max_nodes": 0}, {}, "partition h100 takes no job of one node"),
        (
            {},
            {"features": "a100"},
            "nodes of h100 do not satisfy constraint a100",
        ),
        ({}, {"cpus_per_task": 97}, "nodes of h100 have 96 CPUs, 97 are asked"),
        ({"max_cpus_per_node": 8}, {"num_tasks": 9}, "nodes of h100 have 8 CPUs, 9 are asked"),
        (
            {},
            {"min_mem_per_node_mib": 1_024_001},
            "nodes of h100 have 1024000 MiB, 1024001 MiB are asked",
        ),
        (
            {"max_mem_per_node_mib": 1000},
            {"min_mem_per_node_mib": 1001},
            "nodes of h100 have 1000 MiB, 1001 MiB are asked",
        ),
        (
            {},
            {"mem_per_tres": "gres:gpu:600000"},
            "nodes of h100 have 1024000 MiB, 1200000 MiB are asked",
        ),
        ({}, {"cpus_per_tres": "gres/gpu:49"}, "nodes of h100 have 96 CPUs, 98 are asked"),
    ],
)
def test_each_rule_that_refuses_a_job_is_said(
    part: dict[str, Any], job: dict[str, Any], text: str
) -> None:
    assert objections(part, **job) == text


@pytest.mark.parametrize(
    ("part", "job"),
    [
        ({"allow_groups": frozenset({"staff"})}, {"groups": frozenset({"staff", "users"})}),
        # slurmctld itself said that this user may use it
        ({"allow_groups": frozenset({"staff"})}, {"partitions": frozenset({"h100"})}),
        ({"allow_accounts": frozenset({"llm"})}, {"account": "llm", "default_account": "other"}),
        ({"deny_qos": frozenset({"long"})}, {"qos": "normal"}),
        ({"max_time_min": 60}, {"time_limit_min": 60}),
        ({"max_time_min": 60}, {}),
        ({"min_nodes": 1, "max_nodes": 1}, {}),
        ({}, {"cpus_per_tres": "gres/gpu:48", "mem_per_tres": "gres/gpu:512000"}),
        ({}, {"features": "h100"}),
    ],
)
def test_what_meets_a_rule_exactly_may_go(part: dict[str, Any], job: dict[str, Any]) -> None:
    assert objections(part, **job) is None


def test_more_gpus_than_a_node_has_are_refused() -> None:
    assert objections(n_gpus=5) == "nodes of h100 have 4 GPUs"


NORMAL = {"default_qos": "normal"}


@pytest.mark.parametrize(
    ("limits", "job", "text"),
    [
        ({"max_wall_min": 60}, {"time_limit_min": 61}, "QOS normal allows 60 min"),
        ({"max_tres_per_job": {"gres/gpu": 1}}, {}, "QOS normal allows 1 GPUs"),
        ({"max_tres_per_node": {"gres/gpu:h100": 1}}, {}, "QOS normal allows 1 GPUs"),
        ({"max_tres_per_user": {"gres/gpu": 1}}, {}, "QOS normal allows 1 GPUs"),
        ({"max_tres_per_account": {"gres/gpu": 1}}, {}, "QOS normal allows 1 GPUs"),
        ({"group_tres": {"gres/gpu": 1}}, {}, "QOS normal allows 1 GPUs"),
        ({"max_tres_per_job": {"cpu": 8}}, {"cpus_per_task": 9}, "QOS normal allows 8 CPUs"),
        (
            {"max_tres_per_job": {"mem_mib": 1000}},
            {"min_mem_per_node_mib": 1001},
            "QOS normal allows 1000 MiB",
        ),
        ({"max_tres_per_job": {"node": 0}}, {}, "QOS normal allows 0 nodes"),
        ({"min_tres_per_job": {"gres/gpu": 4}}, {}, "QOS normal asks for 4 GPUs at least"),
        ({"max_wall_min": 60}, {"time_limit_min": 60}, None),
        ({"max_wall_min": 60}, {}, None),
        ({"max_tres_per_job": {"gres/gpu": 2, "gres/gpu:a100": 1, "cpu": 1}}, {}, None),
        ({"min_tres_per_job": {"gres/gpu": 2}}, {}, None),
    ],
)
def test_limits_of_the_jobs_qos_bind(
    limits: dict[str, Any], job: dict[str, Any], text: str | None
) -> None:
    qos = (QosLimits(name="other", max_wall_min=1), QosLimits(name="normal", **limits))
    assert objections(limits=qos, **(NORMAL | job)) == text


def test_limits_of_the_partitions_qos_bind_too_and_none_where_they_are_not_enforced() -> None:
    qos = (QosLimits(name="gpu", max_tres_per_job={"gres/gpu": 1}),)
    assert objections({"qos": "gpu"}, limits=qos) == "QOS gpu allows 1 GPUs"
    assert objections({"qos": "gpu"}, limits=qos, enforces=("associations",)) is None


@pytest.mark.parametrize(
    ("job", "part", "need"),
    [
        ({}, {}, (1, 0)),
        ({"num_tasks": 3, "cpus_per_task": 4}, {}, (12, 0)),
        ({"ntasks_per_node": 2}, {}, (2, 0)),
        ({"pn_min_cpus": 7, "min_cpus": 5}, {}, (7, 0)),
        ({"cpus_per_tres": "gres:gpu:8"}, {}, (16, 0)),
        ({}, {"default_cpus_per_gpu": 6}, (12, 0)),
        ({"mem_per_tres": "gres/gpu:1000"}, {"default_mem_per_gpu_mib": 1}, (1, 2000)),
        ({"min_mem_per_node_mib": 5000}, {"default_mem_per_gpu_mib": 1}, (1, 5000)),
        ({"min_mem_per_cpu_mib": 100, "cpus_per_task": 4}, {}, (4, 400)),
        ({}, {"default_mem_per_gpu_mib": 3000}, (1, 6000)),
        ({}, {"default_mem_per_node_mib": 700}, (1, 700)),
        ({"cpus_per_task": 4}, {"default_mem_per_cpu_mib": 50}, (4, 200)),
        # Slurm turns memory above the limit per CPU into CPUs
        ({"min_mem_per_node_mib": 1001}, {"max_mem_per_cpu_mib": 100}, (11, 1001)),
    ],
)
def test_need_of_a_node_scales_with_its_gpus(
    job: dict[str, Any], part: dict[str, Any], need: tuple[int, int]
) -> None:
    asked = need_of(submit("#!/bin/bash\n", **job), partition("h100", **part), 2)
    assert asked == NodeNeed(*need)


@pytest.mark.parametrize(
    ("text", "number"),
    [("gres:gpu:4", 4), ("gres/gpu:16", 16), ("gpu=2", 2), ("gpu", None), ("", None), (None, None)],
)
def test_amount_per_gpu_is_read_in_both_spellings(text: str | None, number: int | None) -> None:
    assert per_tres(text) == number


NODE = frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        (None, True),
        ("", True),
        ("a", True),
        ("c", False),
        ("a&b", True),
        ("a&c", False),
        ("c|b", True),
        ("c|d", False),
        ("[c|b]", True),
        ("a,b", True),
        ("a & b", True),
        # from left to right: (b or c) and c; (c and a) or b
        ("b|c&c", False),
        ("c&a|b", True),
        ("a*2", False),
        ("!c", False),
        ("(a|c)&b", False),
        ("[a*1&b*1]", False),
        ("&", False),
    ],
)
def test_constraints_are_read_as_slurm_reads_them(constraint: str | None, holds: bool) -> None:
    assert satisfies(constraint, NODE) is holds


@given(st.text("ab&|,[]()*! 0", max_size=12), st.frozensets(st.sampled_from("ab")))
def test_any_text_of_a_constraint_is_judged(text: str, features: frozenset[str]) -> None:
    assert satisfies(text, features) in (True, False)


def test_partition_that_a_user_may_not_use_is_never_proposed() -> None:
    text = script("gpu:a100:1", "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192")
    free = ask(text)
    assert free.finding.chosen is not None
    first = free.finding.chosen.arm.partition
    names = ("a100", "a100-80", "h100", "h200")
    closed = {"allow_accounts": frozenset({"other"})}
    parts = tuple(partition(name, **(closed if name == first else {})) for name in names)
    moved = ask(text, site(snapshot=Snapshot(partitions=parts)), account="llm")
    assert moved.verdict is Verdict.REWRITE
    assert moved.finding.chosen is not None
    assert moved.finding.chosen.arm.partition not in ("a100", first)
    nowhere = tuple(replace(part, is_up=part.name == "a100") for part in parts)
    refused = ask(text, site(snapshot=Snapshot(partitions=nowhere)), account="llm")
    assert refused.verdict is Verdict.REJECT


def test_pools_know_gpus_by_the_sites_word_first_then_by_names() -> None:
    def pools(name: str = "p", gres: str = "gpu", features: str = "", **gpu_map: Any) -> list[str]:
        part = replace(H100, name=name)
        shape = replace(part.shapes[0], gpus={gres: 4}, features=frozenset(features.split()))
        snapshot = Snapshot(partitions=(replace(part, shapes=(shape,)),))
        return [f"{pool.gpu.id}/{pool.gres_type}" for pool in _pools(snapshot, **gpu_map)]

    assert pools(gres="h100") == ["h100/h100"]
    assert pools(gres="mystery") == []
    assert pools(gres="mystery", gres_map={"mystery": "h200"}) == ["h200/mystery"]
    assert pools(name="p-h100") == ["h100/None"]
    assert pools(features="h200") == ["h200/None"]
    assert pools(name="p-h100", features="h200") == []
    assert pools(features="fast", feature_map={"fast": "h200"}) == ["h200/None"]
    assert pools(gres="h100", partition_map={"p": "h200"}) == ["h200/h100"]


def _pools(snapshot: Snapshot, **maps: Any) -> tuple[GpuPool, ...]:
    gpu_map = GpuMap(
        partition=maps.get("partition_map", {}),
        feature=maps.get("feature_map", {}),
        gres=maps.get("gres_map", {}),
    )
    gpus = {gpu_id: catalog().gpu(gpu_id) for gpu_id in catalog().gpu_ids()}
    return pools_of(snapshot, gpu_map, gpus, gpu_named)
