"""The 33 acceptance cases: job.sh in, expected.yaml out, every key but `why`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from omnipilot_slurm.script import directives, serving, tres
from omnipilot_slurm.script.detected import detected

CASES = sorted((Path(__file__).parents[2] / "fixtures" / "scripts").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_read_as_expected(case: Path) -> None:
    script = (case / "job.sh").read_bytes()
    expected = yaml.safe_load((case / "expected.yaml").read_text())
    submission, form = directives.submission_of(script)
    request = tres.request_of(submission, node_form=form)
    found = detected(serving.find(submission, request), script, request)
    expected.pop("why")
    assert {key: found[key] for key in expected} == expected


def test_all_cases_are_there() -> None:
    assert len(CASES) == 33
