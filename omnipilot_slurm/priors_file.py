"""priors.yaml, read strictly: what is assumed of launches and queues.

In: the folders that may hold a priors.yaml of the site's own. Out: Assumed. Called where a Site is
made and by `omnipilot config check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.decide.assumed import Assumed, AssumedLaunches, AssumedLoads, AssumedWaits
from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.resources import layers_over
from omnipilot_slurm.strict_yaml import Integer, MapOf, Number, Section, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "priors.yaml"
SCHEMA_VERSION = 1
_N_GPUS = Integer(lo=1, hi=100_000)
_JOBS = Number(lo=1, hi=1e6)
_DAYS = Number(above=0, hi=36_500)


def _wait(*, expected_hours_by_gpus: dict[int, float], **keys: float) -> AssumedWaits:
    return AssumedWaits(hours_by_gpus=expected_hours_by_gpus, **keys)


#: what priors.yaml may say
SPEC = Section(
    keys={
        "launch": Section(
            keys={
                "success_by_gpus": MapOf(value=Number(above=0, hi=0.999), key=_N_GPUS),
                "prior_launches": _JOBS,
                "prior_launches_lo": _JOBS,
                "prior_launches_hi": _JOBS,
                "history_days": _DAYS,
            },
            into=AssumedLaunches,
        ),
        "wait": Section(
            keys={
                "expected_hours_by_gpus": MapOf(value=Number(above=0, hi=10_000), key=_N_GPUS),
                "prior_jobs": _JOBS,
                "history_days": _DAYS,
            },
            into=_wait,
        ),
        "load": Section(keys={"history_days": Number(lo=0, hi=36_500)}, into=AssumedLoads),
    },
    into=Assumed,
)


def load_priors(folders: Sequence[Path] = ()) -> Assumed:
    """Return the shipped assumptions with each folder's priors.yaml, where there is one, on top.

    Raises: ConfigError with every fault of every file.
    """
    loaded = load(layers_over(FILE, folders), SPEC, version=SCHEMA_VERSION)
    assumed = loaded.value
    assert isinstance(assumed, Assumed)
    launch = assumed.launch
    if not launch.prior_launches_lo <= launch.prior_launches <= launch.prior_launches_hi:
        message = (
            f"launch.prior_launches: must be from prior_launches_lo ({launch.prior_launches_lo:g}) "
            f"to prior_launches_hi ({launch.prior_launches_hi:g}), was {launch.prior_launches:g}"
        )
        raise ConfigError([loaded.fault(("launch", "prior_launches"), message)])
    return assumed
