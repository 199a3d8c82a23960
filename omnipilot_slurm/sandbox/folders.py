"""Where everything of one throwaway Slurm lies: fixed names below one folder.

In: the folder. Out: paths. Called by every module of the sandbox; nothing is written elsewhere.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from omnipilot_slurm.errors import SandboxError

#: Linux refuses Unix socket paths of 108 bytes and more; the longest below the folder is slurmd's
#: for a step of a job
_SOCKET_PATH_MAX, _LONGEST_SOCKET = 107, "state/spool/a100n1/a100n1_99999999.4294967294"

#: root's own home is closed to the accounts that jobs run as, so the default lies where it is not
DEFAULT_FOLDER = Path("/var/cache/omnipilot/sandbox")


def default_folder() -> Path:
    """Return $OMNIPILOT_SANDBOX, else the folder that the command line uses."""
    return Path(os.environ.get("OMNIPILOT_SANDBOX") or DEFAULT_FOLDER)


@dataclass(frozen=True, slots=True)
class Folders:
    """The places below `root`, which is absolute."""

    root: Path

    @property
    def etc(self) -> Path:
        """slurm.conf and its neighbours, job_submit.lua among them."""
        return self.root / "etc"

    @property
    def log(self) -> Path:
        """One log for each daemon."""
        return self.root / "log"

    @property
    def running(self) -> Path:
        """One record for each process that was started."""
        return self.root / "running"

    @property
    def state(self) -> Path:
        """What slurmctld and the slurmd keep."""
        return self.root / "state"

    @property
    def munge(self) -> Path:
        """The key, socket and log of munged."""
        return self.root / "munge"

    @property
    def mysql(self) -> Path:
        """The data and socket of mariadb."""
        return self.root / "mysql"

    @property
    def devices(self) -> Path:
        """The character devices that stand in for GPUs, one folder for each node."""
        return self.root / "dev"

    @property
    def bin(self) -> Path:
        """What comes first on the PATH of every job: the stand-in `vllm`, and `python`."""
        return self.root / "bin"

    @property
    def python(self) -> Path:
        """What comes first on the PYTHONPATH of every job."""
        return self.root / "python"

    @property
    def records(self) -> Path:
        """What the stand-in `vllm` wrote, one file for each process."""
        return self.root / "records"

    @property
    def scratch(self) -> Path:
        """A home and working folder for each user who submits."""
        return self.root / "scratch"

    @property
    def pilot(self) -> Path:
        """The omnipilot.yaml of omnipilotd, and its socket, store and published files."""
        return self.root / "omnipilot"

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where munged listens."""
        return self.munge / "munge.sock"

    @property
    def mysql_socket(self) -> Path:
        """Where mariadbd listens; it has no port."""
        return self.mysql / "mariadb.sock"

    @property
    def settings(self) -> Path:
        """What `up` was told, for the commands that follow."""
        return self.root / "sandbox.json"


def check_folder(root: Path) -> None:
    """Refuse a folder that Slurm cannot work in.

    Raises: SandboxError when a socket's path would be too long, when other accounts (SlurmUser,
    the users who submit) cannot reach the folder, or when it is another account's: root would
    follow the links that it holds.
    """
    longest = root / _LONGEST_SOCKET
    if len(os.fsencode(longest)) > _SOCKET_PATH_MAX:
        room = _SOCKET_PATH_MAX - len(_LONGEST_SOCKET) - 1
        raise SandboxError(
            f"sandbox folder must be at most {room} bytes long, was {str(root)!r}",
            hint="a Unix socket's path has at most 107 bytes; choose a shorter folder",
        )
    parent = closed_parent(root)
    if parent is not None:
        raise SandboxError(
            f"sandbox folder must be reachable by every account, was {str(root)!r} "
            f"behind {str(parent)!r}, which is closed to others",
            hint=f"choose a folder below {DEFAULT_FOLDER.parent}, or /tmp",
        )
    if root.is_symlink() or (root.exists() and root.stat().st_uid != os.geteuid()):
        raise SandboxError(
            f"sandbox folder must be a folder of root's own, was {str(root)!r}",
            hint="remove it, or choose another folder",
        )


def closed_parent(path: Path) -> Path | None:
    """Return a folder above `path` that other accounts may not enter, None when there is none."""
    for parent in path.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None
