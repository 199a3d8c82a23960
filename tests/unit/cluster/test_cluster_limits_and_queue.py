"""Limits of a QOS and the length of queues, from what sacctmgr and squeue printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.cluster.limits import parse_qos, parse_tres
from omnipilot_slurm.cluster.queue import parse_queue
from omnipilot_slurm.cluster_facts import QosLimits, QueueFacts
from omnipilot_slurm.errors import SlurmError

RECORDED = Path(__file__).parents[2] / "fixtures" / "slurm"


@pytest.fixture(params=["22.05", "24.11"])
def recorded(request):
    return lambda name: (RECORDED / request.param / f"{name}.txt").read_text()


def test_limits_of_a_qos_are_read(recorded):
    assert parse_qos(recorded("qos")) == (
        QosLimits(name="normal"),
        QosLimits(
            name="long",
            max_wall_min=3 * 1440,
            max_tres_per_job={"cpu": 64, "gres/gpu:h100": 2, "gres/gpu": 4},
            max_tres_per_node={"gres/gpu": 2},
            max_tres_per_user={"gres/gpu": 8, "mem_mib": 2**20},
            group_tres={"gres/gpu": 16},
            flags=frozenset({"DenyOnLimit"}),
        ),
    )


def test_columns_may_come_in_another_order_or_be_missing():
    assert parse_qos("MaxTRES|Name\ngres/gpu=2|fast\n") == (
        QosLimits(name="fast", max_tres_per_job={"gres/gpu": 2}),
    )
    assert parse_qos("") == ()


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "node", "gres/gpu", "gres/gpu:a100-80", "billing"]),
        st.integers(0, 10**9),
    )
)
def test_a_tres_list_is_read_back(counts):
    assert parse_tres(",".join(f"{name}={n}" for name, n in counts.items())) == counts


def test_memory_is_in_mib_whatever_its_suffix():
    assert parse_tres("mem=1T") == parse_tres("mem=1024G") == {"mem_mib": 2**20}
    assert parse_tres("mem=512M") == parse_tres("mem=512") == {"mem_mib": 512}


@pytest.mark.parametrize("entry", ["gres/gpu", "=4", "cpu=many"])
def test_a_limit_that_cannot_be_read_is_named(entry):
    with pytest.raises(SlurmError) as caught:
        parse_tres(entry)
    assert str(caught.value) == f"a TRES limit must be like gres/gpu=4, was {entry!r}"


def test_a_header_without_names_is_refused():
    with pytest.raises(SlurmError) as caught:
        parse_qos("sacctmgr: error: no database\n")
    assert str(caught.value) == (
        "sacctmgr must print a header with Name, printed 'sacctmgr: error: no database'"
    )


def test_held_jobs_do_not_count_and_waiting_gpus_do(recorded):
    assert parse_queue(recorded("queue")) == {
        "a100": QueueFacts(n_running_jobs=1, n_pending_jobs=0, n_pending_gpus=0),
        "h200": QueueFacts(n_running_jobs=1, n_pending_jobs=1, n_pending_gpus=4),
    }


@pytest.mark.parametrize(
    ("line", "n_gpus"),
    [
        ("p|PD|2|2|cpu=4,gres/gpu=8|N/A|gres:gpu:4|N/A|Priority|", 8),
        ("p|PD|2|2|cpu=4|N/A|gres:gpu:h100:4|N/A|Priority|", 8),
        ("p|PD|1-3|4|cpu=4|gres/gpu:3|N/A|N/A|Resources|", 3),
        ("p|PD|1|4|cpu=4|N/A|N/A|cpu=2,gres/gpu:h100:2|Resources|", 8),
    ],
)
def test_gpus_are_counted_with_and_without_accounting_for_them(line, n_gpus):
    assert parse_queue(line)["p"].n_pending_gpus == n_gpus


def test_a_job_of_several_partitions_waits_in_each():
    queue = parse_queue("a,b|PD|1|1|gres/gpu=2|N/A|N/A|N/A|Priority|\nslurm_load_jobs error\n")
    assert (
        queue["a"] == queue["b"] == QueueFacts(n_running_jobs=0, n_pending_jobs=1, n_pending_gpus=2)
    )
