"""coldstart.yaml, read strictly: how long the stages of a server's start take.

In: the folders that may hold a coldstart.yaml of the site's own. Out: ColdStartCoefficients. Called
where a Site is made and by `omnipilot config check`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.predict.coldstart import GENERATIONS, ColdStartCoefficients, Generation
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.strict_yaml import ListOf, Number, Section, load
from omnipilot_slurm.yaml_intervals import interval_faults, intervals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "coldstart.yaml"
_TOP = "cold_start"
SCHEMA_VERSION = 1
_SECONDS = ListOf(item=Number(lo=0, hi=100_000))
_RATE = ListOf(item=Number(above=0, hi=10_000))
COMMON = tuple(field.name for field in fields(ColdStartCoefficients) if field.name != "generations")
OF_GENERATION = tuple(field.name for field in fields(Generation))
_GENERATION = Section(keys=dict.fromkeys(OF_GENERATION, _SECONDS))
#: what coldstart.yaml may say: an interval for each figure, by generation where versions differ
SPEC = Section(
    keys={
        _TOP: Section(
            keys={
                **{name: _RATE if name.endswith("_gib_s") else _SECONDS for name in COMMON},
                "generations": Section(keys=dict.fromkeys(GENERATIONS, _GENERATION)),
            }
        )
    }
)


def load_coldstart(folders: Sequence[Path] = ()) -> ColdStartCoefficients:
    """Return the shipped figures with each folder's coldstart.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    loaded = load(layers_over(FILE, folders), SPEC, version=SCHEMA_VERSION)
    paths: list[tuple[str, ...]] = [(_TOP, name) for name in COMMON]
    paths += [(_TOP, "generations", name, of) for name in GENERATIONS for of in OF_GENERATION]
    faults = list(interval_faults(loaded, paths))
    if faults:
        raise ConfigError(faults)
    value = loaded.value[_TOP]
    return ColdStartCoefficients(
        **intervals(value, COMMON),
        generations={
            name: Generation(**intervals(of, OF_GENERATION))
            for name, of in value["generations"].items()
        },
    )
