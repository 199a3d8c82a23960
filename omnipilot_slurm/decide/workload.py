"""What a server will be asked: directives, then flags, then the site's usual values.

In: the user's directives, the launch, the job's time limit, the site's defaults. Out: a Workload
that says of each figure where it came from. Called by decision.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.site_settings import WorkloadSettings

_MINUTES_PER_HOUR = 60


def workload_of(
    directives: Mapping[str, float],
    engine: EngineArgs,
    settings: WorkloadSettings,
    *,
    partition: str | None,
    time_limit_min: int | None,
) -> Workload:
    """Return the workload of one server; a figure's source is directive, flag, job or site."""
    figures: dict[str, float] = {}
    source: dict[str, str] = {}
    for origin, values in (
        ("site", _site_values(settings, partition)),
        ("job", _job_values(time_limit_min)),
        ("directive", dict(directives)),
    ):
        figures |= values
        source |= dict.fromkeys(values, origin)
    limit = engine.max_num_seqs
    if limit is not None and figures["concurrency"] > limit and source["concurrency"] == "site":
        figures["concurrency"], source["concurrency"] = limit, "flag"
    return Workload(
        isl=int(figures["isl"]),
        osl=int(figures["osl"]),
        concurrency=int(figures["concurrency"]),
        requests_per_s=figures.get("requests_per_s"),
        slo_ttft_ms=figures.get("slo_ttft_ms"),
        slo_tpot_ms=figures.get("slo_tpot_ms"),
        hours=figures.get("hours"),
        source=source,
    )


def _site_values(settings: WorkloadSettings, partition: str | None) -> dict[str, float]:
    values: dict[str, float] = {}
    for defaults in (settings.default, settings.by_partition.get(partition or "")):
        for field in fields(defaults) if defaults is not None else ():
            value = getattr(defaults, field.name)
            if value is not None:
                values[field.name] = value
    return values


def _job_values(time_limit_min: int | None) -> dict[str, float]:
    return {} if time_limit_min is None else {"hours": time_limit_min / _MINUTES_PER_HOUR}
