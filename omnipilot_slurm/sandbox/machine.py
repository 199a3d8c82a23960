"""What a sandbox needs of the machine it runs on: root, Slurm's programs, SlurmUser.

In: nothing. Out: names and versions, or what is missing. Called by the modules of the sandbox.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil

from omnipilot_slurm.cluster import runner
from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox.daemons import SYSTEM_PATH


def check_root() -> None:
    """Refuse to go on as another user.

    Raises: SandboxError.
    """
    if os.geteuid() != 0:
        raise SandboxError(
            f"the sandbox must run as root, was started as uid {os.geteuid()}",
            hint="slurmd starts jobs for other users; try `sudo omnipilot sandbox up`",
        )


def find_program(name: str) -> str | None:
    """Return where a program is, None when it is not installed."""
    return shutil.which(name, path=SYSTEM_PATH)


def program(name: str) -> str:
    """Return where a program of Slurm is.

    Raises: SandboxError when it is not installed.
    """
    path = find_program(name)
    if path is None:
        raise SandboxError(
            f"{name} must be installed, was not found in {SYSTEM_PATH}",
            hint="apt-get install slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins",
        )
    return path


def slurm_user() -> str:
    """Return the account that slurmctld runs as: slurm where there is one."""
    try:
        return pwd.getpwnam("slurm").pw_name
    except KeyError:
        return "root"


def slurm_version() -> tuple[int, int]:
    """Return (major, minor) of the installed slurmctld.

    Raises: SandboxError when it is not installed.
    """
    answer = runner.ask([program("slurmctld"), "-V"])
    found = re.search(r"(\d+)\.(\d+)\.", answer)
    if found is None:
        raise SandboxError(f"`slurmctld -V` must print a version, was {answer!r}")
    return int(found[1]), int(found[2])
