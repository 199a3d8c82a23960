"""What a server will be asked: directives, flags, earlier jobs, then the site's usual values.

In: the user's directives, the launch, the job's time limit, what earlier jobs were asked, the
site's defaults. Out: a Workload that says of each figure where it came from: directive, flag, job
(its time limit), user or account (their earlier jobs), partition (its default time), site. Called
by decision.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.decide.usage import UsualLoad
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.site_settings import WorkloadSettings

_MINUTES_PER_HOUR: Final = 60
#: a concurrency that nobody named may be this many times smaller or larger
_PLAUSIBLE: Final = 4
_LENGTHS: Final = ("isl", "osl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a job beside its script; `earlier`: whose jobs, and their usual load."""

    partition: str | None = None
    time_limit_min: int | None = None
    default_time_min: int | None = None
    earlier: tuple[str, UsualLoad] | None = None


class _Figures:
    """The figures found so far, and where each came from; a later one takes an earlier's place."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self.source: dict[str, str] = {}

    def put(self, origin: str, values: Mapping[str, float]) -> None:
        """Take values from an origin."""
        self.of |= values
        self.source |= dict.fromkeys(values, origin)


def workload_of(
    directives: Mapping[str, float],
    engine: EngineArgs,
    settings: WorkloadSettings,
    known: Known,
) -> Workload:
    """Return the workload of one server."""
    figures = _Figures()
    figures.put("site", _site_values(settings, known.partition))
    figures.put("partition", _hours(known.default_time_min))
    if known.earlier is not None:
        figures.put(known.earlier[0], _earlier_values(known.earlier[1]))
    figures.put("job", _hours(known.time_limit_min))
    figures.put("directive", directives)
    figures.put("flag", _within_flags(figures, engine))
    found = figures.of
    return Workload(
        isl=int(found["isl"]),
        osl=int(found["osl"]),
        concurrency=int(found["concurrency"]),
        requests_per_s=found.get("requests_per_s"),
        slo_ttft_ms=found.get("slo_ttft_ms"),
        slo_tpot_ms=found.get("slo_tpot_ms"),
        hours=found.get("hours"),
        source=figures.source,
        plausible_concurrency=_plausible(figures, engine, known.earlier),
        n_jobs=_n_jobs(figures, known.earlier),
    )


def _site_values(settings: WorkloadSettings, partition: str | None) -> dict[str, float]:
    values: dict[str, float] = {}
    for defaults in (settings.default, settings.by_partition.get(partition or "")):
        for field in fields(defaults) if defaults is not None else ():
            value = getattr(defaults, field.name)
            if value is not None:
                values[field.name] = value
    return values


def _hours(minutes: int | None) -> dict[str, float]:
    return {} if minutes is None else {"hours": minutes / _MINUTES_PER_HOUR}


def _earlier_values(load: UsualLoad) -> dict[str, float]:
    values: dict[str, float] = {name: getattr(load, name) for name in (*_LENGTHS, "concurrency")}
    if load.requests_per_s is not None:
        values["requests_per_s"] = load.requests_per_s
    return values


def _within_flags(figures: _Figures, engine: EngineArgs) -> dict[str, float]:
    """Return the figures that vLLM's own limits cut down; what the user said stands."""
    values: dict[str, float] = {}
    is_said = {name for name, origin in figures.source.items() if origin == "directive"}
    most = engine.max_num_seqs
    if most is not None and "concurrency" not in is_said and figures.of["concurrency"] > most:
        values["concurrency"] = most
    length = engine.max_model_len
    tokens = sum(figures.of[name] for name in _LENGTHS)
    if length is not None and 1 < length < tokens and not is_said & set(_LENGTHS):
        # a request is as long as the context allows, in the usual proportion
        osl = min(max(round(figures.of["osl"] * length / tokens), 1), length - 1)
        values |= {"isl": length - osl, "osl": osl}
    return values


def _plausible(
    figures: _Figures, engine: EngineArgs, earlier: tuple[str, UsualLoad] | None
) -> tuple[int, int] | None:
    """Return the ends of what the concurrency may be as well, None where the user said it."""
    origin, middle = figures.source["concurrency"], int(figures.of["concurrency"])
    if origin == "directive":
        return None
    lo, hi = max(1, middle // _PLAUSIBLE), middle * _PLAUSIBLE
    if earlier is not None:
        lo, hi = earlier[1].concurrency_lo, earlier[1].concurrency_hi
    most = engine.max_num_seqs or hi
    return min(lo, most), min(hi, most)


def _n_jobs(figures: _Figures, earlier: tuple[str, UsualLoad] | None) -> int:
    """Return how many earlier jobs stand behind the figures that come from such."""
    if earlier is None or earlier[0] not in figures.source.values():
        return 0
    return earlier[1].n_jobs
