"""A small site: the sandbox's four nodes, the shipped catalogs, policy as a test wants it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cluster_facts import NodeShape, PartitionFacts, Snapshot
from omnipilot_slurm.coldstart_file import load_coldstart
from omnipilot_slurm.decide.decision import Decision, decide
from omnipilot_slurm.decide.pools import pools_of
from omnipilot_slurm.decide.site import KnownModel, Site, UnknownModel
from omnipilot_slurm.decide.success import LaunchCounts, launch_priors
from omnipilot_slurm.decide.wait_history import WaitHistory, queue_waits
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.priors_file import load_priors
from omnipilot_slurm.records import Interval, Mode, Prediction, Submission
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
    from collections.abc import Callable, Mapping, Sequence

    from omnipilot_slurm.decide.assumed import Assumed
    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.predict.coldstart import ColdStartCoefficients
    from omnipilot_slurm.predict.live import ArmSetup
    from omnipilot_slurm.records import Workload
    from omnipilot_slurm.vllm.overhead import StartupCoefficients

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
def cold_start() -> ColdStartCoefficients:
    return load_coldstart()


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


def around(mid: float, ratio: float = 1.2) -> Interval:
    """Return an interval whose ends are so many times smaller and larger than its middle."""
    return Interval(lo=mid / ratio, mid=mid, hi=mid * ratio)


class Rates:
    """Stands in for the cost model: output tok/s by GPU and their number, as a test says.

    A place that is not listed is out of support. `by_load` multiplies the rates of more than one
    GPU by a factor of the concurrency.
    """

    def __init__(
        self,
        rates: Mapping[tuple[str, int], float],
        *,
        ratio: float = 1.2,
        by_load: Callable[[int], float] | None = None,
        **more: Any,
    ) -> None:
        self.rates, self.ratio, self.by_load, self.more = rates, ratio, by_load, more

    def predict(
        self,
        model: ModelFacts,  # noqa: ARG002 (as ArmPredictor's; so the next ones)
        arms: Sequence[ArmSetup],
        workload: Workload,
        *,
        engine_version: str | None = None,  # noqa: ARG002
        load_mode: str = "online_closed_loop",  # noqa: ARG002
    ) -> tuple[Prediction, ...]:
        return tuple(self._one(each, workload) for each in arms)

    def _one(self, each: ArmSetup, workload: Workload) -> Prediction:
        rate = self.rates.get((each.gpu.id, each.arm.n_gpus))
        if rate is None:
            notes = (f"gpu {each.gpu.id!r} was not measured; measured were h100",)
            return Prediction(targets={}, calibrated=True, tier="out", axes=("gpu",), notes=notes)
        if self.by_load is not None and each.arm.n_gpus > 1:
            rate *= self.by_load(workload.concurrency)
        targets = {
            "output_tok_s": around(rate, self.ratio),
            "ttft_ms": around(200.0, 2.0),
            "tpot_ms": around(20.0),
        }
        told = {"calibrated": True, "tier": "in"} | self.more
        return Prediction(targets=targets, **told)


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
        cold_start=cold_start(),
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


def priced(where: Site, prices: Mapping[str, float | None]) -> Site:
    """Return a site with other prices of GPUs, $/h by catalog id."""
    pools = tuple(
        replace(p, gpu=replace(p.gpu, price_usd_per_gpu_hour=prices[p.gpu.id]))
        if p.gpu.id in prices
        else p
        for p in where.pools
    )
    return replace(where, pools=pools)


def script(gres: str, *lines: str) -> str:
    """Return a batch script that asks for GPUs."""
    return "\n".join(["#!/bin/bash", f"#SBATCH --gres={gres}", *lines, ""])


def submit(text: str, **fields: Any) -> Submission:
    """Return what slurmctld would show of a script, with fields changed."""
    submission, _ = directives.submission_of(text.encode())
    return replace(submission, **{"user_name": "alice", **fields})


def ask(text: str, where: Site | None = None, **fields: Any) -> Decision:
    return decide(submit(text, **fields), where or site(), expired=lambda: False)
