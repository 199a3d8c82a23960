"""The bars of public launch outcomes, as benchmarks/launch.py counts them."""

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import Starts
from omnipilot_slurm.startup_file import load_startup

ROOT = Path(__file__).parents[3]


def _benchmark():
    path = ROOT / "benchmarks" / "launch.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_launches", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows():
    """Every case but the one in which another process held the GPU, as it is judged."""
    benchmark = _benchmark()
    catalog, coefficients = Catalog.load(site=None), load_startup()
    text = (ROOT / "tests" / "fixtures" / "launch_outcomes.yaml").read_text()
    return [
        benchmark.judged(case, catalog, coefficients)
        for case in yaml.safe_load(text)
        if case["id"] != benchmark.NOT_KNOWABLE
    ]


def ids(rows, **wanted):
    return {row.case["id"] for row in rows if wanted.items() <= row.case.items()}


def test_no_failure_is_called_a_start_and_no_start_a_failure(rows):
    started = {row.case["id"] for row in rows if row.verdict is Starts.STARTS}
    failed = {row.case["id"] for row in rows if row.verdict is Starts.FAILS}
    assert started == {"C01", "C04", "C07", "C08"}
    assert not failed & ids(rows, outcome="works")


def test_failures_that_rows_leave_open_stay_open_and_no_others(rows):
    unsure = {row.case["id"] for row in rows if row.verdict is Starts.UNSURE}
    assert unsure & ids(rows, outcome="works") == {"C03", "C05", "C09"}
    # the version is not known, or the memory outside the budget decides, or the margin is too small
    open_failures = {"F06", "F09", "F10", "F11", "F16", "F18", "F19", "F20", "F32", "F42", "F43"}
    assert unsure & ids(rows, outcome="fail") == open_failures


def test_failures_are_answered_for_the_right_reason(rows):
    wrong = {row.case["id"] for row in rows if not row.right} & ids(rows, outcome="fail")
    # of F32 only the card's capability is known
    assert wrong == {"F32"}


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("F01", "--tensor-parallel-size 4 on 4 GPUs"),
        ("F09", "--max-model-len"),
        ("F10", "--max-model-len"),
        ("F11", "--gpu-memory-utilization 0.95"),
        ("F15", "--max-model-len 6144"),
        ("F19", "--gpu-memory-utilization 0.95"),
        ("F24", "--tensor-parallel-size 4"),
        ("F35", "--dtype half"),
        ("F40", "--tensor-parallel-size 2"),
        ("F42", "--tensor-parallel-size 2"),
        ("F43", "--max-model-len 8192"),
        ("F46", "GPUs of the job: 4"),
    ],
)
def test_the_change_that_the_maintainers_advised_is_offered(rows, case, change):
    (row,) = (row for row in rows if row.case["id"] == case)
    assert any(offered.startswith(change) for offered in row.changes), row.changes


def test_the_kv_of_a_model_that_no_fit_has_seen_is_inside_a_narrow_interval(capsys):
    _benchmark().print_left_out(Catalog.load(site=None), load_startup())
    printed = capsys.readouterr().out
    assert "kv inside its interval (of 5)                    5   bar >= 4   met" in printed
    assert "intervals of at most 6 GiB                        5   bar = 5   met" in printed
