"""One measured run as a result file tells it, before it is known on which arm it ran.

In: what a reader found in a file. Out: Result, and how numbers are checked. Called by the readers
(result_vllm, result_guidellm, result_inference_perf, result_csv) and by benchmark_files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.predict.rows import CLOSED_LOOP, SATURATED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.store.benchmarks import Load, RunOutcome


#: no count, rate or time is as large
TOO_MUCH: Final = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run: `content` is what its hash is of, `told` what the file says of arm and versions.

    `where` names the run within its file. `model` None: not said there. Lengths of `load` that the
    file does not say are NaN. `told` has names of benchmark_files.TELLABLE.
    """

    where: str
    source: str
    content: object
    model: str | None
    load: Load
    targets: Mapping[str, float]
    outcome: RunOutcome
    measured_at: float | None = None
    window: tuple[float, float] | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)


def number(value: Any, name: str) -> float:
    """Return a measured number.

    Raises: DataError when it is none, below 0, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{name} must be a number, was {value!r}")
    if not 0 <= value < TOO_MUCH:
        raise DataError(f"{name} must be finite and not below 0, was {value!r}")
    return float(value)


def member(value: Any, *path: str) -> Any:
    """Return what stands in nested objects at a path.

    Raises: DataError naming the first part that is not there.
    """
    for i, name in enumerate(path):
        if not isinstance(value, dict) or name not in value:
            raise DataError(f"{'.'.join(path[: i + 1])} must be there, is not")
        value = value[name]
    return value


def positive(targets: Mapping[str, float | None]) -> dict[str, float]:
    """Return the targets that were measured; a rate or time of 0 is none."""
    return {name: value for name, value in targets.items() if value}


def mode_of(concurrency: float | None, requests_per_s: float | None) -> str:
    """Return the load mode: clients that wait for their answers, or a queue that never empties.

    Requests that come at a rate of their own are counted as the former: that is the mode that a
    decision predicts, and no measured row has another.
    """
    return SATURATED if concurrency is None and requests_per_s is None else CLOSED_LOOP
