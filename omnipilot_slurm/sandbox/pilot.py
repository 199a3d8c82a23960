"""OmniPilot itself in a sandbox: the shim beside slurm.conf, omnipilotd, and their configuration.

In: how far OmniPilot may go. Out: files for etc/, and a daemon to start. Called by Sandbox. The
shipped example job_submit.lua is used as it is, with the paths of the sandbox put in.
"""

from __future__ import annotations

import grp
import json
import pwd
import socket
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster.runner import Account
from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.sandbox import daemons
from omnipilot_slurm.sandbox.daemons import Daemon
from omnipilot_slurm.sandbox.folders import closed_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.sandbox.conf import Site
    from omnipilot_slurm.sandbox.folders import Folders

NAME = "omnipilotd"
_START_S = 20.0
#: how long slurmctld waits for an answer here: a laptop or a busy build machine is no controller,
#: and whoever tries us shall see answers; the shipped 50 ms are for real ones
_DEADLINE_MS = 2000
#: what the shipped job_submit.lua says, and must keep saying, for a site's own paths to replace it
_SHIPPED_MODULE = '"/etc/slurm/omnipilot.lua"'
_SHIPPED_SOCKET = 'socket = "/run/omnipilot/omnipilotd.sock"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """How OmniPilot runs in a sandbox.

    `settings` are sections of omnipilot.yaml, laid over those of the sandbox. `daemon_command`
    None is omnipilotd; () starts none, for tests that listen on the socket themselves.
    `deadline_ms` is how long slurmctld waits for an answer.
    """

    mode: str = "enforce"
    settings: Mapping[str, object] = field(default_factory=dict)
    daemon_command: tuple[str, ...] | None = None
    deadline_ms: int = _DEADLINE_MS


def socket_path(folders: Folders) -> Path:
    """Return where omnipilotd listens and the shim asks."""
    return folders.pilot / "omnipilotd.sock"


def lua_files(site: Site, pilot: Pilot) -> dict[str, str]:
    """Return the shim's files by name, with the sandbox's paths in job_submit.lua.

    Raises: SandboxError when the shipped example is not what it was.
    """
    example = shipped_path("lua", "job_submit.lua").read_text()
    etc, listens = site.folders.etc, socket_path(site.folders)
    for shipped, ours in {
        _SHIPPED_MODULE: f'"{etc}/omnipilot.lua"',
        _SHIPPED_SOCKET: (
            f'socket = "{listens}", kill_file = "{etc}/omnipilot.off",'
            f" deadline_ms = {pilot.deadline_ms}"
        ),
    }.items():
        if shipped not in example:
            raise SandboxError(f"the shipped job_submit.lua must contain `{shipped}`, does not")
        example = example.replace(shipped, ours)
    module = shipped_path("lua", "omnipilot.lua").read_text()
    return {"job_submit.lua": example, "omnipilot.lua": module}


def omnipilot_yaml(site: Site, pilot: Pilot) -> str:
    """Return the sandbox's omnipilot.yaml; JSON is YAML that quotes every text."""
    folder = site.folders.pilot
    sections: dict[str, object] = {
        "daemon": {
            "socket": str(socket_path(site.folders)),
            # where omnipilotd runs as root, slurmctld may still connect
            "group": None if _account(site) else _group(site.slurm_user),
            "allowed_users": [site.slurm_user],
            "store": f"{folder}/omnipilot.db",
            "publish": f"{folder}/public",
        },
        "cluster": {
            "poll_s": 5,
            "gpu_map": {"gres": {node.gres_type: node.gpu for node in site.nodes}},
        },
        "policy": {"mode": pilot.mode},
    }
    for name, section in pilot.settings.items():
        below = sections.get(name)
        both = isinstance(below, dict) and isinstance(section, dict)
        sections[name] = below | section if both else section  # type: ignore[operator]  # both are
    return json.dumps({"schema": 1, **sections}, indent=2) + "\n"


def start(site: Site, pilot: Pilot) -> None:
    """Start omnipilotd and wait until it has loaded what it decides by.

    Raises: SandboxError, with the end of its log, when it does not.
    """
    command = pilot.daemon_command
    if command is None:
        config = str(site.folders.pilot)
        command = (sys.executable, "-m", "omnipilot_slurm.daemon.main", "--config", config)
    daemon = Daemon(
        name=NAME,
        argv=command,
        # a checkout that is not installed
        environment={"PYTHONPATH": str(_package().parent)},
        account=_account(site),
    )
    daemons.start(daemon, site.folders)
    listens = socket_path(site.folders)
    daemons.wait_until(lambda: _is_ready(listens), site.folders, NAME, timeout_s=_START_S, log=None)


def owner(site: Site) -> str:
    """Return the account that omnipilotd runs as.

    SlurmUser, as at a site; root where that account cannot read this package, as in a virtual
    environment below root's home.
    """
    needed = (_package() / "daemon", Path(sys.executable))
    return "root" if any(closed_parent(path) for path in needed) else site.slurm_user


def _account(site: Site) -> Account | None:
    entry = pwd.getpwnam(owner(site))
    return Account(uid=entry.pw_uid, gid=entry.pw_gid) if entry.pw_uid else None


def _group(user: str) -> str:
    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def _package() -> Path:
    return Path(str(files("omnipilot_slurm"))).resolve()


def _is_ready(listens: Path) -> bool:
    """Ask the daemon itself, which answers root."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(listens))
            connection.sendall(b'{"v":1,"op":"status"}\n')
            answer = json.loads(connection.makefile().readline() or "{}")
        except OSError:
            return False
    return bool(answer.get("status", {}).get("state", {}).get("ready"))
