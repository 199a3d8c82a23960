"""From files to a Site: settings, catalogs, coefficients and a snapshot, joined for decisions.

In: the folders with the site's configuration and a snapshot of the cluster. Out: a Site. Called by
the daemon's loading thread, `advise` and replay.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omnipilot_slurm.catalog.local import Pending, find_model
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cluster.snapshot_file import FILE as SNAPSHOT_FILE
from omnipilot_slurm.coldstart_file import load_coldstart
from omnipilot_slurm.decide.pools import pools_of
from omnipilot_slurm.decide.site import KnownModel, Site, UnknownModel
from omnipilot_slurm.decide.success import LaunchCounts, LaunchPriors, launch_priors
from omnipilot_slurm.decide.usage import UsualLoads, usual_loads
from omnipilot_slurm.decide.wait_history import QueueWaits, WaitHistory, queue_waits
from omnipilot_slurm.errors import ArtifactError, CatalogError, ConfigError, Fault, near_names
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.live import ArmPredictor
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.priors_file import load_priors
from omnipilot_slurm.resources import read_layers, shipped_path
from omnipilot_slurm.settings import SettingsFile, load_settings
from omnipilot_slurm.site_model import in_force
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from omnipilot_slurm.catalog.local import Folders
    from omnipilot_slurm.cluster_facts import Snapshot
    from omnipilot_slurm.decide.assumed import Assumed
    from omnipilot_slurm.decide.pools import GpuPool
    from omnipilot_slurm.decide.site import Models
    from omnipilot_slurm.decide.usage import ServedLoad
    from omnipilot_slurm.predict.coldstart import ColdStartCoefficients
    from omnipilot_slurm.site_settings import GpuMap, UtilitySettings
    from omnipilot_slurm.strict_yaml import Layer
    from omnipilot_slurm.vllm.overhead import StartupCoefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModelInForce:
    """The cost model decided with, and the folder of the site's own; None: the shipped one is.

    `fault`: why the site's own is not used. A package without a model has no predictor.
    """

    predictor: ArmPredictor | None
    folder: Path | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What is known of launches and queue waits: assumed, and corrected by the site's own jobs.

    `loads` are what earlier servers were asked.
    """

    launches: LaunchPriors
    waits: QueueWaits
    loads: UsualLoads = field(default_factory=UsualLoads)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFiles:
    """What was read of files: all of a Site but the cluster."""

    folders: tuple[Path, ...]
    settings_file: SettingsFile
    catalog: Catalog
    startup: StartupCoefficients
    cold_start: ColdStartCoefficients
    cost_model: CostModelInForce
    utility: UtilitySettings
    assumed: Assumed

    def experience(
        self,
        launches: LaunchCounts | None = None,
        waits: WaitHistory | None = None,
        served: Iterable[ServedLoad] = (),
    ) -> Experience:
        """Return what the site's own jobs make of what is assumed of launches and waits."""
        return Experience(
            launches=launch_priors(self.assumed.launch, launches or LaunchCounts()),
            waits=queue_waits(self.assumed.wait, waits or WaitHistory()),
            loads=usual_loads(served),
        )

    @property
    def predictor(self) -> ArmPredictor | None:
        """The predictor of the cost model in force."""
        return self.cost_model.predictor

    def with_model_in_force(self) -> SiteFiles:
        """Return these files with the cost model that is in force now; themselves if it is this."""
        folder = self.settings_file.settings.daemon.model
        if (None if folder is None else in_force(folder)) == self.cost_model.folder:
            return self
        return replace(self, cost_model=cost_model_in_force(folder))

    def site(self, snapshot: Snapshot, folders: Folders, experience: Experience) -> Site:
        """Return the site with the cluster as it is; `folders` looks models up by their path."""
        settings = self.settings_file.settings
        return Site(
            snapshot=snapshot,
            pools=self.pools(snapshot),
            models=models_of(self.catalog, folders),
            startup=self.startup,
            cold_start=self.cold_start,
            predictor=self.predictor,
            launches=experience.launches,
            waits=experience.waits,
            loads=experience.loads,
            utility=self.utility,
            policy=settings.policy,
            workload=settings.workload,
            vllm=settings.vllm,
            messages=settings.messages,
        )

    def pools(self, snapshot: Snapshot) -> tuple[GpuPool, ...]:
        """Return the GPUs of the cluster with their facts."""
        gpus = {gpu_id: self.catalog.gpu(gpu_id) for gpu_id in self.catalog.gpu_ids()}
        return pools_of(snapshot, self.gpu_map(snapshot), gpus, self._gpu_id)

    def gpu_map(self, snapshot: Snapshot) -> GpuMap:
        """Return the site's map; a snapshot may bring names of its own, which count last."""
        gpu_map = self.settings_file.settings.cluster.gpu_map
        return replace(gpu_map, gres={**snapshot.gpu_map, **gpu_map.gres})

    def published(self) -> Layer | None:
        """Return the cluster's snapshot as the daemon publishes it, None where none can be read.

        It lies where the settings say, or beside them where they are what is published.
        """
        folder = self.settings_file.settings.daemon.publish
        for place in (*self.folders[::-1], *([] if folder is None else [folder])):
            with suppress(ConfigError):
                return read_layers([place / SNAPSHOT_FILE])[0]
        return None

    def _gpu_id(self, name: str) -> str | None:
        try:
            return self.catalog.gpu(name).id
        except CatalogError:
            return None


def read_files(folders: Sequence[Path]) -> SiteFiles:
    """Read the shipped files with the site's own on top.

    Raises: ConfigError with every fault of the file that has some.
    """
    settings_file = load_settings(folders)
    catalog = Catalog.load(site=folders[-1] if folders else None)
    faults = unknown_gpus(settings_file, catalog.gpu_ids())
    if faults:
        raise ConfigError(faults)
    return SiteFiles(
        folders=tuple(folders),
        settings_file=settings_file,
        catalog=catalog,
        startup=load_startup(folders),
        cold_start=load_coldstart(folders),
        cost_model=cost_model_in_force(settings_file.settings.daemon.model),
        utility=load_utility(folders),
        assumed=load_priors(folders),
    )


def cost_model_in_force(folder: Path | None) -> CostModelInForce:
    """Return the site's own model where `folder` has one in force that is whole, else the shipped.

    Raises: ArtifactError when the shipped one must not be used.
    """
    own = None if folder is None else in_force(folder)
    if own is None:
        return CostModelInForce(predictor=_shipped_predictor())
    try:
        model, _ = artifact.read(own)
    except ArtifactError as error:
        return CostModelInForce(predictor=_shipped_predictor(), folder=own, fault=str(error))
    return CostModelInForce(predictor=ArmPredictor(Predictor(model)), folder=own)


def _shipped_predictor() -> ArmPredictor | None:
    """Return the shipped cost model, None in a package that has none.

    Raises: ArtifactError for one that must not be used.
    """
    folder = shipped_path("etc", "artifact")
    if not folder.is_dir():
        return None
    model, _ = artifact.read(folder)
    return ArmPredictor(Predictor(model))


def unknown_gpus(settings_file: SettingsFile, gpu_ids: Collection[str]) -> list[Fault]:
    """Return a fault for each GPU id in `cluster.gpu_map` that no catalog entry has."""
    gpu_map = settings_file.settings.cluster.gpu_map
    faults = []
    for kind in ("partition", "feature", "gres"):
        for name, gpu_id in getattr(gpu_map, kind).items():
            if gpu_id not in gpu_ids:
                path = ("cluster", "gpu_map", kind, name)
                near = near_names(gpu_id, gpu_ids, n=1)
                advice = f"; did you mean {near[0]!r}" if near else ""
                where = ".".join(path)
                message = f"{where}: must be a GPU id of gpus.yaml, was {gpu_id!r}{advice}"
                faults.append(settings_file.file.fault(path, message))
    return faults


def models_of(catalog: Catalog, folders: Folders) -> Models:
    """Return a look-up by name or folder; a folder not read yet is not waited for."""

    def find(name: str) -> KnownModel | UnknownModel:
        try:
            match = find_model(catalog, folders, name)
        except CatalogError as error:
            return UnknownModel(text=str(error))
        if isinstance(match, Pending):
            text = "its folder is being looked up; a later submission is answered"
            return UnknownModel(text=text, pending=True)
        return KnownModel(facts=match.facts, said=match.said)

    return find
