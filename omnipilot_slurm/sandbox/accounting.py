"""The accounting of a sandbox: mariadb, slurmdbd, and one account with two users.

In: what the sandbox is to be. Out: two running daemons. Called by Sandbox.up when the programs are
installed. mariadb listens on a socket below the sandbox's folder only and tells SlurmUser by its
Unix account, so there is neither a port nor a password.
"""

from __future__ import annotations

import pwd
import shutil
import socket
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster import runner
from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.sandbox import daemons
from omnipilot_slurm.sandbox.conf import CLUSTER_NAME, DATABASE
from omnipilot_slurm.sandbox.daemons import Daemon
from omnipilot_slurm.sandbox.machine import find_program, program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnipilot_slurm.sandbox.conf import Site

#: the account that jobs are charged to, and who may use it
ACCOUNT, USERS = "llm", ("nobody", "daemon")
_START_S = 60.0


def is_installed() -> bool:
    """Return whether this machine has slurmdbd and mariadb."""
    return all(map(find_program, ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")))


def start_database(site: Site) -> None:
    """Start mariadb, with an empty database the first time.

    Raises: SandboxError when it does not come up.
    """
    folders = site.folders
    owner = _database_owner()
    data = folders.mysql / "data"
    if not (data / "mysql").is_dir():
        _create_data(data, owner, folders.log / "mariadb-install.log")
    argv = (
        program("mariadbd"),
        "--no-defaults",
        f"--user={owner}",
        f"--datadir={data}",
        f"--socket={folders.mysql_socket}",
        f"--pid-file={folders.mysql}/mariadbd.pid",
        "--skip-networking",
        "--skip-log-bin",
        # what is in it is thrown away: no need to wait for the disk
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=128M",
        "--innodb-log-file-size=32M",
        "--innodb-lock-wait-timeout=900",
    )
    daemons.start(Daemon(name="mariadbd", argv=argv), folders)
    daemons.wait_until(
        lambda: _listens(folders.mysql_socket), folders, "mariadbd", timeout_s=_START_S, log=None
    )
    _allow(site)


def start_slurmdbd(site: Site, answers: Callable[[], bool]) -> None:
    """Start slurmdbd and wait until it `answers`.

    Raises: SandboxError when it does not.
    """
    daemon = Daemon(
        name="slurmdbd",
        argv=(program("slurmdbd"), "-D"),
        # slurmdbd's client library takes the socket from here
        environment={"MYSQL_UNIX_PORT": str(site.folders.mysql_socket)},
    )
    daemons.start(daemon, site.folders)
    log = site.folders.log / "slurmdbd.log"
    daemons.wait_until(answers, site.folders, "slurmdbd", timeout_s=_START_S, log=log)


def add_accounts(run: Callable[..., str]) -> None:
    """Add the cluster, the account and its users; `run` runs a Slurm command."""
    known = run("sacctmgr", "-nP", "list", "associations", "format=cluster,account,user")
    if f"{CLUSTER_NAME}|{ACCOUNT}|{USERS[-1]}" in known.splitlines():
        return
    if CLUSTER_NAME not in run("sacctmgr", "-nP", "list", "cluster", "format=cluster").split():
        run("sacctmgr", "-i", "add", "cluster", CLUSTER_NAME)
    run("sacctmgr", "-i", "add", "account", ACCOUNT, f"cluster={CLUSTER_NAME}")
    users = ",".join(USERS)
    run("sacctmgr", "-i", "add", "user", users, f"account={ACCOUNT}", f"cluster={CLUSTER_NAME}")


def _create_data(data: Path, owner: str, log: Path) -> None:
    data.mkdir(exist_ok=True)
    shutil.chown(data, owner)
    shutil.chown(data.parent, owner)
    argv = [
        program("mariadb-install-db"),
        "--no-defaults",
        f"--user={owner}",
        f"--datadir={data}",
        "--auth-root-authentication-method=socket",
        "--skip-test-db",
    ]
    done = runner.finish(argv)
    log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise SandboxError(f"mariadb-install-db failed: {daemons.log_tail(log)}")


def _allow(site: Site) -> None:
    """Let SlurmUser's Unix account use the database."""
    account = f"'{site.slurm_user}'@localhost"
    statements = (
        f"create database if not exists {DATABASE};"
        f"create user if not exists {account} identified via unix_socket;"
        f"grant all on {DATABASE}.* to {account};"
    )
    socket_option = f"--socket={site.folders.mysql_socket}"
    argv = [program("mariadb"), "--no-defaults", "-uroot", socket_option, "-e", statements]
    done = runner.finish(argv)
    if done.returncode != 0:
        raise SandboxError(f"mariadb refused slurmdbd's account: {done.stderr.strip()}")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _database_owner() -> str:
    try:
        return pwd.getpwnam("mysql").pw_name
    except KeyError:
        return "root"
