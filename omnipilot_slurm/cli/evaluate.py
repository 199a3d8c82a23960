"""`omnipilot evaluate`: how good the cost model is on rows that it has not seen."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from omnipilot_slurm.cli.row_files import row_files
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.train.decisions import OURS
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import SPLITS
from omnipilot_slurm.train.evaluation import EVERY, Evaluation, evaluation
from omnipilot_slurm.train.kept import kept
from omnipilot_slurm.train.load import load_dataset
from omnipilot_slurm.train.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.train.decisions import Outcome
    from omnipilot_slurm.train.evaluation import GroupTiers, Line

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@row_files
@click.option(
    "--split",
    "splits",
    multiple=True,
    type=click.Choice(list(SPLITS)),
    default=["cell"],
    show_default=True,
    help="What is held out together; may be given several times.",
)
@click.option("--scenario", type=_FILE, help="Prices and worth that decisions are scored by.")
@click.option(
    "--keep",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder where predictions out of fold are kept for the next time.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the trees.")
@click.option(
    "--fold-seed", type=click.IntRange(0), help="Shuffle the folds. [default: GroupKFold's]"
)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Threads.")
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    *,
    first: tuple[Path, ...],
    more: tuple[Path, ...],
    splits: tuple[str, ...],
    scenario: Path | None,
    folder: Path | None,
    seed: int,
    fold_seed: int | None,
    jobs: int,
    as_one_json: bool,
) -> None:
    """Print error, coverage, tiers and decisions of models that did not see the rows.

    One table a split: five folds of cells, workloads (all concurrencies) or architectures, or one
    family, GPU or source left out at a time. The baselines are scored on the same rows.
    """
    priced = None if scenario is None else load_scenario(scenario)
    data = load_dataset([*first, *more], _say)
    settings = Settings(seed=seed, n_jobs=jobs)
    found = []
    with threadpool_limits(jobs):
        for split in splits:
            held = kept(folder, data, split, settings, seed=fold_seed, progress=_say)
            found.append(evaluation(data, held, split, priced))
    if as_one_json:
        click.echo(json.dumps({each.split: plain(each) for each in found}))
    else:
        click.echo("\n\n".join("\n".join(shown(each)) for each in found))


def _say(text: str) -> None:
    click.echo(text, err=True)


def plain(found: Evaluation) -> dict[str, object]:
    """Return an evaluation as JSON has it; what is undefined is null."""
    record = asdict(found)
    record["decisions"] = [
        {"value_usd_per_output_token": value, "policies": policies}
        for value, policies in record["decisions"].items()
    ]
    without_nan = _finite(record)
    assert isinstance(without_nan, dict)
    return without_nan


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and isnan(value) else value


def shown(found: Evaluation) -> Iterator[str]:
    """Yield the lines of one split's table."""
    tiers = ", ".join(f"{count} {tier}" for tier, count in found.tiers.items())
    yield (
        f"split by {found.split}: {found.n_rows} rows, {found.n_cells} cells, "
        f"{found.n_folds} folds; rows by tier: {tiers}"
    )
    yield ""
    yield (
        f"{'target':13s} {'rows of':15s} {'by':15s} {'rows':>5s} {'cells':>5s} {'MAPE %':>7s} "
        f"{'median':>7s} {'log R2':>6s} {'in 80 %':>8s} {'by cell':>8s} {'hi/lo':>6s}"
    )
    yield from (_line(line) for line in found.lines if _is_shown(line, found))
    if found.groups:
        yield ""
        yield f"output tok/s of each {found.split} left out: answers by tier, their error, coverage"
        yield from map(_group, found.groups)
    for value, policies in found.decisions.items():
        yield ""
        yield f"decisions at {value:g} $ per output token, {policies[0].n_cells} cells"
        yield (
            f"{'policy':20s} {'top-1':>6s} {'regret $/h':>10s} {'% of best - worst':>17s} "
            "  more regret than ours, % [95 %]"
        )
        yield from map(_policy, policies)


def _is_shown(line: Line, found: Evaluation) -> bool:
    """Tell whether a line says something of its own; --json has them all.

    Baselines are shown for all rows; subsets of the learned targets where they are subsets.
    """
    if line.rows == EVERY:
        return True
    if line.by != OURS or line.target not in LEARNED:
        return False
    sizes = {
        other.rows: other.score.n_rows
        for other in found.lines
        if (other.target, other.by) == (line.target, OURS)
    }
    before = list(sizes)[: list(sizes).index(line.rows)]
    return all(sizes[name] != line.score.n_rows for name in before)


def _line(line: Line) -> str:
    score = line.score
    text = (
        f"{line.target:13s} {line.rows:15s} {line.by:15s} {score.n_rows:5d} {score.n_cells:5d} "
        f"{score.mape:7.2f} {score.median:7.2f} {score.log_r2:6.3f}"
    )
    if line.by != OURS:
        return text
    return f"{text} {score.coverage:8.3f} {score.cell_coverage:8.3f} {score.width:6.2f}"


def _group(group: GroupTiers) -> str:
    parts = [f"{count} {tier}" + _tier(group, tier) for tier, count in group.tiers.items() if count]
    return f"{group.group}: {group.n_rows} rows, {group.n_cells} cells: {'; '.join(parts)}"


def _tier(group: GroupTiers, tier: str) -> str:
    score = group.scores.get(tier)
    if score is None:
        return ""
    return f" ({score.mape:.1f} / {score.median:.1f} %, {score.coverage:.2f} inside)"


def _policy(outcome: Outcome) -> str:
    low, mean, high = outcome.extra_percent
    text = (
        f"{outcome.policy:20s} {outcome.top_1:6.3f} {outcome.regret_usd_per_h:10.3f} "
        f"{outcome.regret_percent:17.2f}"
    )
    return text if outcome.policy == OURS else f"{text}   {mean:6.2f} [{low:.2f}, {high:.2f}]"
