"""`omnipilot probe plan`: rank benchmarks by what they are worth, and write them as jobs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from itertools import product
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.bench_asked import Asked, from_options
from omnipilot_slurm.cli.bench_commands import ROUNDS, Benchmark, bench_words, serve_words
from omnipilot_slurm.cli.site_store import site_folders, store_options, store_path
from omnipilot_slurm.decide.arms import precision_of
from omnipilot_slurm.errors import ArtifactError, SlurmError, UsageError
from omnipilot_slurm.predict.probing import Candidate, ranked
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import OUT
from omnipilot_slurm.probe.plan_file import Cell, Plan, open_cells, read_plan, write_plan
from omnipilot_slurm.probe.slurm_array import array_scripts
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.site_files import cost_model_in_force
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.predict.predictor import Predictor
    from omnipilot_slurm.predict.rows import FloatArray

#: standard deviations of the normal between the quantiles 0.1 and 0.9
_WIDTHS = 2 * 1.2816
#: of ln throughput: of one measurement, hosts included, and the least where nothing is in support
_NOISE, _UNKNOWN = 0.03, 0.7
#: minutes of a server's start, and the rounds that are usual, the warm-up among them
_START_MIN, _USUAL_ROUNDS = 4.0, 4


@click.command()
@click.option("--model", help="Model id.")
@click.option("--gpu", multiple=True, help="GPU type; several are compared.")
@click.option("--tensor-parallel", type=click.IntRange(1), multiple=True, default=[1])
@click.option("--precision", help="Of the weights. [default: the checkpoint's]")
@click.option("--isl", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--osl", type=click.IntRange(1), default=256, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), multiple=True, default=[32])
@click.option("--vllm-version", help="The engine that runs.")
@click.option("--budget-gpu-hours", type=click.FloatRange(0, min_open=True), default=8.0)
@click.option("--width", default=0.05, show_default=True, help="Half of the 95 % interval.")
@click.option("--max-rounds", type=click.IntRange(3), default=8, show_default=True)
@click.option("--max-minutes", type=click.FloatRange(0, min_open=True), default=45.0)
@click.option("--sbatch", multiple=True, help="A further option of the jobs: --partition=gpu")
@click.option("--submit", is_flag=True, help="Hand the jobs to Slurm as well.")
@click.option("--resume", is_flag=True, help="Write the jobs of FOLDER's open cells again.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@store_options
def plan(
    *,
    folder: Path,
    config: Path | None,
    store: Path | None,
    sbatch: tuple[str, ...],
    submit: bool,
    resume: bool,
    **told: Any,
) -> None:
    """Rank benchmarks of a model by knowledge gradient for each GPU-hour; write them to FOLDER.

    Each --gpu and --tensor-parallel is an arm, each --concurrency a workload at which arms compete.
    FOLDER must be one that the nodes see.
    """
    folder = folder.resolve()
    if not resume:
        if told["model"] is None or not told["gpu"]:
            raise UsageError("--model and --gpu say what may be measured")
        write_plan(folder, _planned(config, told))
    found = read_plan(folder)
    _show(found)
    run = [sys.executable, "-m", "omnipilot_slurm", "probe", "run", str(folder)]
    run += ["--store", str(store_path(config, store).resolve())]
    scripts = array_scripts(
        found,
        open_cells(folder, found),
        folder=str(folder),
        run=run,
        gres_types=_gres_types(config),
        options=sbatch,
    )
    for name, text in scripts.items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(_submitted(folder / name) if submit else f"sbatch {folder / name}")


def _planned(config: Path | None, told: Mapping[str, Any]) -> Plan:
    folders = site_folders(config)
    catalog = Catalog.load(site=next(iter(folders), None))
    asked = [
        from_options(catalog, {**told, "gpu": gpu, "tensor_parallel": tp, "concurrency": n})
        for gpu, tp, n in product(told["gpu"], told["tensor_parallel"], told["concurrency"])
    ]
    value = load_utility(folders).value_usd_per_output_token
    found = cost_model_in_force(load_settings(folders).settings.daemon.model).predictor
    if found is None:
        raise ArtifactError("this package has no cost model", hint="`omnipilot train` makes one")
    candidates = _candidates(found.predictor, asked, value)
    chosen = ranked(candidates, told["budget_gpu_hours"])
    return Plan(
        budget_gpu_hours=told["budget_gpu_hours"],
        width_frac=told["width"],
        max_rounds=told["max_rounds"],
        cells=tuple(
            _cell(asked[each.position], each.worth_usd_per_h, told["max_minutes"])
            for each in chosen
        ),
    )


def _candidates(
    predictor: Predictor, asked: Sequence[Asked], value_usd_per_token: float
) -> list[Candidate]:
    rows = table([each.row() for each in asked])
    found = predictor.predict_table(rows)
    bounds = found.targets["output_tok_s"]
    centres, left, base = predictor.quantiles(rows)
    mids: FloatArray = base[:, 0] * np.exp(centres[:, 0] + left[:, 0, 1])
    candidates = []
    for i, each in enumerate(asked):
        is_out = found.support[i].tier == OUT
        # off support the model has no interval: it may be off by half or double
        spread = _UNKNOWN if is_out else log(bounds.hi[i] / bounds.lo[i]) / _WIDTHS
        gain = 3600 * value_usd_per_token * float(mids[i])
        n_gpus = each.arm.n_gpus
        candidates.append(
            Candidate(
                workload=f"c{each.workload.concurrency}",
                mean_usd_per_h=gain - n_gpus * (each.gpu.price_usd_per_gpu_hour or 0.0),
                spread_usd_per_h=gain * spread,
                noise_usd_per_h=gain * _NOISE,
                gpu_hours=n_gpus * (_START_MIN + _USUAL_ROUNDS * _round_min(each, mids[i])) / 60,
            )
        )
    return candidates


def _round_min(asked: Asked, output_tok_s: float) -> float:
    """Return the minutes of one round at a throughput."""
    return ROUNDS * asked.workload.concurrency * asked.workload.osl / output_tok_s / 60


def _cell(asked: Asked, worth: float, max_minutes: float) -> Cell:
    load, arm = asked.workload, asked.arm
    words = Benchmark(
        model=asked.model.id,
        stored=precision_of(asked.model, EngineArgs()),
        arm=arm,
        isl=load.isl,
        osl=load.osl,
        concurrencies=(load.concurrency,),
        vllm_version=asked.vllm_version,
    )
    told = {
        "gpu": arm.gpu,
        "n_gpus": str(arm.n_gpus),
        "tensor_parallel": str(arm.tensor_parallel),
        "precision": arm.precision,
    }
    return Cell(
        name=f"{asked.model.id} {arm.gpu} TP {arm.tensor_parallel} {arm.precision} "
        f"{load.isl}/{load.osl} at {load.concurrency}",
        model=asked.model.id,
        gpu=arm.gpu,
        n_gpus=arm.n_gpus,
        serve=_any_port(serve_words(words)),
        bench=_any_port(bench_words(words, load.concurrency)),
        told=told | ({"vllm_version": asked.vllm_version} if asked.vllm_version else {}),
        max_minutes=max_minutes,
        worth_usd_per_h=worth,
    )


def _any_port(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command with its port left open: two tasks may share a node."""
    before = ("", *words)
    return tuple(
        "{port}" if last == "--port" else word for last, word in zip(before, words, strict=False)
    )


def _gres_types(config: Path | None) -> dict[str, str]:
    """Return what Slurm calls each GPU, where the site's settings name it."""
    gpu_map = load_settings(site_folders(config)).settings.cluster.gpu_map
    return {gpu: name for name, gpu in gpu_map.gres.items()}


def _show(found: Plan) -> None:
    for number, cell in enumerate(found.cells):
        click.echo(f"{number:3d}  {cell.worth_usd_per_h:8.4f} $/h  {cell.name}")
    if not found.cells:
        click.echo("nothing: no measurement that the budget covers would change the choice")


def _submitted(script: Path) -> str:
    """Hand a script to Slurm and return what it says.

    Raises: SlurmError.
    """
    try:
        done = subprocess.run(  # noqa: S603 (no shell)
            ["sbatch", str(script)],  # noqa: S607 (the site's own)
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except subprocess.CalledProcessError as error:
        raise SlurmError(f"sbatch {script} failed: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{shlex.join(['sbatch', str(script)])} failed: {error}") from error
    return done.stdout.strip()
