"""What arms of one decision share: the engine's arguments, its scheduling and its launch reports.

In: the arguments that a script gives, which versions the site runs; then a place. Out: arguments,
effective values, LaunchReports, each made once. Called by arms and predicting. What does not rest
on the load is kept beyond the decision, for the next job that starts the same server.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.vllm import defaults
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.report import LaunchReport, Place

if TYPE_CHECKING:
    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.site_settings import VllmSettings
    from omnipilot_slurm.vllm.overhead import StartupCoefficients

#: servers of which is kept what does not rest on their load, for the next job that starts one
_REMEMBERED: Final = 32
_Reports = dict[tuple["GpuFacts", str | None, int, Place], LaunchReport]
_Scheduled = dict[tuple["GpuFacts", str | None], defaults.Scheduling]


@lru_cache(maxsize=_REMEMBERED)
def _reports_of(
    model: ModelFacts,  # noqa: ARG001 (the key of the cache; so the next two)
    engine: EngineArgs,  # noqa: ARG001
    startup: StartupCoefficients,  # noqa: ARG001
) -> _Reports:
    """Return where the launch reports of one server are kept."""
    return {}


@lru_cache(maxsize=_REMEMBERED)
def _scheduled_of(
    model: ModelFacts,  # noqa: ARG001 (as above)
    engine: EngineArgs,  # noqa: ARG001
) -> _Scheduled:
    """Return where the effective scheduling values of one server are kept."""
    return {}


class Engines:
    """What arms of one decision share, each made once: arguments by version and TP, and reports.

    Partitions that have the same GPUs differ in neither.
    """

    def __init__(self, engine: EngineArgs, versions: VllmSettings) -> None:
        self._engine = engine
        self._versions = versions
        self._made: dict[tuple[str | None, int], EngineArgs] = {}
        self._scheduled: _Scheduled | None = None
        self._reports: _Reports | None = None

    def of(self, partition: str, tensor_parallel: int) -> EngineArgs:
        """Return the arguments there: with the script's own version, else the site's."""
        site = self._versions
        version = self._engine.vllm_version or site.by_partition.get(partition, site.version)
        key = (version, tensor_parallel)
        if key not in self._made:
            self._made[key] = replace(
                self._engine, tensor_parallel=tensor_parallel, vllm_version=version
            )
        return self._made[key]

    def scheduling(
        self, engine: EngineArgs, model: ModelFacts, gpu: GpuFacts, max_model_len: int
    ) -> defaults.Scheduling:
        """Return the effective scheduling values; they do not depend on the parallel degree."""
        if self._scheduled is None:
            self._scheduled = _scheduled_of(model, self._engine)
        key = (gpu, engine.vllm_version)
        known = self._scheduled.get(key)
        if known is None:
            known = defaults.scheduling(engine, model, gpu, max_model_len=max_model_len)
            self._scheduled[key] = known
        return known

    def report(
        self,
        engine: EngineArgs,
        model: ModelFacts,
        gpu: GpuFacts,
        place: Place,
        startup: StartupCoefficients,
    ) -> LaunchReport:
        """Return whether the server starts; everything but its version and TP is the decision's."""
        if self._reports is None:
            self._reports = _reports_of(model, self._engine, startup)
        key = (gpu, engine.vllm_version, engine.tensor_parallel, place)
        known = self._reports.get(key)
        if known is None:
            known = self._reports[key] = assess(model, gpu, engine, place, startup)
        return known
