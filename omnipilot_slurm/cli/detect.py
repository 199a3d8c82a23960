"""`omnipilot detect JOB.sh`: what the reader sees in a batch script."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.script import detected, directives, serving, tres

#: time for reading one script; the daemon takes far less, a person can wait
_SECONDS = 2.0


@click.command()
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--env", "variables", multiple=True, metavar="K=V", help="A variable set at sbatch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def detect(job: Path, args: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> None:
    """Show which vLLM server JOB would start, on how many GPUs, and what may be edited.

    ARGS behind `--` are the arguments that sbatch would pass to the script.
    """
    script = job.read_bytes()
    submission, form = directives.submission_of(
        script, args=args, environment=parse_variables(variables)
    )
    request = tres.request_of(submission, node_form=form)
    deadline = time.monotonic() + _SECONDS
    read = serving.find(submission, request, expired=lambda: time.monotonic() > deadline)
    found = detected.detected(read, script, request)
    if as_json:
        click.echo(_printable(json.dumps(found, ensure_ascii=False)))
        return
    width = max(map(len, found))
    for name, value in found.items():
        click.echo(_printable(f"{name:<{width}}  {'-' if value is None else value}"))


def _printable(text: str) -> str:
    """Return text with the bytes of a script that are not UTF-8 replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def parse_variables(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of `--env K=V` options; raises UsageError for another form."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--env must be NAME=VALUE, was {pair!r}")
        found[name] = value
    return found
