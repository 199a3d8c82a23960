"""What `sacctmgr show qos` prints, read into the limits of each QOS.

In: text with a header line. Out: QosLimits records. Called by commands.py; pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnipilot_slurm.cluster.scontrol import minutes
from omnipilot_slurm.cluster_facts import QosLimits
from omnipilot_slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: the columns asked for, by sacctmgr's names
COLUMNS = (
    "Name", "Flags", "MaxWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESPU", "MaxTRESPA", "MinTRES",
    "GrpTRES",
)  # fmt: skip

_COUNT = re.compile(r"(\d+)([KMGTP]?)")
#: memory comes in MiB without a suffix
_MIB = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_PLAIN = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


def parse_qos(text: str) -> tuple[QosLimits, ...]:
    """Read `sacctmgr --parsable2 show qos format=...`; a column that is absent limits nothing.

    Raises: SlurmError when a limit cannot be read.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ()
    header = lines[0].split("|")
    if "Name" not in header:
        raise SlurmError(f"sacctmgr must print a header with Name, printed {lines[0][:60]!r}")
    return tuple(_qos(dict(zip(header, line.split("|"), strict=False))) for line in lines[1:])


def _qos(row: Mapping[str, str]) -> QosLimits:
    return QosLimits(
        name=row["Name"],
        max_wall_min=minutes(row.get("MaxWall")),
        max_tres_per_job=parse_tres(row.get("MaxTRES", "")),
        max_tres_per_node=parse_tres(row.get("MaxTRESPerNode", "")),
        max_tres_per_user=parse_tres(row.get("MaxTRESPU", "")),
        max_tres_per_account=parse_tres(row.get("MaxTRESPA", "")),
        min_tres_per_job=parse_tres(row.get("MinTRES", "")),
        group_tres=parse_tres(row.get("GrpTRES", "")),
        flags=frozenset(filter(None, row.get("Flags", "").split(","))),
    )


def parse_tres(text: str) -> dict[str, int]:
    """Read `cpu=64,mem=1T,gres/gpu:h100=2`; memory in MiB is named mem_mib.

    Raises: SlurmError when an entry cannot be read.
    """
    counts: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        name, _, amount = entry.rpartition("=")
        found = _COUNT.fullmatch(amount.upper())
        if not name or found is None:
            raise SlurmError(f"a TRES limit must be like gres/gpu=4, was {entry!r}")
        is_memory = name == "mem"
        units = _MIB if is_memory else _PLAIN
        counts["mem_mib" if is_memory else name] = int(int(found[1]) * units[found[2]])
    return counts
