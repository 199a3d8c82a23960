"""The one place that runs a command and reads what it printed.

In: words, an environment, a deadline. Out: text, or an error that says which command failed and
how. Called by cluster, sandbox and store; never from a decision.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PATIENCE_S = 60.0
#: how much of a command's complaint an error repeats
_SHOWN = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a command runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a command left; bytes that are not UTF-8 are replaced."""

    returncode: int
    stdout: str
    stderr: str


def finish(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    timeout_s: float = _PATIENCE_S,
) -> Finished:
    """Run a command to its end, whatever it answers; `env` None is this process's own.

    Raises: SlurmError when it cannot be started or does not come back.
    """
    try:
        done = subprocess.run(  # noqa: S603 a list of words, no shell
            [*words],
            env=None if env is None else {**env},
            cwd=cwd,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=account.groups if account else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise SlurmError(
            f"{words[0]} must be a program that can be started, was refused: {error.strerror}",
            hint="install Slurm's client commands, or put them on the PATH",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(
            f"`{' '.join(words)}` must come back within {timeout_s:g} s, did not",
            hint="is slurmctld up? `scontrol ping` tells",
        ) from error
    return Finished(
        returncode=done.returncode,
        stdout=done.stdout.decode(errors="replace"),
        stderr=done.stderr.decode(errors="replace"),
    )


def ask(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = _PATIENCE_S
) -> str:
    """Run a command and return what it printed.

    Raises: SlurmError when it fails, cannot be started or does not come back.
    """
    done = finish(words, env=env, timeout_s=timeout_s)
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip()[:_SHOWN]
        raise SlurmError(
            f"`{' '.join(words)}` failed with exit code {done.returncode}: {complaint}"
        )
    return done.stdout
