"""Read a script as `omnipilot detect` does, and show where its edit stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnipilot_slurm.script import directives, serving, tres
from omnipilot_slurm.script.detected import detected

if TYPE_CHECKING:
    from omnipilot_slurm.records import Submission

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\n"
_AROUND = 12


def submitted(script: str | bytes, *, args: tuple[str, ...] = (), **env: str) -> Submission:
    data = script.encode() if isinstance(script, str) else script
    return directives.submission_of(data, args=args, environment=env)[0]


def read(body: str, *, args: tuple[str, ...] = (), head: str = HEAD, **env: str) -> dict[str, Any]:
    """Return what detect prints, and `at`: the text around the edit with the old value in bars."""
    script = (head + body + "\n").encode()
    submission, form = directives.submission_of(script, args=args, environment=env)
    request = tres.request_of(submission, node_form=form)
    found = detected(serving.find(submission, request), script, request)
    edit = found["edit"]
    if edit is not None:
        start, end = edit["byte_start"], edit["byte_end"]
        assert script[start:end].decode("utf-8", "surrogateescape") == edit["old"]
        before, after = script[:start].decode()[-_AROUND:], script[end:].decode()[:_AROUND]
        found["at"] = f"{before}|{edit['old']}|{after}"
    return found


def expect(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare the keys that are wanted."""
    assert {key: found.get(key) for key in wanted} == wanted, found
