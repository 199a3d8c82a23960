"""A small site: the sandbox's four nodes, the shipped catalogs, policy as a test wants it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cluster_facts import NodeShape, PartitionFacts, Snapshot
from omnipilot_slurm.decide.decision import Decision, decide
from omnipilot_slurm.decide.pools import pools_of
from omnipilot_slurm.decide.site import KnownModel, Site, UnknownModel
from omnipilot_slurm.decide.success import LaunchCounts, launch_priors
from omnipilot_slurm.decide.wait_history import WaitHistory, queue_waits
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.priors_file import load_priors
from omnipilot_slurm.records import Mode, Submission
from omnipilot_slurm.script import directives
from omnipilot_slurm.site_settings import (
    GpuMap,
    MessageSettings,
    PolicySettings,
    VllmSettings,
    WorkloadDefaults,
    WorkloadSettings,
)
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from omnipilot_slurm.vllm.overhead import StartupCoefficients

if TYPE_CHECKING:
    from omnipilot_slurm.decide.assumed import Assumed

NODES = {
    "a100": ("a100", 4, 64, 512_000),
    "a100-80": ("a100-80", 4, 64, 1_024_000),
    "h100": ("h100", 4, 96, 1_024_000),
    "h200": ("h200", 8, 128, 2_048_000),
}
GPU_MAP = GpuMap(gres={"a100": "a100-40g", "a100-80": "a100-80g", "h100": "h100", "h200": "h200"})


def partition(name: str, **changes: Any) -> PartitionFacts:
    gres, count, cpus, memory = NODES[name]
    shape = NodeShape(
        n_nodes=1, gpus={gres: count}, cpus=cpus, memory_mib=memory, features=frozenset({gres})
    )
    return replace(PartitionFacts(name=name, shapes=(shape,), is_default=name == "a100"), **changes)


SNAPSHOT = Snapshot(partitions=tuple(partition(name) for name in NODES))


@lru_cache
def catalog() -> Catalog:
    return Catalog.load(site=None)


@lru_cache
def startup() -> StartupCoefficients:
    return load_startup()


@lru_cache
def assumed() -> Assumed:
    return load_priors()


def models(name: str) -> KnownModel | UnknownModel:
    try:
        match = catalog().model(name)
    except CatalogError as error:
        return UnknownModel(text=str(error))
    return KnownModel(facts=match.facts, said=match.said)


def gpu_named(name: str) -> str | None:
    try:
        return catalog().gpu(name).id
    except CatalogError:
        return None


def site(mode: Mode = Mode.ENFORCE, snapshot: Snapshot = SNAPSHOT, **policy: Any) -> Site:
    gpus = {gpu_id: catalog().gpu(gpu_id) for gpu_id in catalog().gpu_ids()}
    settings: dict[str, Any] = {
        "mode": mode,
        "by_partition": {},
        "by_account": {},
        "by_user": {},
        "exempt_users": frozenset({"root"}),
        "exempt_accounts": frozenset(),
        "canary_percent": 100.0,
        "canary_percent_by_partition": {},
        "rewrite_margin_frac": 0.1,
        "rewrite_confidence": 0.8,
    }
    return Site(
        snapshot=snapshot,
        pools=pools_of(snapshot, GPU_MAP, gpus, gpu_named),
        models=models,
        startup=startup(),
        predictor=None,
        launches=launch_priors(assumed().launch, LaunchCounts()),
        waits=queue_waits(assumed().wait, WaitHistory()),
        utility=load_utility(),
        policy=PolicySettings(**(settings | policy)),
        workload=WorkloadSettings(
            default=WorkloadDefaults(isl=1024, osl=256, concurrency=32, hours=8), by_partition={}
        ),
        vllm=VllmSettings(version="0.11.0", by_partition={}),
        messages=MessageSettings(url=None),
    )


def submit(text: str, **fields: Any) -> Submission:
    """Return what slurmctld would show of a script, with fields changed."""
    submission, _ = directives.submission_of(text.encode())
    return replace(submission, **{"user_name": "alice", **fields})


def ask(text: str, where: Site | None = None, **fields: Any) -> Decision:
    return decide(submit(text, **fields), where or site(), expired=lambda: False)
