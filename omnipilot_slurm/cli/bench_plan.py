"""`omnipilot bench-plan`: the cheapest benchmark that brings an arm into support."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.bench_asked import Asked, from_options, from_record, of_file, of_job
from omnipilot_slurm.cli.bench_commands import ROUNDS, Benchmark, shell_lines
from omnipilot_slurm.decide.arms import precision_of
from omnipilot_slurm.errors import UsageError
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.probes import Probe, probe
from omnipilot_slurm.predict.roofline import roofline, work
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.resources import shipped_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.predict.model import CostModel

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What an arm lacks, the benchmark that supplies it, and what that takes; $ None: no price."""

    asked: Asked
    probe: Probe
    minutes: float
    usd: float | None


@click.command("bench-plan")
@click.argument("job", required=False, type=_FILE)
@click.option("--decision", type=click.File(), help="What advise --json or explain --json printed.")
@click.option("--model", help="Model id, instead of a job.")
@click.option("--gpu", help="GPU type.")
@click.option("--tensor-parallel", type=click.IntRange(1), default=1, show_default=True)
@click.option("--precision", help="Of the weights. [default: the checkpoint's]")
@click.option("--isl", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--osl", type=click.IntRange(1), default=256, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), default=32, show_default=True)
@click.option("--vllm-version", help="The engine that would run.")
@click.option("--cluster", type=_FILE, help="A snapshot of the cluster, for a job.")
@click.option(
    "--config", type=click.Path(exists=True, file_okay=False, path_type=Path), help="For a job."
)
@click.option(
    "--artifact",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the cost model. [default: the shipped one]",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def bench_plan(
    *,
    job: Path | None,
    decision: TextIO | None,
    folder: Path | None,
    as_one_json: bool,
    **told: Any,
) -> None:
    """Print the cheapest benchmark after which the asked arm is in support, as vLLM commands.

    The arm is that of a JOB script, of a decision printed before, or of --model and --gpu. Of a job
    that leaves the arm open, the arm whose benchmark costs least.
    """
    if sum(each is not None for each in (job, decision, told["model"])) != 1:
        raise UsageError("one of JOB, --decision and --model says what to measure")
    catalog = Catalog.load()
    if told["model"] is not None:
        arms = [from_options(catalog, told)]
    else:
        arms = list(from_record(catalog, _record(job, decision, told)))
    model, _ = artifact.read(folder or shipped_path("etc", "artifact"))
    plan = min((_planned(model, arm) for arm in arms), key=_cost)
    if as_one_json:
        click.echo(json.dumps(_plain(plan)))
    else:
        for line in _shown(plan):
            click.echo(line)


def _record(job: Path | None, decision: TextIO | None, told: dict[str, Any]) -> Any:
    if decision is not None:
        return of_file(decision)
    assert job is not None
    return of_job(job, cluster=told["cluster"], config=told["config"])


def _planned(model: CostModel, asked: Asked) -> Planned:
    found = probe(asked.row(), model.envelope)
    minutes = sum(_minutes(model, asked, concurrency) for concurrency in found.concurrencies)
    price = asked.gpu.price_usd_per_gpu_hour
    usd = None if price is None else price * asked.arm.n_gpus * minutes / 60
    return Planned(asked=asked, probe=found, minutes=minutes, usd=usd)


def _minutes(model: CostModel, asked: Asked, concurrency: int) -> float:
    """Return what a run takes by the roofline, which needs no support."""
    rows = table([asked.row(concurrency)])
    values = roofline(rows, work(rows), model.coefficients)
    return ROUNDS * float(values.e2e_ms[0]) / 60e3


def _cost(plan: Planned) -> tuple[bool, float, float]:
    """Order plans: those that measure anything first, then by price, then by GPU minutes."""
    usd = float("inf") if plan.usd is None else plan.usd
    return (not plan.probe.concurrencies, usd, plan.minutes * plan.asked.arm.n_gpus)


def _benchmark(plan: Planned) -> Benchmark:
    asked = plan.asked
    return Benchmark(
        model=asked.model.id,
        stored=precision_of(asked.model, EngineArgs()),
        arm=asked.arm,
        isl=asked.workload.isl,
        osl=asked.workload.osl,
        concurrencies=plan.probe.concurrencies,
        vllm_version=asked.vllm_version,
    )


def _shown(plan: Planned) -> Iterator[str]:
    """Yield a script with comments: what is lacking, what it takes, the commands."""
    asked, load = plan.asked, plan.asked.workload
    yield (
        f"# {asked.model.id} on {asked.arm.n_gpus} x {asked.gpu.name}, {asked.arm.precision}, "
        f"{load.isl} in, {load.osl} out, {load.concurrency} at once: {plan.probe.support.tier}"
    )
    for finding in plan.probe.support.findings:
        yield f"# {finding.axis}: {finding.note}"
    if not plan.probe.concurrencies:
        yield "# nothing to measure: the cost model answers for it as it is"
        return
    n_runs = len(plan.probe.concurrencies)
    runs = "1 run brings" if n_runs == 1 else f"{n_runs} runs bring"
    price = "" if plan.usd is None else f", about {plan.usd:.2f} $"
    yield (
        f"# {runs} it into support: about {plan.minutes:.0f} min after the server's start, by the "
        f"roofline{price}"
    )
    yield from shell_lines(_benchmark(plan))


def _plain(plan: Planned) -> dict[str, object]:
    """Return the plan as JSON has it."""
    support = plan.probe.support
    return {
        "model": plan.asked.model.id,
        "gpu": plan.asked.gpu.id,
        "n_gpus": plan.asked.arm.n_gpus,
        "tier": support.tier,
        "axes": list(support.axes),
        "notes": [finding.note for finding in support.findings],
        "concurrencies": list(plan.probe.concurrencies),
        "minutes": plan.minutes,
        "usd": plan.usd,
        "commands": list(shell_lines(_benchmark(plan))) if plan.probe.concurrencies else [],
    }
