"""The power that GPUs draw, and which samples of it count.

In: nvidia-smi. Out: `PowerSample`s, and the mean of those that count. Called by the collector. A
sample is an average over an interval; it counts only where the whole of it lies inside the steady
stretch, and fewer than three are no measurement: missing, never 0 (specification, section 8).
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: what nvidia-smi's power.draw is averaged over on data-centre cards
INTERVAL_S: Final = 1.0
MIN_SAMPLES: Final = 3
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Power of all of a server's GPUs together, averaged between two times (Unix, s)."""

    start: float
    end: float
    power_w: float


def mean_power(
    samples: Sequence[PowerSample], start: float, end: float
) -> tuple[float | None, int]:
    """Return the mean of the samples wholly between two times, and how many there are."""
    inside = [each.power_w for each in samples if start <= each.start and each.end <= end]
    if len(inside) < MIN_SAMPLES:
        return None, len(inside)
    return sum(inside) / len(inside), len(inside)


def sample_power(command: str = "nvidia-smi", gpus: str | None = None) -> PowerSample | None:
    """Return the power drawn now by the GPUs named (CUDA_VISIBLE_DEVICES), None: not to be had."""
    chosen = ["-i", gpus] if gpus else []
    query = [command, *chosen, "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(  # noqa: S603 (a command of the site's, no shell)
            query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
        watts = [float(line) for line in said.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError, ValueError):
        # no NVIDIA driver here, or a card that does not tell: power is missing, not 0
        return None
    now = time.time()
    return PowerSample(now - INTERVAL_S, now, sum(watts)) if watts else None
