"""Intervals written as [lo, mid, hi] in YAML: lists of a checked file in, records or faults out.

Called by the loaders of startup.yaml and coldstart.yaml, whose figures are all of this kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from omnipilot_slurm.errors import Fault
    from omnipilot_slurm.strict_yaml import Loaded

_N_BOUNDS = 3


def intervals(section: Mapping[str, Any], names: Sequence[str]) -> dict[str, Interval]:
    """Return the intervals of a section by name."""
    return {
        name: Interval(**dict(zip(("lo", "mid", "hi"), section[name], strict=True)))
        for name in names
    }


def interval_faults(loaded: Loaded, paths: Iterable[tuple[str, ...]]) -> Iterator[Fault]:
    """Yield a fault for each list that is not three bounds in rising order."""
    for path in paths:
        bounds = loaded.value
        for key in path:
            bounds = bounds[key]
        if len(bounds) != _N_BOUNDS or list(bounds) != sorted(bounds):
            was = f"was {list(bounds)}"
            message = f"{'.'.join(path)}: must be [lo, mid, hi] in rising order, {was}"
            yield loaded.fault(path, message)
