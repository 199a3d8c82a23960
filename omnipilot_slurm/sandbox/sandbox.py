"""A throwaway Slurm on one machine: munge, slurmctld, a slurmd for each node, and accounting.

In: a folder, and what the Slurm is to be. Out: a Slurm that runs jobs, until down(). Everything
lies below the folder; several run side by side. Called by `omnipilot sandbox` and by tests:

    sandbox = Sandbox("/tmp/slurm-1")
    sandbox.up()
    answer = sandbox.submit(["--gres=gpu:1"], script=text)
    sandbox.wait(answer.job_id)
    sandbox.down()
"""

from __future__ import annotations

import fcntl
import json
import platform
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster import runner
from omnipilot_slurm.errors import SandboxError, SlurmError
from omnipilot_slurm.sandbox import accounting as books
from omnipilot_slurm.sandbox import daemons, jobs, machine, startup
from omnipilot_slurm.sandbox import pilot as pilots
from omnipilot_slurm.sandbox.conf import Ports, Site
from omnipilot_slurm.sandbox.daemons import SYSTEM_PATH
from omnipilot_slurm.sandbox.folders import Folders, check_folder
from omnipilot_slurm.sandbox.install import install, open_to_others
from omnipilot_slurm.sandbox.nodes import DEFAULT_NODES
from omnipilot_slurm.sandbox.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnipilot_slurm.sandbox.jobs import Job, Submitted, VllmStart
    from omnipilot_slurm.sandbox.nodes import Node
    from omnipilot_slurm.sandbox.pilot import Pilot

_COMMAND_S, _JOBS_END_S = 60.0, 8.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """One process of a sandbox; `pid` is None when it does not run."""

    name: str
    pid: int | None


class Sandbox:
    """One throwaway Slurm, known by its folder."""

    def __init__(
        self,
        folder: str | Path,
        *,
        port_base: int | None = None,
        accounting: bool | None = None,
        plugin: Path | None = None,
        pilot: Pilot | None = None,
        extra_conf: Sequence[str] = (),
        nodes: Sequence[Node] = DEFAULT_NODES,
    ) -> None:
        """Describe a sandbox; nothing is touched before up().

        `port_base` None finds free ports, `accounting` None means when it is installed, `plugin`
        is a folder with job_submit.lua (its *.lua go beside slurm.conf), `pilot` installs OmniPilot
        and runs omnipilotd instead, `extra_conf` are lines that end slurm.conf.
        """
        self.folders = Folders(Path(folder).absolute())
        self.port_base = port_base
        self.accounting = accounting
        self.plugin = plugin
        self.pilot = pilot
        self.extra_conf = tuple(extra_conf)
        self.nodes = tuple(nodes)

    def up(self) -> float:
        """Bring every daemon up that is not, and return how long that took, in seconds.

        A daemon that runs is left alone, unless the configuration changed: then Slurm starts anew.
        Raises: SandboxError when it cannot be brought up; what was started is left for down().
        """
        began = time.monotonic()
        machine.check_root()
        check_folder(self.folders.root)
        with self._locked():
            self._bring_up()
        return time.monotonic() - began

    def down(self) -> None:
        """Cancel the jobs and stop every process that was started here, and no other."""
        machine.check_root()
        if not self.folders.running.is_dir():
            return
        with self._locked():
            if daemons.find(self.folders, "slurmctld") is not None:
                self._end_jobs()
            daemons.stop(self.folders, pilots.NAME)
            startup.stop_slurm(self.folders)
            startup.stop_accounting(self.folders)
            daemons.stop(self.folders, "munged")
            daemons.kill_marked(self.folders)

    def status(self) -> tuple[DaemonStatus, ...]:
        """Return every daemon that was started, with its process id if it runs."""
        return tuple(
            DaemonStatus(name=name, pid=daemons.find(self.folders, name))
            for name in daemons.started(self.folders)
        )

    def env(self) -> dict[str, str]:
        """Return what a Slurm command needs in its environment to speak with this sandbox."""
        return {"SLURM_CONF": str(self.folders.slurm_conf)}

    def run(self, *words: str, timeout_s: float = _COMMAND_S) -> str:
        """Run a Slurm command as root and return what it printed.

        Raises: SlurmError when it fails or does not come back.
        """
        environment = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **self.env()}
        argv = [machine.program(words[0]), *words[1:]]
        return runner.ask(argv, env=environment, timeout_s=timeout_s)

    def submit(
        self,
        args: Sequence[str] = (),
        *,
        script: str | bytes | None = None,
        script_args: Sequence[str] = (),
        user: str = "nobody",
        env: Mapping[str, str] | None = None,
        timeout_s: float = _COMMAND_S,
    ) -> Submitted:
        """Run `sbatch ARGS SCRIPT SCRIPT_ARGS` as a user; without `script`, `args` name one.

        Raises: SandboxError when there is no such user, SlurmError when sbatch does not come back.
        """
        return jobs.submit(
            self.folders,
            args,
            user=user,
            script=script,
            script_args=script_args,
            env=env or {},
            timeout_s=timeout_s,
        )

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs that slurmctld remembers (ended ones for five minutes)."""
        return jobs.parse_jobs(self.run("scontrol", "show", "job", "-o"))

    def job(self, job_id: int | None) -> Job:
        """Return one job.

        Raises: SlurmError when slurmctld does not know it.
        """
        return jobs.parse_jobs(self.run("scontrol", "show", "job", "-o", str(job_id)))[0]

    def wait(self, job_id: int | None, *, timeout_s: float = 30.0) -> Job:
        """Wait until a job has ended and return it.

        Raises: SandboxError when it has not after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not (job := self.job(job_id)).has_ended:
            if time.monotonic() > deadline:
                reason = job.fields.get("Reason")
                raise SandboxError(
                    f"job {job_id} must end within {timeout_s:g} s, is {job.state} ({reason})"
                )
            time.sleep(_POLL_S)
        return job

    def records(self, job_id: int | None = None) -> tuple[VllmStart, ...]:
        """Return what the stand-in `vllm` noted, of one job or of all, oldest first."""
        records = jobs.read_records(self.folders)
        return tuple(record for record in records if job_id in (None, record.job_id))

    def log(self, name: str = "slurmctld") -> str:
        """Return the log of a daemon as text."""
        return (self.folders.log / f"{name}.log").read_text(errors="replace")

    def restart_ctld(self) -> None:
        """Stop slurmctld and start it again, with the files of etc/ as they now are.

        Raises: SandboxError, with the end of its log, when it does not start.
        """
        daemons.stop(self.folders, "slurmctld")
        startup.start_slurmctld(self.folders, self.run)

    @property
    def pilot_socket(self) -> Path:
        """Where the shim asks: omnipilotd's socket, or a test's own."""
        return pilots.socket_path(self.folders)

    def stop_omnipilotd(self) -> None:
        """Stop omnipilotd alone."""
        daemons.stop(self.folders, pilots.NAME)

    def start_omnipilotd(self) -> None:
        """Start omnipilotd again, with the files as they now are.

        Raises: SandboxError, with the end of its log, when it does not start.
        """
        base = self._kept_port_base()
        if self.pilot is None or base is None:
            raise SandboxError("the sandbox must have come up with a pilot, has not")
        startup.start_pilot(self._site(base), self.pilot)

    def reconfigure(self) -> None:
        """Let slurmctld and the slurmd read their files again.

        Raises: SlurmError when slurmctld refuses.
        """
        self.run("scontrol", "reconfigure")

    def _bring_up(self) -> None:
        base = self._kept_port_base()
        slurm_runs = any(up.pid and up.name.startswith("slurm") for up in self.status())
        if base and slurm_runs and self.port_base in (None, base):
            self._start(base)
            return
        startup.stop_slurm(self.folders)
        startup.stop_accounting(self.folders)
        n_ports, fixed = 2 + len(self.nodes), self.port_base is not None
        wanted = self.port_base or base
        with free_ports(self.folders.root, n_ports, wanted=wanted, fixed=fixed) as free:
            self.folders.settings.write_text(json.dumps({"port_base": free}))
            self._start(free)

    def _start(self, port_base: int) -> None:
        site = self._site(port_base)
        is_changed = install(site, self.plugin, self.pilot)
        if is_changed:
            startup.stop_slurm(self.folders)
        if is_changed or self.pilot is None:
            daemons.stop(self.folders, pilots.NAME)
        if not site.accounting:
            startup.stop_accounting(self.folders)
        startup.start_all(site, self.run)
        if self.pilot is not None:
            startup.start_pilot(site, self.pilot)

    def _site(self, port_base: int) -> Site:
        use_books = books.is_installed() if self.accounting is None else self.accounting
        if use_books and not books.is_installed():
            raise SandboxError(
                "accounting must have slurmdbd and mariadb, which are not installed",
                hint="apt-get install slurmdbd slurm-wlm-mysql-plugin mariadb-server",
            )
        return Site(
            folders=self.folders,
            nodes=self.nodes,
            ports=Ports(base=port_base),
            host=platform.node().partition(".")[0],
            slurm_user=machine.slurm_user(),
            slurm_version=machine.slurm_version(),
            accounting=use_books,
            lua=self.plugin is not None or self.pilot is not None,
            extra_conf=self.extra_conf,
        )

    def _kept_port_base(self) -> int | None:
        try:
            base = json.loads(self.folders.settings.read_text())["port_base"]
        except FileNotFoundError:
            return None
        assert isinstance(base, int)
        return base

    def _end_jobs(self) -> None:
        """Cancel all jobs and give them a moment to end; down() ends the rest."""
        deadline = time.monotonic() + _JOBS_END_S
        try:
            # what waits first, or it would start in the place of what runs
            for state in ("PENDING", "RUNNING", "SUSPENDED"):
                self.run("scancel", f"--state={state}")
            while self.run("squeue", "-h", "-o", "%A") and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        except SlurmError:
            # slurmctld does not answer: nothing can be cancelled
            return

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one up() or down() of this folder wait for another."""
        with open_to_others():
            self.folders.root.mkdir(parents=True, exist_ok=True)
        with (self.folders.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
