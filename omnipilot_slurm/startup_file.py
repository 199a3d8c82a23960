"""startup.yaml, read strictly: the fitted coefficients of start-up memory.

In: the folders that may hold a startup.yaml of the site's own. Out: StartupCoefficients. Called by
site_files and `omnipilot fit`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Interval
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.strict_yaml import ListOf, Number, Section, load
from omnipilot_slurm.vllm.eras import ERAS
from omnipilot_slurm.vllm.overhead import EraCoefficients, StartupCoefficients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from omnipilot_slurm.errors import Fault
    from omnipilot_slurm.strict_yaml import Loaded

FILE = "startup.yaml"
SCHEMA_VERSION = 1
_N_BOUNDS = 3
COMMON = (
    *("weights_frac", "plain_weights_frac", "hidden_copies", "encoder_kib", "encoder_tokens"),
    "context_gib",
)
OF_ERA = tuple(field.name for field in fields(EraCoefficients))
_ERA = Section(keys={name: ListOf(item=Number()) for name in OF_ERA})
#: what startup.yaml may say: an interval for each coefficient, those that versions change by era
SPEC = Section(
    keys={
        **{name: ListOf(item=Number()) for name in COMMON},
        "draft_frac": Number(),
        "eras": Section(keys={era.name: _ERA for era in ERAS}),
    }
)


def load_startup(folders: Sequence[Path] = ()) -> StartupCoefficients:
    """Return the shipped coefficients with each folder's startup.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    loaded = load(layers_over(FILE, folders), SPEC, version=SCHEMA_VERSION)
    faults = list(_interval_faults(loaded))
    if faults:
        raise ConfigError(faults)
    value = loaded.value
    return StartupCoefficients(
        **_intervals(value, COMMON),
        draft_frac=value["draft_frac"],
        eras={
            name: EraCoefficients(**_intervals(era, OF_ERA)) for name, era in value["eras"].items()
        },
    )


def _intervals(section: Mapping[str, Any], names: Sequence[str]) -> dict[str, Interval]:
    return {
        name: Interval(**dict(zip(("lo", "mid", "hi"), section[name], strict=True)))
        for name in names
    }


def _interval_faults(loaded: Loaded) -> Iterator[Fault]:
    paths: list[tuple[str, ...]] = [(name,) for name in COMMON]
    paths += [("eras", era.name, name) for era in ERAS for name in OF_ERA]
    for path in paths:
        bounds = loaded.value
        for key in path:
            bounds = bounds[key]
        if len(bounds) != _N_BOUNDS or list(bounds) != sorted(bounds):
            was = f"was {list(bounds)}"
            message = f"{'.'.join(path)}: must be [lo, mid, hi] in rising order, {was}"
            yield loaded.fault(path, message)
