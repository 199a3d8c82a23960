"""What a site has chosen, as far as a decision rests on it: the records that settings fills.

In: nothing. Out: the records of omnipilot.yaml that core reads (the daemon's own are in settings).
Called by settings (shell), which makes them, and by decide, which reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.records import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMap:
    """Catalog ids of GPU types by what Slurm calls them; a partition's entry counts first."""

    partition: Mapping[str, str] = field(default_factory=dict)
    feature: Mapping[str, str] = field(default_factory=dict)
    gres: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """How far the daemon may go; the most specific entry counts: user, account, partition.

    A rewrite of a choice that would start must gain `rewrite_margin_frac` of what the GPUs of that
    choice cost, with probability `rewrite_confidence` at least.
    """

    mode: Mode
    by_partition: Mapping[str, Mode]
    by_account: Mapping[str, Mode]
    by_user: Mapping[str, Mode]
    exempt_users: frozenset[str]
    exempt_accounts: frozenset[str]
    canary_percent: float
    canary_percent_by_partition: Mapping[str, float]
    rewrite_margin_frac: float
    rewrite_confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDefaults:
    """What a server is taken to be asked where neither script nor directive says; None: unsaid."""

    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None
    requests_per_s: float | None = None
    hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """The site's usual workload, and what differs in a partition."""

    default: WorkloadDefaults
    by_partition: Mapping[str, WorkloadDefaults]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """The engine version of jobs whose script does not show one; None where it is not known."""

    version: str | None
    by_partition: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSettings:
    """What is added to the lines that users read."""

    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilitySettings:
    """What a run is worth and costs; etc/utility.yaml says how each figure is used.

    `power_usd_per_kwh` None: power is in the price of the GPUs. `pessimistic`: arms are compared by
    the lower bounds of what they would deliver.
    """

    value_usd_per_output_token: float
    slo_miss_usd_per_hour: float
    wait_usd_per_hour: float
    failed_launch_hours: float
    kv_knee: float
    kv_slope: float
    power_usd_per_kwh: float | None
    pessimistic: bool
