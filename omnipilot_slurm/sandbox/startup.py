"""The order in which a sandbox's daemons come up and go down.

In: what the sandbox is to be, and how to run a Slurm command in it. Out: running daemons, or none.
Called by Sandbox. A daemon that runs is left alone, so both ways may be repeated.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import SandboxError, SlurmError
from omnipilot_slurm.sandbox import accounting, daemons, pilot
from omnipilot_slurm.sandbox.daemons import Daemon
from omnipilot_slurm.sandbox.machine import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.sandbox.conf import Site
    from omnipilot_slurm.sandbox.folders import Folders
    from omnipilot_slurm.sandbox.pilot import Pilot

    #: runs a Slurm command and returns what it printed; raises SlurmError
    Run = Callable[..., str]

_PATIENCE_S = 20.0
_POLL_S = 0.05


def start_all(site: Site, run: Run) -> None:
    """Start what does not run, each daemon when the one it needs answers.

    Raises: SandboxError when one does not come up.
    """
    folders = site.folders
    _ensure(folders, "munged", partial(_start_munged, site))
    if site.accounting:
        _ensure(folders, "mariadbd", partial(accounting.start_database, site))
        answers = partial(_answers, run, "sacctmgr", "-n", "list", "cluster")
        _ensure(folders, "slurmdbd", partial(accounting.start_slurmdbd, site, answers))
        accounting.add_accounts(run)
    _ensure(folders, "slurmctld", partial(start_slurmctld, folders, run))
    for node in site.nodes:
        _ensure(folders, f"slurmd-{node.name}", partial(_start_slurmd, folders, node.name))
    _wait_for_nodes(site, run)


def start_pilot(site: Site, settings: Pilot) -> None:
    """Start omnipilotd, unless its command is ()."""
    if settings.daemon_command != ():
        _ensure(site.folders, pilot.NAME, partial(pilot.start, site, settings))


def start_slurmctld(folders: Folders, run: Run) -> None:
    """Start slurmctld and wait until it answers.

    Raises: SandboxError, with the end of its log, when it does not.
    """
    argv = (program("slurmctld"), "-D", "-f", str(folders.slurm_conf))
    daemons.start(Daemon(name="slurmctld", argv=argv), folders)
    log = folders.log / "slurmctld.log"
    answers = partial(_answers, run, "scontrol", "ping")
    daemons.wait_until(answers, folders, "slurmctld", timeout_s=_PATIENCE_S, log=log)


def stop_slurm(folders: Folders) -> None:
    """Stop the slurmd and slurmctld; munge and accounting stay."""
    names = daemons.started(folders)
    for name in (*(name for name in names if name.startswith("slurmd-")), "slurmctld"):
        daemons.stop(folders, name)


def stop_accounting(folders: Folders) -> None:
    """Stop slurmdbd, then its database."""
    for name in ("slurmdbd", "mariadbd"):
        daemons.stop(folders, name)


def _ensure(folders: Folders, name: str, start: Callable[[], None]) -> None:
    if daemons.find(folders, name) is None:
        start()


def _start_munged(site: Site) -> None:
    folders = site.folders
    folders.munge_socket.unlink(missing_ok=True)
    argv = (
        program("munged"),
        "--foreground",
        # the folders above need not belong to munge
        "--force",
        "--num-threads=4",
        f"--socket={folders.munge_socket}",
        f"--key-file={folders.munge}/munge.key",
        f"--log-file={folders.munge}/munged.log",
        f"--pid-file={folders.munge}/munged.pid",
        f"--seed-file={folders.munge}/munged.seed",
    )
    daemons.start(Daemon(name="munged", argv=argv), folders)
    daemons.wait_until(
        folders.munge_socket.exists,
        folders,
        "munged",
        timeout_s=_PATIENCE_S,
        log=folders.munge / "munged.log",
    )


def _start_slurmd(folders: Folders, node: str) -> None:
    argv = (program("slurmd"), "-D", "-N", node, "-f", str(folders.slurm_conf))
    daemons.start(Daemon(name=f"slurmd-{node}", argv=argv), folders)


def _answers(run: Run, *words: str) -> bool:
    try:
        run(*words)
    except SlurmError:
        return False
    return True


def _wait_for_nodes(site: Site, run: Run) -> None:
    """Wait until slurmctld has heard from every node.

    Raises: SandboxError naming those it has not, with the end of the first one's log.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while missing := _silent_nodes(site, run):
        if time.monotonic() > deadline:
            log = site.folders.log / f"slurmd-{missing[0]}.log"
            raise SandboxError(
                f"nodes {', '.join(missing)} did not register within {_PATIENCE_S:g} s:"
                f" {daemons.log_tail(log)}"
            )
        time.sleep(_POLL_S)


def _silent_nodes(site: Site, run: Run) -> list[str]:
    lines = run("sinfo", "-hN", "-o", "%N %t").splitlines()
    states = dict(line.split(maxsplit=1) for line in lines)
    # the first letters of a node that answers; a node that does not has a `*` at the end
    return [
        node.name
        for node in site.nodes
        if states.get(node.name, "unk")[:3] not in ("idl", "mix", "all", "dra", "com", "res")
        or states[node.name].endswith("*")
    ]
