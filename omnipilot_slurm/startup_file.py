"""startup.yaml, read strictly: the fitted coefficients of start-up memory.

In: the folders that may hold a startup.yaml of the site's own. Out: StartupCoefficients. Called by
site_files and `omnipilot fit`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.strict_yaml import ListOf, Number, Section, load
from omnipilot_slurm.vllm.eras import ERAS
from omnipilot_slurm.vllm.overhead import EraCoefficients, StartupCoefficients
from omnipilot_slurm.yaml_intervals import interval_faults, intervals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "startup.yaml"
SCHEMA_VERSION = 1
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
    paths: list[tuple[str, ...]] = [(name,) for name in COMMON]
    paths += [("eras", era.name, name) for era in ERAS for name in OF_ERA]
    faults = list(interval_faults(loaded, paths))
    if faults:
        raise ConfigError(faults)
    value = loaded.value
    return StartupCoefficients(
        **intervals(value, COMMON),
        draft_frac=value["draft_frac"],
        eras={
            name: EraCoefficients(**intervals(era, OF_ERA)) for name, era in value["eras"].items()
        },
    )
