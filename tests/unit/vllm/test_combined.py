"""Checks that together leave no version in question."""

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.checks.combined import combined, p_cleared
from omnipilot_slurm.vllm.checks.outcome import by_version, outcome
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.report import CheckKind, Place

CATALOG = Catalog.load(site=None)
LLAMA_8B = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
FEATURE = CheckKind.FEATURE
HERE = 0b1111


def partly(check_id, refusing):
    return by_version(check_id, FEATURE, refusing, HERE, f"{check_id} differs")


def test_versions_that_one_check_refuses_and_those_that_another_does_are_all_of_them():
    found = combined([partly("old", 0b0011), partly("new", 0b1100)], HERE)
    assert [check.ok for check in found] == [Starts.FAILS, Starts.FAILS]
    assert [check.detail.text for check in found] == [
        "old differs; the versions that pass this fail by new",
        "new differs; the versions that pass this fail by old",
    ]


def test_one_version_that_every_check_lets_pass_keeps_the_doubt():
    checks = [partly("old", 0b0011), partly("new", 0b1000)]
    assert combined(checks, HERE) == checks


def test_a_doubt_that_no_version_settles_takes_no_part():
    doubt = outcome("card", FEATURE, Starts.UNSURE, "who knows")
    checks = [partly("old", 0b0011), doubt]
    assert combined(checks, HERE) == checks


def test_a_doubt_is_as_likely_cleared_as_versions_pass_it():
    assert p_cleared(partly("new", 0b1000), HERE) == 3 / 4
    assert p_cleared(outcome("card", FEATURE, Starts.UNSURE, "who knows"), HERE) == 1 / 2


def test_a_method_of_old_versions_and_a_type_of_new_ones_never_meet():
    engine = EngineArgs(quantization="squeezellm")  # gone by 0.6.2; auto is half from 0.9.0 on
    report = assess(LLAMA_8B, None, engine, Place(), load_startup(), capability=75)
    failing = {check.id for check in report.checks if check.ok is Starts.FAILS}
    assert report.verdict is Starts.FAILS
    assert failing == {"dtype", "quantization_method"}
