"""Everything a decision rests on besides the submission: one value, made anew at each reload.

In: catalogs, settings, coefficients and the cluster, as the shell has read them. Out: Site. Called
by the daemon's state, `advise` and replay, which build it, and by decision, which reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from omnipilot_slurm.decide.usage import UsualLoads

if TYPE_CHECKING:
    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.decide.pools import GpuPool
    from omnipilot_slurm.decide.remembering import Remembered
    from omnipilot_slurm.decide.success import LaunchPriors
    from omnipilot_slurm.decide.wait_history import QueueWaits
    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.predict.coldstart import ColdStartCoefficients
    from omnipilot_slurm.predict.live import ArmPredictor
    from omnipilot_slurm.site_settings import (
        MessageSettings,
        PolicySettings,
        UtilitySettings,
        VllmSettings,
        WorkloadSettings,
    )
    from omnipilot_slurm.vllm.overhead import StartupCoefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that resolved; `said` tells how where the name was not exact."""

    facts: ModelFacts
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownModel:
    """A model that did not resolve, and what is lacking; `pending`: it is being looked up."""

    text: str
    pending: bool = False


class Models(Protocol):
    """Resolves what a script calls the model; answers at once, from memory."""

    def __call__(self, name: str, /) -> KnownModel | UnknownModel:
        """Return the facts, or what is lacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster, what is known of models and launches, and the site's choices.

    `predictor` None: no cost model is loaded, estimates are the roofline's. `remembered` keeps what
    was worked out, for this site only.
    """

    snapshot: Snapshot
    pools: tuple[GpuPool, ...]
    models: Models
    startup: StartupCoefficients
    cold_start: ColdStartCoefficients
    predictor: ArmPredictor | None
    launches: LaunchPriors
    waits: QueueWaits
    utility: UtilitySettings
    policy: PolicySettings
    workload: WorkloadSettings
    vllm: VllmSettings
    messages: MessageSettings
    loads: UsualLoads = field(default_factory=UsualLoads)
    remembered: Remembered | None = None
