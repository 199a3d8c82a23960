"""The site's choices: omnipilot.yaml, read strictly into records.

In: the folders that may hold an omnipilot.yaml of the site's own; each is laid over the shipped
one, which documents every key. Out: Settings, and the file they came from for faults that only
others can see (a GPU id that the catalog does not know). Called by the daemon and the commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Mode
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.site_settings import (
    GpuMap,
    MessageSettings,
    PolicySettings,
    VllmSettings,
    WorkloadDefaults,
    WorkloadSettings,
)
from omnipilot_slurm.strict_yaml import (
    Integer,
    ListOf,
    Loaded,
    MapOf,
    Nullable,
    Number,
    Section,
    Spec,
    Text,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "omnipilot.yaml"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """Where omnipilotd listens, who may ask, what it keeps and publishes."""

    socket: Path
    group: str | None
    allowed_users: tuple[str, ...]
    n_workers: int
    call_timeout_s: float
    stop_timeout_s: float
    n_cached_answers: int
    log_level: str
    store: Path | None
    retention_days: int
    publish: Path | None
    model: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How the cluster is read, and which folders may be searched for models."""

    poll_s: float
    slow_poll_s: float
    command_timeout_s: float
    gpu_map: GpuMap
    model_roots: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of omnipilot.yaml."""

    daemon: DaemonSettings
    cluster: ClusterSettings
    policy: PolicySettings
    workload: WorkloadSettings
    vllm: VllmSettings
    messages: MessageSettings


class SettingsFile(NamedTuple):
    """The settings in force, and the merged file that says where each was set."""

    settings: Settings
    file: Loaded


def load_settings(folders: Sequence[Path] = ()) -> SettingsFile:
    """Return the shipped settings with each folder's omnipilot.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    loaded = load(layers_over(FILE, folders), SPEC, version=SCHEMA_VERSION)
    return SettingsFile(loaded.value, loaded)


def _daemon(**keys: object) -> DaemonSettings:
    paths = {name: _path(keys[name]) for name in ("socket", "store", "publish", "model")}
    return DaemonSettings(**(keys | paths))  # type: ignore[arg-type]  # checked by the spec


def _path(text: object) -> Path | None:
    return None if text is None else Path(str(text))


def _cluster(*, model_roots: tuple[str, ...], **keys: object) -> ClusterSettings:
    roots = tuple(Path(root) for root in model_roots)
    return ClusterSettings(model_roots=roots, **keys)  # type: ignore[arg-type]  # as above


def _policy(
    *,
    mode: str,
    by_partition: Mapping[str, str],
    by_account: Mapping[str, str],
    by_user: Mapping[str, str],
    exempt_users: tuple[str, ...],
    exempt_accounts: tuple[str, ...],
    **keys: object,
) -> PolicySettings:
    return PolicySettings(
        mode=Mode(mode),
        by_partition=_modes(by_partition),
        by_account=_modes(by_account),
        by_user=_modes(by_user),
        exempt_users=frozenset(exempt_users),
        exempt_accounts=frozenset(exempt_accounts),
        **keys,  # type: ignore[arg-type]  # as above
    )


def _modes(by_name: Mapping[str, str]) -> dict[str, Mode]:
    return {name: Mode(mode) for name, mode in by_name.items()}


_ABSOLUTE = Text(pattern=r"/.*", means="an absolute path")
_USER = Text(pattern=r"[\w.@+-]+\$?", means="a user name")
_ACCOUNT = Text(means="an account name")
_MODE = Text(choices=tuple(mode.value for mode in Mode))
_PERCENT = Number(lo=0, hi=100)
_GPU_ID = Text(means="a GPU id of gpus.yaml")
_VERSION = Text(pattern=r"\d+\.\d+(\.\d+)?", means="a version in quotes, such as '0.11.0'")
_WORKLOAD_KEYS: dict[str, Spec] = {
    "isl": Integer(lo=1),
    "osl": Integer(lo=1),
    "concurrency": Integer(lo=1),
    "requests_per_s": Nullable(of=Number(above=0)),
    "hours": Number(above=0),
}
#: what omnipilot.yaml may say
SPEC = Section(
    keys={
        "daemon": Section(
            keys={
                "socket": _ABSOLUTE,
                "group": Nullable(of=Text(means="a group name")),
                "allowed_users": ListOf(item=_USER),
                "n_workers": Integer(lo=2, hi=64),
                "call_timeout_s": Number(above=0, hi=60),
                "stop_timeout_s": Number(above=0, hi=300),
                "n_cached_answers": Integer(lo=0, hi=100_000),
                "log_level": Text(choices=("debug", "info", "warning", "error")),
                "store": Nullable(of=_ABSOLUTE),
                "retention_days": Integer(lo=1, hi=36_500),
                "publish": Nullable(of=_ABSOLUTE),
                "model": Nullable(of=_ABSOLUTE),
            },
            into=_daemon,
        ),
        "cluster": Section(
            keys={
                "poll_s": Number(lo=5, hi=86_400),
                "slow_poll_s": Number(lo=5, hi=86_400),
                "command_timeout_s": Number(above=0, hi=300),
                "gpu_map": Section(
                    keys={
                        "partition": MapOf(value=_GPU_ID),
                        "feature": MapOf(value=_GPU_ID),
                        "gres": MapOf(value=_GPU_ID),
                    },
                    into=GpuMap,
                ),
                "model_roots": ListOf(item=_ABSOLUTE),
            },
            into=_cluster,
        ),
        "policy": Section(
            keys={
                "mode": _MODE,
                "by_partition": MapOf(value=_MODE),
                "by_account": MapOf(value=_MODE, key=_ACCOUNT),
                "by_user": MapOf(value=_MODE, key=_USER),
                "exempt_users": ListOf(item=_USER),
                "exempt_accounts": ListOf(item=_ACCOUNT),
                "canary_percent": _PERCENT,
                "canary_percent_by_partition": MapOf(value=_PERCENT),
                "rewrite_margin_frac": Number(lo=0, hi=1),
                "rewrite_confidence": Number(lo=0.5, hi=0.999),
            },
            into=_policy,
        ),
        "workload": Section(
            keys={
                "default": Section(keys=_WORKLOAD_KEYS, into=WorkloadDefaults),
                "by_partition": MapOf(
                    value=Section(
                        keys=_WORKLOAD_KEYS,
                        optional=frozenset(_WORKLOAD_KEYS),
                        into=WorkloadDefaults,
                    )
                ),
            },
            into=WorkloadSettings,
        ),
        "vllm": Section(
            keys={"version": Nullable(of=_VERSION), "by_partition": MapOf(value=_VERSION)},
            into=VllmSettings,
        ),
        "messages": Section(
            keys={"url": Nullable(of=Text(pattern=r"https?://\S+", means="an http(s) address"))},
            into=MessageSettings,
        ),
    },
    into=Settings,
)
