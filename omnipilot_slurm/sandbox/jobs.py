"""Jobs of a sandbox: submit one as a user would, and see what became of it.

In: sbatch's arguments and a script, or the text that Slurm prints. Out: records. Called by Sandbox.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster import runner
from omnipilot_slurm.cluster.runner import Account
from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox.daemons import SYSTEM_PATH
from omnipilot_slurm.sandbox.machine import program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.sandbox.folders import Folders

_JOB_ID = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;.*)?$", re.MULTILINE)
#: `scontrol show job -o` prints one job a line, key=value, and values hold blanks
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/_]*)=")
#: states that a job does not leave
ENDED = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What one sbatch answered; `job_id` is None when it was refused."""

    job_id: int | None
    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as slurmctld shows it; `fields` are all that `scontrol show job` prints."""

    job_id: int
    state: str
    partition: str
    fields: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        """Return whether its state is final."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmStart:
    """One start of the stand-in `vllm` in a job.

    `argv` begins with `vllm` or the module that `python -m` ran; `slurm` holds every SLURM_*
    variable; `node` is Slurm's name of it, `host` the machine's.
    """

    argv: tuple[str, ...]
    cuda_visible_devices: str | None
    slurm: Mapping[str, str]
    job_id: int
    step_id: str | None
    node: str | None
    host: str
    user: str
    started_unix_s: float


def submit(
    folders: Folders,
    args: Sequence[str],
    *,
    user: str,
    script: str | bytes | None,
    script_args: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
) -> Submitted:
    """Run sbatch as `user` in a scratch folder of that user; root's jobs are not looked at.

    Raises: SandboxError when there is no such account, SlurmError when sbatch does not come back.
    """
    entry = _look_up(user)
    home = _home(folders, entry)
    with tempfile.TemporaryDirectory(dir=folders.scratch, prefix="submit-") as name:
        words = [program("sbatch"), *args]
        if script is not None:
            words += [str(_write_script(Path(name), script)), *script_args]
        done = runner.finish(
            words,
            env={**user_environment(folders, entry, home), **env},
            cwd=home,
            account=_account(entry),
            timeout_s=timeout_s,
        )
    found = _JOB_ID.search(done.stdout)
    return Submitted(
        job_id=int(found[1]) if found and done.returncode == 0 else None,
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
    )


def user_environment(folders: Folders, entry: pwd.struct_passwd, home: Path) -> dict[str, str]:
    """Return what a login of that user has, so that nothing of the caller's environment leaks."""
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(home),
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(folders.slurm_conf),
    }


def parse_jobs(text: str) -> tuple[Job, ...]:
    """Read `scontrol show job -o`; of a key that free text repeats, the first counts."""
    return tuple(_parse_job(line) for line in text.splitlines() if line.startswith("JobId="))


def read_records(folders: Folders) -> tuple[VllmStart, ...]:
    """Read what the stand-in `vllm` wrote, oldest first."""
    starts = []
    for path in folders.records.glob("*.json"):
        record = json.loads(path.read_text())
        record["argv"] = tuple(record["argv"])
        starts.append(VllmStart(**record))
    return tuple(sorted(starts, key=lambda start: start.started_unix_s))


def _parse_job(line: str) -> Job:
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    fields: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        fields.setdefault(mark[1], line[mark.end() : end])
    return Job(
        job_id=int(fields["JobId"]),
        state=fields["JobState"],
        partition=fields["Partition"],
        fields=fields,
    )


def _look_up(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as error:
        raise SandboxError(
            f"user must be an account of this machine, was {user!r}",
            hint="`--user nobody` exists everywhere",
        ) from error


def _home(folders: Folders, entry: pwd.struct_passwd) -> Path:
    home = folders.scratch / entry.pw_name
    if not home.exists():
        home.mkdir()
        home.chmod(0o755)
        os.chown(home, entry.pw_uid, entry.pw_gid)
    return home


def _write_script(folder: Path, script: str | bytes) -> Path:
    folder.chmod(0o755)
    path = folder / "job.sh"
    path.write_bytes(script.encode() if isinstance(script, str) else script)
    path.chmod(0o644)
    return path


def _account(entry: pwd.struct_passwd) -> Account:
    groups = (group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, groups=tuple(groups))
