"""The files that Slurm reads, as text: slurm.conf, gres.conf, cgroup.conf, slurmdbd.conf.

In: what the sandbox is to be. Out: text; nothing is read or written here. Called by Sandbox.
Each setting that is not obvious says why it is there.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.sandbox.folders import Folders
    from omnipilot_slurm.sandbox.nodes import Node

CLUSTER_NAME = "sandbox"
#: environment variable that marks every process of a sandbox, its jobs included
MARK = "OMNIPILOT_SANDBOX_PROCESS"
#: the database and its user's name; the user is told by its Unix account, so there is no password
DATABASE = "slurm_acct_db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The TCP ports of one sandbox: consecutive, from `base`."""

    base: int

    @property
    def slurmctld(self) -> int:
        """Return slurmctld's port."""
        return self.base

    @property
    def slurmdbd(self) -> int:
        """Return slurmdbd's port."""
        return self.base + 1

    def slurmd(self, index: int) -> int:
        """Return the port of the node of that index."""
        return self.base + 2 + index


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a sandbox is to be; `slurm_version` is (major, minor), `host` this machine's name."""

    folders: Folders
    nodes: tuple[Node, ...]
    ports: Ports
    host: str
    slurm_user: str
    slurm_version: tuple[int, int]
    accounting: bool
    lua: bool
    extra_conf: tuple[str, ...]

    @property
    def gres_types(self) -> tuple[str, ...]:
        """Return the GPU types, each once, in the order of the nodes."""
        return tuple(dict.fromkeys(node.gres_type for node in self.nodes))


def slurm_conf(site: Site) -> str:
    """Return slurm.conf."""
    lines = [
        *_control(site),
        *_execution(site),
        *_scheduling(),
        *(_accounting(site) if site.accounting else ()),
        *(("JobSubmitPlugins=lua",) if site.lua else ()),
        *_machines(site),
        *_partitions(site),
        # a later line wins over an earlier one
        *site.extra_conf,
    ]
    return "\n".join(lines) + "\n"


def _control(site: Site) -> tuple[str, ...]:
    folders = site.folders
    return (
        f"ClusterName={CLUSTER_NAME}",
        f"SlurmctldHost={site.host}(127.0.0.1)",
        f"SlurmctldPort={site.ports.slurmctld}",
        f"SlurmUser={site.slurm_user}",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folders.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={folders.state}/ctld",
        f"SlurmdSpoolDir={folders.state}/spool/%n",
        f"SlurmctldPidFile={folders.state}/slurmctld.pid",
        f"SlurmdPidFile={folders.state}/slurmd-%n.pid",
        f"SlurmctldLogFile={folders.log}/slurmctld.log",
        f"SlurmdLogFile={folders.log}/slurmd-%n.log",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        # listen on 127.0.0.1 only
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        "SlurmctldTimeout=60",
        "SlurmdTimeout=60",
        "ReturnToService=2",
        "MailProg=/bin/true",
        "DisableRootJobs=NO",
    )


def _execution(site: Site) -> tuple[str, ...]:
    return (
        # no cgroups: the sandbox must run in a container too
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=5",
        "SwitchType=switch/none",
        "MpiDefault=none",
        # the nodes claim more CPUs and memory than this machine has
        "SlurmdParameters=config_overrides",
        f"TaskProlog={site.folders.etc}/task-prolog",
        "KillWait=2",
    )


def _scheduling() -> tuple[str, ...]:
    return (
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "DefMemPerCPU=1000",
        "GresTypes=gpu",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0",
        "InactiveLimit=0",
        "MinJobAge=300",
    )


def _accounting(site: Site) -> tuple[str, ...]:
    tres = ",".join(["gres/gpu", *(f"gres/gpu:{gres}" for gres in site.gres_types)])
    return (
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={site.ports.slurmdbd}",
        # with auth/munge this is the socket; without it sacctmgr asks the system's munged
        f"AccountingStoragePass={site.folders.munge_socket}",
        f"AccountingStorageTRES={tres}",
        "AccountingStoreFlags=job_comment,job_env,job_extra,job_script",
    )


def _machines(site: Site) -> tuple[str, ...]:
    return tuple(
        f"NodeName={node.name} NodeAddr=127.0.0.1 NodeHostname={site.host}"
        f" Port={site.ports.slurmd(index)} CPUs={node.cpus} RealMemory={node.memory_mib}"
        f" Gres=gpu:{node.gres_type}:{node.n_gpus} Feature={','.join(node.features)} State=UNKNOWN"
        for index, node in enumerate(site.nodes)
    )


def _partitions(site: Site) -> tuple[str, ...]:
    lines = []
    for gres_type in site.gres_types:
        names = ",".join(node.name for node in site.nodes if node.gres_type == gres_type)
        default = "YES" if gres_type == site.gres_types[0] else "NO"
        lines.append(
            f"PartitionName={gres_type} Nodes={names} Default={default} State=UP"
            " MaxTime=INFINITE DefaultTime=60"
        )
    return tuple(lines)


def gres_conf(site: Site) -> str:
    """Return gres.conf; with plain files instead of devices CUDA_VISIBLE_DEVICES stays empty."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type={node.gres_type}"
        f" File={site.folders.devices}/{node.name}/nvidia[0-{node.n_gpus - 1}]\n"
        for node in site.nodes
    )


def cgroup_conf(site: Site) -> str:
    """Return cgroup.conf; from 23.02 slurmd insists on cgroups unless told not to."""
    return "CgroupPlugin=disabled\n" if site.slurm_version >= (23, 2) else ""


def slurmdbd_conf(site: Site) -> str:
    """Return slurmdbd.conf; it finds mariadb's socket through MYSQL_UNIX_PORT."""
    folders = site.folders
    lines = (
        "AuthType=auth/munge",
        f"AuthInfo=socket={folders.munge_socket}",
        # an address as DbdHost is fatal
        f"DbdHost={site.host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={site.ports.slurmdbd}",
        f"SlurmUser={site.slurm_user}",
        f"LogFile={folders.log}/slurmdbd.log",
        f"PidFile={folders.state}/slurmdbd.pid",
        "DebugLevel=info",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        f"StorageUser={site.slurm_user}",
        f"StorageLoc={DATABASE}",
    )
    return "\n".join(lines) + "\n"


def task_prolog(site: Site) -> str:
    """Return the script whose output slurmd adds to the environment of every task.

    It runs for the batch script and again for each step, whatever the submitter's environment
    was; a script that put its own folders first on the PATH keeps them first in its steps.
    """
    folders = site.folders
    exports = {
        "SLURM_CONF": folders.slurm_conf,
        "OMNIPILOT_RECORDS": folders.records,
        MARK: folders.root,
    }
    constant = "\n".join(f"export {name}={value}" for name, value in exports.items())
    return f"""#!/bin/sh
bin={shlex.quote(str(folders.bin))} python={shlex.quote(str(folders.python))}
case ":$PATH:" in
*":$bin:"*) ;;
*) printf 'export PATH=%s\\n' "$bin:${{PATH:-/usr/bin:/bin}}" ;;
esac
case ":$PYTHONPATH:" in
*":$python:"*) ;;
*) printf 'export PYTHONPATH=%s\\n' "$python${{PYTHONPATH:+:$PYTHONPATH}}" ;;
esac
printf '%s\\n' {shlex.quote(constant)}
"""
