"""`omnipilot advise JOB.sh`: what sbatch would be answered, before sbatch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from omnipilot_slurm.cli.decision_text import shown
from omnipilot_slurm.cli.job_question import JobOptions, job_options, job_question
from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.records import Starts, Verdict

if TYPE_CHECKING:
    from omnipilot_slurm.decide.decision import Decision

_REFUSED, _UNSURE = 3, 4


@click.command()
@job_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def advise(*, as_one_json: bool, **options: Any) -> int:
    """Say what JOB would be answered at sbatch: start, fail, move, and what it would deliver.

    ARGS behind `--` are the arguments that sbatch would pass to the script. The answer is the one
    that enforce mode gives, whatever the site's own mode is.
    """
    with job_question(JobOptions(**options)) as question:
        decision = question.decided()
    record = as_json(decision)
    if as_one_json:
        click.echo(json.dumps(record | {"mode": str(question.mode)}, ensure_ascii=False))
    else:
        click.echo(f"cluster: {question.cluster}; mode there: {question.mode}", err=True)
        click.echo(shown(record, question.script), nl=False)
    return _exit_code(decision)


def _exit_code(decision: Decision) -> int:
    finding = decision.finding
    if finding.verdict is Verdict.REJECT:
        return _REFUSED
    asked = finding.asked
    if finding.verdict is Verdict.ABSTAIN or (asked and asked.starts is Starts.UNSURE):
        return _UNSURE
    return _REFUSED if asked and asked.starts is Starts.FAILS else 0
