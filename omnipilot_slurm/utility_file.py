"""utility.yaml, read strictly: what a run is worth and costs.

In: the folders that may hold a utility.yaml of the site's own. Out: UtilitySettings. Called where a
Site is made and by `omnipilot config check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.site_settings import UtilitySettings
from omnipilot_slurm.strict_yaml import Flag, Nullable, Number, Section, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "utility.yaml"
SCHEMA_VERSION = 1
_USD_PER_HOUR = Number(lo=0, hi=1e6)
#: what utility.yaml may say
SPEC = Section(
    keys={
        "utility": Section(
            keys={
                "value_usd_per_output_token": Number(lo=0, hi=1),
                "slo_miss_usd_per_hour": _USD_PER_HOUR,
                "wait_usd_per_hour": _USD_PER_HOUR,
                "failed_launch_hours": Number(lo=0, hi=1000),
                "kv_knee": Number(above=0, hi=0.99),
                "kv_slope": Number(lo=0, hi=0.99),
                "power_usd_per_kwh": Nullable(of=Number(lo=0, hi=1000)),
                "pessimistic": Flag(),
            },
            into=UtilitySettings,
        )
    }
)


def load_utility(folders: Sequence[Path] = ()) -> UtilitySettings:
    """Return the shipped figures with each folder's utility.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    utility = load(layers_over(FILE, folders), SPEC, version=SCHEMA_VERSION).value["utility"]
    assert isinstance(utility, UtilitySettings)
    return utility
