"""The scenario in which decisions are scored: prices, worth of a token, waits, launches, SLOs.

In: a scenario file. Out: `Scenario`, and the run that an arm would be in it. Called by
train/decisions.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import yaml

from omnipilot_slurm.decide.utility import Run
from omnipilot_slurm.errors import DataError
from omnipilot_slurm.site_settings import UtilitySettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from omnipilot_slurm.records import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything of the utility that is not predicted; waits and launches by number of GPUs."""

    prices_usd_per_gpu_hour: Mapping[str, float]
    utility: UtilitySettings
    sensitivity: tuple[float, ...]
    hours: float
    launch_success_by_gpus: Mapping[int, float]
    expected_wait_hours_by_gpus: Mapping[int, float]
    cold_start_s: Mapping[str, float]
    slo_ttft_ms: float
    slo_tpot_ms: float

    def valued_at(self, usd_per_token: float) -> Scenario:
        """Return the scenario with another worth of an output token."""
        return replace(
            self, utility=replace(self.utility, value_usd_per_output_token=usd_per_token)
        )

    def run(
        self,
        gpu: str,
        n_gpus: int,
        params_b: float,
        *,
        output_tok_s: Interval,
        ttft_ms: Interval | None,
        tpot_ms: Interval | None,
    ) -> Run:
        """Return one run of the scenario; a latency of None misses no SLO."""
        cold = self.cold_start_s
        cold_s = cold["base"] + cold["per_billion_params"] * params_b + cold["per_gpu"] * n_gpus
        return Run(
            n_gpus=n_gpus,
            price_usd_per_gpu_hour=self.prices_usd_per_gpu_hour[gpu],
            # the scenario pays for the cold start on top of its serving hours
            wall_h=self.hours + cold_s / 3600,
            cold_start_s=cold_s,
            output_tok_s=output_tok_s,
            p_ok=_nearest(self.launch_success_by_gpus, n_gpus),
            wait_h=_nearest(self.expected_wait_hours_by_gpus, n_gpus),
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
            slo_ttft_ms=self.slo_ttft_ms,
            slo_tpot_ms=self.slo_tpot_ms,
        )


def _nearest(by_gpus: Mapping[int, float], n_gpus: int) -> float:
    return by_gpus[min(by_gpus, key=lambda known: (abs(known - n_gpus), known))]


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises: DataError naming the file and what it lacks.
    """
    try:
        value: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _scenario(value)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise DataError(f"{path}: lacks {error.args[0]!r}") from error
    except (yaml.YAMLError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: must be a scenario: {error}") from error


def _scenario(value: dict[str, Any]) -> Scenario:
    if value["offered_requests_per_s"] is not None:
        raise ValueError("offered_requests_per_s must be null: measured load is not capped here")
    return Scenario(
        prices_usd_per_gpu_hour=_numbers(value["prices_usd_per_gpu_hour"], str),
        utility=UtilitySettings(
            value_usd_per_output_token=float(value["value_usd_per_output_token"]),
            slo_miss_usd_per_hour=float(value["slo_miss_usd_per_hour"]),
            wait_usd_per_hour=float(value["wait_usd_per_hour"]),
            failed_launch_hours=float(value["failed_launch_hours"]),
            # every throughput was learned at its own pressure, so the KV term never applies
            kv_knee=1.0,
            kv_slope=0.0,
            power_usd_per_kwh=None,
            pessimistic=False,
        ),
        sensitivity=tuple(float(v) for v in value["sensitivity_value_usd_per_output_token"]),
        hours=float(value["hours"]),
        launch_success_by_gpus=_numbers(value["launch_success_by_gpus"], int),
        expected_wait_hours_by_gpus=_numbers(value["expected_wait_hours_by_gpus"], int),
        cold_start_s=_numbers(value["cold_start_s"], str),
        slo_ttft_ms=float(value["slo_ttft_ms"]),
        slo_tpot_ms=float(value["slo_tpot_ms"]),
    )


def _numbers(value: dict[Any, Any], key: type) -> dict[Any, float]:
    return {key(name): float(number) for name, number in value.items()}
