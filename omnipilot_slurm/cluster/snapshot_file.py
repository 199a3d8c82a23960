"""A Snapshot as a file: JSON that the daemon publishes, YAML that people write.

In: a Snapshot, or the bytes of a file. Out: text, or the Snapshot. Called by the daemon when it
publishes and by `omnipilot advise --cluster FILE`. What is at its default may be left out, and
is when a snapshot is written; etc/cluster-example.yaml shows the keys.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.cluster_facts import (
    FreeNodes,
    NodeShape,
    NodeState,
    PartitionFacts,
    QosLimits,
    QueueFacts,
    Snapshot,
)
from omnipilot_slurm.strict_yaml import (
    Flag,
    Integer,
    Layer,
    ListOf,
    MapOf,
    Nullable,
    Number,
    Section,
    Spec,
    Text,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SCHEMA_VERSION = 1
#: the name under which the daemon publishes it
FILE = "cluster.json"


def dump_snapshot(snapshot: Snapshot) -> str:
    """Return a snapshot as JSON that load_snapshot reads back."""
    document = {"schema": SCHEMA_VERSION, **_plain(snapshot)}
    document["partitions"] = {row.name: _named(row) for row in snapshot.partitions}
    if snapshot.qos:
        document["qos"] = {row.name: _named(row) for row in snapshot.qos}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def load_snapshot(data: bytes, *, file: str) -> Snapshot:
    """Read a snapshot from YAML or JSON; `file` is the name to show in faults.

    Raises: ConfigError with every fault as file:line:col.
    """
    loaded = load([Layer(file=file, data=data)], SPEC, version=SCHEMA_VERSION)
    assert isinstance(loaded.value, Snapshot)
    return loaded.value


def _plain(record: Any) -> dict[str, Any]:
    """Return a record's fields that are not at their default, as what JSON knows."""
    return {
        field.name: _value(getattr(record, field.name))
        for field in fields(record)
        if getattr(record, field.name) != _default(field)
    }


def _default(field: Any) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _named(record: Any) -> dict[str, Any]:
    return {key: value for key, value in _plain(record).items() if key != "name"}


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _plain(value) if isinstance(value, QueueFacts) else value


def _optional(required: Iterable[str], keys: Mapping[str, Spec]) -> frozenset[str]:
    return frozenset(keys) - frozenset(required)


def _section(keys: dict[str, Spec], required: Iterable[str], into: Callable[..., Any]) -> Section:
    return Section(keys=keys, optional=_optional(required, keys), into=into)


def _shape(**keys: Any) -> NodeShape:
    if "state" in keys:
        keys["state"] = NodeState(keys["state"])
    return NodeShape(**_sets(keys, "features"))


def _partition(**keys: Any) -> dict[str, Any]:
    return _sets(
        keys,
        *("allow_accounts", "deny_accounts", "allow_qos", "deny_qos", "allow_groups"),
        "allow_submit_hosts",
    )


def _sets(keys: dict[str, Any], *names: str) -> dict[str, Any]:
    lists = {name: keys[name] for name in names if keys.get(name) is not None}
    return keys | {name: frozenset(items) for name, items in lists.items()}


def _snapshot(
    *, partitions: dict[str, Any], qos: dict[str, Any] | None = None, **keys: Any
) -> Snapshot:
    return Snapshot(
        partitions=tuple(PartitionFacts(name=name, **row) for name, row in partitions.items()),
        qos=tuple(QosLimits(name=name, **_sets(row, "flags")) for name, row in (qos or {}).items()),
        **_sets(keys, "enforces"),
    )


_COUNT = Integer(lo=0)
_LIMIT = Nullable(of=Integer(lo=0))
_NAMES = ListOf(item=Text(means="a name"))
_COUNTS = MapOf(value=_COUNT)
_FREE = Section(
    keys={"n_nodes": _COUNT, "gpus": _COUNTS, "cpus": _COUNT, "memory_mib": _COUNT}, into=FreeNodes
)
_SHAPE = _section(
    {
        "n_nodes": _COUNT,
        "gpus": _COUNTS,
        "cpus": _COUNT,
        "memory_mib": _COUNT,
        "features": _NAMES,
        "state": Text(choices=tuple(state.value for state in NodeState)),
        "free": ListOf(item=_FREE),
    },
    ("n_nodes", "gpus", "cpus", "memory_mib"),
    _shape,
)
_QUEUE = Section(
    keys={"n_running_jobs": _COUNT, "n_pending_jobs": _COUNT, "n_pending_gpus": _COUNT},
    into=QueueFacts,
)
_PARTITION = _section(
    {
        "shapes": ListOf(item=_SHAPE),
        **dict.fromkeys(
            ("is_up", "is_default", "is_hidden", "is_exclusive", "root_only", "needs_reservation"),
            Flag(),
        ),
        **dict.fromkeys(("max_time_min", "default_time_min", "max_nodes"), _LIMIT),
        "min_nodes": _COUNT,
        **dict.fromkeys(
            ("allow_accounts", "allow_qos", "allow_groups", "allow_submit_hosts"),
            Nullable(of=_NAMES),
        ),
        "deny_accounts": _NAMES,
        "deny_qos": _NAMES,
        "qos": Nullable(of=Text(means="the name of a QOS")),
        "priority_tier": _COUNT,
        **dict.fromkeys(
            (
                *("max_cpus_per_node", "max_mem_per_node_mib", "max_mem_per_cpu_mib"),
                *("default_mem_per_node_mib", "default_mem_per_cpu_mib"),
                *("default_mem_per_gpu_mib", "default_cpus_per_gpu"),
            ),
            _LIMIT,
        ),
        "queue": Nullable(of=_QUEUE),
    },
    (),
    _partition,
)
_QOS = _section(
    {
        "max_wall_min": _LIMIT,
        **dict.fromkeys(
            (
                *("max_tres_per_job", "max_tres_per_node", "max_tres_per_user"),
                *("max_tres_per_account", "min_tres_per_job", "group_tres"),
            ),
            _COUNTS,
        ),
        "flags": _NAMES,
    },
    (),
    dict,
)
#: what a snapshot's file may say
SPEC = _section(
    {
        "partitions": MapOf(value=_PARTITION),
        "taken_at": Nullable(of=Number()),
        "cluster_name": Nullable(of=Text(means="a name")),
        "slurm_version": Nullable(of=Text(means="a version in quotes, such as '24.11.5'")),
        "enforces": _NAMES,
        "qos": MapOf(value=_QOS),
        "gpu_map": MapOf(value=Text(means="a GPU id of gpus.yaml")),
    },
    ("partitions",),
    _snapshot,
)
