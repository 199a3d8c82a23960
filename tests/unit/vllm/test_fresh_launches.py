"""Public launches that the checks had not seen when they were written."""

from pathlib import Path

import pytest
import yaml

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.fit import Question, judge
from omnipilot_slurm.vllm.report import Place

FIXTURE = Path(__file__).parents[2] / "fixtures" / "fresh_launches.yaml"
CASES = yaml.safe_load(FIXTURE.read_text(encoding="utf-8"))
CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
CARDS = tuple(CATALOG.gpu(gpu_id) for gpu_id in CATALOG.gpu_ids())


def judged(case):
    cards = CATALOG.gpus_meant(case["gpu"]) if case["gpu"] else ()
    n_nodes = case.get("nodes", 1)
    per_node = case["gpus"] // n_nodes
    question = Question(
        model=CATALOG.model(case["model"]).facts,
        gpu=cards[0] if len(cards) == 1 else None,
        engine=EngineArgs(model=case["model"], **case["engine"]),
        place=Place(n_gpus=per_node, gpus_per_node=per_node, n_nodes=n_nodes),
        either=cards if len(cards) > 1 else (),
        cards=CARDS,
    )
    return judge(question, COEFFICIENTS)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_public_launch_is_judged_as_it_went_and_for_the_right_reason(case):
    report = judged(case)
    assert str(report.verdict) == case["verdict"]
    assert report.verdict is not (Starts.STARTS if case["outcome"] == "fail" else Starts.FAILS)
    found = {check.id for check in report.checks if check.ok is not Starts.STARTS}
    if "at_fault" in case:
        assert case["at_fault"] in found


def test_most_fresh_failures_are_certain_and_no_working_launch_is_refused():
    said = [(case["outcome"], case["verdict"]) for case in CASES]
    assert len(CASES) == 29
    assert said.count(("fail", "fails")) == 21
    assert [verdict for outcome, verdict in said if outcome == "works"].count("fails") == 0
