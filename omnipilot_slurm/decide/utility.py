"""What one run on one arm is worth, in dollars: section 7 of the specification, a function a term.

    U = V - C - S - W - F
    V = v * 3600 * T * min(thr_eff, offered)        C = n_gpus * c_gpu * wall_h + power
    S = c_slo * T * P(miss)                         W = c_wait * E[wait]
    F = (1 - p)/p * (n_gpus * c_gpu * t_fail + c_wait * E[wait])

In: a Run (what is predicted and known of an arm), the site's UtilitySettings. Out: the terms.
Called by decisions, and by `omnipilot evaluate`, which scores them by the same sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnipilot_slurm.records import Interval
    from omnipilot_slurm.site_settings import UtilitySettings

#: a launch that nearly always fails is counted as failing 49 times before it works
P_FLOOR: Final = 0.02
#: how many standard deviations the 0.1 and 0.9 quantiles of a normal lie from its median
Z_90: Final = 1.2815515655446004
#: no term is larger, whatever a prediction or a setting says
_MOST_USD: Final = 1e15
_SECONDS_PER_HOUR: Final = 3600.0
_WATTS_PER_KW: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run on one arm; intervals hold 80 %.

    `kv_pressure` is the demand for cache over its capacity where the throughput was not learned at
    that pressure, else None. `offered_tok_s` None: no cap. Latencies and power (of all its GPUs)
    are None where they are not predicted, targets where none is given.
    """

    n_gpus: int
    price_usd_per_gpu_hour: float
    wall_h: float
    cold_start_s: float
    output_tok_s: Interval
    p_ok: float
    wait_h: float
    kv_pressure: float | None = None
    offered_tok_s: float | None = None
    ttft_ms: Interval | None = None
    tpot_ms: Interval | None = None
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityTerms:
    """The terms in dollars; all but `value` count against it."""

    value: float
    gpu_cost: float
    slo: float
    wait: float
    failure: float

    @property
    def total(self) -> float:
        """The utility of the run, $."""
        return self.value - self.gpu_cost - self.slo - self.wait - self.failure


def utility_terms(run: Run, settings: UtilitySettings) -> UtilityTerms:
    """Return what a run is worth: finite terms, in which what is no number counts against it."""
    hours = serving_hours(run.wall_h, run.cold_start_s)
    rate = run.output_tok_s.lo if settings.pessimistic else run.output_tok_s.mid
    return UtilityTerms(
        value=_value_at(rate, run, settings),
        gpu_cost=_cost(gpu_cost_usd(run, settings.power_usd_per_kwh)),
        slo=_cost(settings.slo_miss_usd_per_hour * hours * miss_probability(run, settings)),
        wait=_cost(settings.wait_usd_per_hour * run.wait_h),
        failure=_cost(failure_usd(run, settings)),
    )


def value_sd_usd(run: Run, settings: UtilitySettings) -> float:
    """Return one standard deviation of V, from the 80 % interval of the throughput.

    Both ends are capped by the load offered: what nobody asks for is no doubt either.
    """
    bounds = (run.output_tok_s.lo, run.output_tok_s.hi)
    lo, hi = (_value_at(rate, run, settings) for rate in bounds)
    return max(hi - lo, 0.0) / (2 * Z_90)


def _value_at(output_tok_s: float, run: Run, settings: UtilitySettings) -> float:
    """Return V at a throughput, KV pressure taken off it."""
    rate = output_tok_s
    if run.kv_pressure is not None:
        rate *= kv_factor(run.kv_pressure, settings.kv_knee, settings.kv_slope)
    hours = serving_hours(run.wall_h, run.cold_start_s)
    price = settings.value_usd_per_output_token
    usd = value_usd(price, hours, rate, offered_tok_s=run.offered_tok_s)
    # the order of the arguments makes 0 of what is not a number
    return min(_MOST_USD, max(0.0, usd))


def _cost(usd: float) -> float:
    """Return a cost between 0 and the most there is, which what is not a number costs."""
    return max(0.0, min(_MOST_USD, usd))


def serving_hours(wall_h: float, cold_start_s: float) -> float:
    """Return T, the hours of a job in which it serves."""
    return max(0.0, wall_h - cold_start_s / _SECONDS_PER_HOUR)


def kv_factor(pressure: float, knee: float, slope: float) -> float:
    """Return g(u): 1 to the knee, down in a straight line to 1 - slope at u = 1, then by 1/u."""
    if pressure <= knee:
        return 1.0
    if pressure <= 1.0:
        return 1.0 - slope * (pressure - knee) / (1.0 - knee)
    return (1.0 - slope) / pressure


def value_usd(
    usd_per_token: float, hours: float, output_tok_s: float, *, offered_tok_s: float | None = None
) -> float:
    """Return V: the tokens served, at most those offered, times their worth."""
    rate = output_tok_s if offered_tok_s is None else min(output_tok_s, offered_tok_s)
    return usd_per_token * _SECONDS_PER_HOUR * hours * rate


def gpu_cost_usd(run: Run, power_usd_per_kwh: float | None) -> float:
    """Return C: the GPUs for the hours they are held, and their power where it has a price."""
    held = run.n_gpus * run.price_usd_per_gpu_hour * run.wall_h
    if power_usd_per_kwh is None or run.power_w is None:
        return held
    return held + run.power_w / _WATTS_PER_KW * run.wall_h * power_usd_per_kwh


def miss_probability(run: Run, settings: UtilitySettings) -> float:
    """Return P(miss), the larger of the two targets' probabilities; 0 where none is given."""
    pairs = ((run.ttft_ms, run.slo_ttft_ms), (run.tpot_ms, run.slo_tpot_ms))
    return max(_exceeds(latency, slo, pessimistic=settings.pessimistic) for latency, slo in pairs)


def _exceeds(latency: Interval | None, slo: float | None, *, pessimistic: bool) -> float:
    """Return the probability that a latency lies above its target: normal in log space."""
    if latency is None or slo is None or not (slo > 0 and latency.mid > 0):
        return 0.0
    if pessimistic:
        return float(latency.hi > slo)
    if not latency.lo > 0:
        return 0.5
    if not latency.hi > latency.lo:
        return float(latency.mid > slo)
    sigma = (math.log(latency.hi) - math.log(latency.lo)) / (2 * Z_90)
    if not math.isfinite(sigma):
        return 0.5
    return 0.5 * math.erfc((math.log(slo) - math.log(latency.mid)) / sigma / math.sqrt(2))


def failure_usd(run: Run, settings: UtilitySettings) -> float:
    """Return F: each failed launch is paid for, waits again and is tried again (geometric)."""
    p_ok = min(1.0, max(P_FLOOR, run.p_ok))
    once = run.n_gpus * run.price_usd_per_gpu_hour * settings.failed_launch_hours
    return (1.0 - p_ok) / p_ok * (once + settings.wait_usd_per_hour * run.wait_h)
