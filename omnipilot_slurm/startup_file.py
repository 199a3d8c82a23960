"""startup.yaml, read strictly: the fitted coefficients of start-up memory.

In: the folders that may hold a startup.yaml of the site's own. Out: StartupCoefficients. Called by
site_files and `omnipilot fit`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Interval
from omnipilot_slurm.resources import etc_layers, read_layers
from omnipilot_slurm.strict_yaml import ListOf, Number, Section, load
from omnipilot_slurm.vllm.overhead import StartupCoefficients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from omnipilot_slurm.errors import Fault
    from omnipilot_slurm.strict_yaml import Loaded

FILE = "startup.yaml"
SCHEMA_VERSION = 1
_N_BOUNDS = 3
_NAMES = tuple(field.name for field in fields(StartupCoefficients))
#: what startup.yaml may say: an interval for each coefficient
SPEC = Section(keys={name: ListOf(item=Number()) for name in _NAMES})


def load_startup(folders: Sequence[Path] = ()) -> StartupCoefficients:
    """Return the shipped coefficients with each folder's startup.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    site_files = [path for folder in folders if (path := folder / FILE).exists()]
    layers = [*etc_layers(FILE, site=None), *read_layers(site_files)]
    loaded = load(layers, SPEC, version=SCHEMA_VERSION)
    faults = [fault for name in _NAMES for fault in _interval_faults(loaded, name)]
    if faults:
        raise ConfigError(faults)
    return StartupCoefficients(
        **{
            name: Interval(**dict(zip(("lo", "mid", "hi"), loaded.value[name], strict=True)))
            for name in _NAMES
        }
    )


def _interval_faults(loaded: Loaded, name: str) -> list[Fault]:
    bounds = list(loaded.value[name])
    if len(bounds) == _N_BOUNDS and bounds == sorted(bounds):
        return []
    return [loaded.fault((name,), f"{name}: must be [lo, mid, hi] in rising order, was {bounds}")]
