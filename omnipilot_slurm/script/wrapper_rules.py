"""How the words of each wrapper end: nohup, timeout, conda run, uv run, docker run and their kin.

Tables only; names and arities as the programs' own `--help` lists them. Called by wrappers and
containers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a wrapper's own words end: options with a value, then `skip` words, then the program.

    `short` and `long` name the options that take a value. `verbs`: the program follows only one of
    these sub-commands.
    """

    short: str = ""
    long: str = ""
    skip: int = 0
    verbs: str = ""


_UV: Final = Rule(
    short="pCip",
    long="python with with-requirements with-editable project directory env-file extra group"
    " only-group no-group index default-index index-url extra-index-url package cache-dir"
    " config-file refresh-package upgrade-package reinstall-package resolution prerelease"
    " link-mode module find-links from torch-backend no-build-package no-binary-package",
    verbs="run",
)
_CONDA: Final = Rule(short="np", long="name prefix cwd", verbs="run")
RULES: Final[Mapping[str, Rule]] = {
    "exec": Rule(short="a"),
    "nohup": Rule(),
    "coproc": Rule(),
    "time": Rule(short="fo", long="format output"),
    "setsid": Rule(),
    "command": Rule(),
    "builtin": Rule(),
    "nice": Rule(short="n", long="adjustment"),
    "ionice": Rule(short="cnp", long="class classdata"),
    "chrt": Rule(skip=1),
    "stdbuf": Rule(short="ioe", long="input output error"),
    "timeout": Rule(short="ks", long="kill-after signal", skip=1),
    "taskset": Rule(skip=1),
    "numactl": Rule(
        short="mNCipl", long="membind cpunodebind physcpubind interleave preferred cpubind"
    ),
    "unbuffer": Rule(),
    "catchsegv": Rule(),
    "tini": Rule(short="p"),
    "dumb-init": Rule(),
    "xvfb-run": Rule(short="sn", long="server-args server-num"),
    "flock": Rule(short="wE", long="timeout conflict-exit-code", skip=1),
    "sudo": Rule(short="ugCDhpRrTt", long="user group"),
    "strace": Rule(short="oepsu"),
    "ddtrace-run": Rule(),
    "opentelemetry-instrument": Rule(long="traces_exporter metrics_exporter service_name"),
    "nsys": Rule(
        short="otcwsxyd",
        long="output trace duration delay capture-range sample session-new stats wait kill",
        verbs="profile",
    ),
    "ncu": Rule(short="oksc", long="export kernel-name launch-skip launch-count set section"),
    "py-spy": Rule(short="ordfp", long="output rate duration format pid", verbs="record"),
    "rocprof": Rule(short="io"),
    "perun": Rule(verbs="monitor"),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": Rule(short="npra", long="name prefix root-prefix cwd attach", verbs="run"),
    "uv": _UV,
    "uvx": replace(_UV, verbs=""),
    "pipx": Rule(long="spec python", verbs="run"),
    "poetry": Rule(short="CP", long="directory project", verbs="run"),
    "pipenv": Rule(verbs="run"),
    "pdm": Rule(short="p", long="project", verbs="run"),
    "hatch": Rule(short="e", long="env", verbs="run"),
    "rye": Rule(verbs="run"),
    "pixi": Rule(short="e", long="environment manifest-path", verbs="run"),
    "dotenv": Rule(short="f", long="file", verbs="run"),
    "direnv": Rule(skip=1, verbs="exec"),
    "mpirun": Rule(
        short="nxHN", long="np hostfile host map-by bind-to mca npernode ppr rank-by oversubscribe"
    ),
    "mpiexec": Rule(short="nxf", long="np hostfile host map-by bind-to mca ppn"),
    "jsrun": Rule(short="nacgdbr", long="nrs tasks_per_rs cpu_per_rs gpu_per_rs"),
    "enroot": Rule(short="emc", long="env mount conf rc", skip=1, verbs="start"),
    "shifter": Rule(short="ieVw", long="image env volume workdir module entrypoint"),
    "ch-run": Rule(short="bcs", long="bind cd set-env storage unset-env join-ct", skip=1),
    "uenv": Rule(short="v", long="view repo", skip=1, verbs="run"),
    "ssh": Rule(short="bcDEeFIiJLlmOopQRSWw", skip=1),
    "systemd-run": Rule(short="pHM", long="property unit slice description uid gid setenv"),
    "xargs": Rule(
        short="aEdIiLlnPs",
        long="arg-file delimiter eof replace max-lines max-args max-procs max-chars",
    ),
    "parallel": Rule(
        short="jaIdnNLPS",
        long="jobs arg-file delay joblog tmpdir sshlogin retries timeout results colsep workdir"
        " max-args max-procs env memfree load halt",
    ),
}
_APPTAINER: Final = Rule(
    short="BHSWo",
    long="bind env env-file home pwd cwd workdir overlay scratch app network network-args dns"
    " hostname security add-caps drop-caps apply-cgroups mount fusemount cpus memory memory-swap"
    " device docker-username docker-password nvccli-args keep-privs no-mount pem-path cpuset-cpus"
    " pid-file blkio-weight shub-username",
    verbs="exec run shell",
)
_DOCKER: Final = Rule(
    short="vepwuhlmac",
    long="volume env env-file publish workdir user name network net gpus shm-size ipc runtime"
    " entrypoint mount device hostname label memory memory-swap cpus ulimit cap-add cap-drop"
    " security-opt restart platform pull add-host log-driver log-opt pid uts tmpfs cpuset-cpus"
    " cpuset-mems group-add hooks-dir annotation userns cgroup-parent health-cmd expose dns"
    " cpu-shares cgroupns volumes-from stop-signal stop-timeout sysctl secret requires",
    verbs="run exec",
)
CONTAINERS: Final[Mapping[str, Rule]] = {
    "apptainer": _APPTAINER,
    "singularity": _APPTAINER,
    "docker": _DOCKER,
    "podman": _DOCKER,
    "podman-hpc": _DOCKER,
    "nerdctl": _DOCKER,
    "sarus": Rule(long="mount workdir entrypoint env device annotation", verbs="run"),
    "udocker": Rule(short="vepw", long="volume env user workdir name hostauth", verbs="run"),
}
