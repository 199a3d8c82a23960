"""The processes of a sandbox: start one, find it again, stop it, and never touch another's.

In: what to run. Out: process ids. Called by Sandbox and accounting.py. What was started is
recorded as a process id, its start time and its command line; a process is ours only if all three
agree, since ids are used again. A zombie is dead: under a slow pid 1 it lingers for seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox.conf import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from omnipilot_slurm.cluster.runner import Account
    from omnipilot_slurm.sandbox.folders import Folders

#: the shell goes away at once and leaves the daemon to pid 1, in a session of its own
_LAUNCH = 'setsid "$@" >&2 </dev/null & echo $!'
#: what a daemon or a user's command finds programs on, whatever the caller's own PATH is
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_POLL_S, _EXEC_POLL_S = 0.02, 0.001
#: zombie, dead
_DEAD_STATES = "ZX"
_DEAD = ("X", -1)
_STOP_S = 10.0
_LOG_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One program that stays in the foreground; `environment` is added to a minimal one.

    It runs as root, and drops to another account by itself, unless `account` is given.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None


def start(daemon: Daemon, folders: Folders) -> None:
    """Start a daemon and record it; its output goes to log/<name>.out."""
    environment = {
        "PATH": SYSTEM_PATH,
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(folders.slurm_conf),
        MARK: str(folders.root),
        **daemon.environment,
    }
    with _out_path(folders, daemon.name).open("wb") as out:
        launched = subprocess.run(  # noqa: S603 the words are ours, passed as arguments
            ["/bin/sh", "-c", _LAUNCH, "sh", *daemon.argv],
            stdout=subprocess.PIPE,
            stderr=out,
            env=environment,
            cwd=folders.log,
            user=daemon.account.uid if daemon.account else None,
            group=daemon.account.gid if daemon.account else None,
            extra_groups=daemon.account.groups if daemon.account else None,
            # jobs of other users must reach what slurmd creates
            umask=0o022,
            check=True,
        )
    pid = int(launched.stdout)
    _, ticks = _status(pid) or _DEAD
    record = {"pid": pid, "start_ticks": ticks, "argv": daemon.argv}
    _record_path(folders, daemon.name).write_text(json.dumps(record))
    # until the shell's child has become the daemon, its command line is not the recorded one
    while (_status(pid) or _DEAD)[0] not in _DEAD_STATES and _command_line(pid) != [*daemon.argv]:
        time.sleep(_EXEC_POLL_S)


def find(folders: Folders, name: str) -> int | None:
    """Return the process id of a daemon that was started and still runs, else None."""
    try:
        record = json.loads(_record_path(folders, name).read_text())
    except FileNotFoundError:
        return None
    pid: int = record["pid"]
    state, ticks = _status(pid) or _DEAD
    is_ours = ticks == record["start_ticks"] and _command_line(pid) == record["argv"]
    return pid if is_ours and state not in _DEAD_STATES else None


def stop(folders: Folders, name: str) -> None:
    """Stop a daemon if it runs: SIGTERM, and SIGKILL when it has not gone after 10 s."""
    pid = find(folders, name)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        if not gone(folders, name, timeout_s=_STOP_S):
            os.kill(pid, signal.SIGKILL)
            gone(folders, name, timeout_s=_STOP_S)
    _record_path(folders, name).unlink(missing_ok=True)


def gone(folders: Folders, name: str, *, timeout_s: float) -> bool:
    """Wait until a daemon does not run any more; False when it still does."""
    deadline = time.monotonic() + timeout_s
    while find(folders, name) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def started(folders: Folders) -> tuple[str, ...]:
    """Return the names of all daemons that were started and not stopped, dead ones included."""
    return tuple(sorted(path.stem for path in folders.running.glob("*.json")))


def wait_until(
    ready: Callable[[], bool], folders: Folders, name: str, *, timeout_s: float, log: Path | None
) -> None:
    """Wait until a daemon does its work.

    Raises: SandboxError, with the end of its log, when it dies or takes longer than `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        if find(folders, name) is None:
            ending = "died while it started"
        elif time.monotonic() > deadline:
            ending = f"did not answer within {timeout_s:g} s"
        else:
            time.sleep(_POLL_S)
            continue
        tail = log_tail(log) or log_tail(_out_path(folders, name))
        raise SandboxError(f"{name} {ending}: {tail or 'it logged nothing'}")


def log_tail(log: Path | None, n_lines: int = _LOG_LINES) -> str:
    """Return the last lines of a log, "" when there is none."""
    if log is None or not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-n_lines:])


def kill_marked(folders: Folders) -> None:
    """End what the daemons left behind: steps of jobs and their processes, known by their mark."""
    for pid in list(_marked(folders)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _marked(folders: Folders) -> Iterator[int]:
    mark = f"{MARK}={folders.root}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            yield int(entry.name)


def _status(pid: int) -> tuple[str, int] | None:
    """Return a process's state letter and its start time in clock ticks since boot."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name, field 2, is in parentheses and may hold blanks and parentheses of its own
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _command_line(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]


def _record_path(folders: Folders, name: str) -> Path:
    return folders.running / f"{name}.json"


def _out_path(folders: Folders, name: str) -> Path:
    return folders.log / f"{name}.out"
