"""Print how a site's own rows help, and what the gate lets in: `make bench-adapt`.

Each source of the measured rows is a site once: the model is fitted on all other sources, k rows
of the site are drawn and adapted to, and judged on all rows whose cell was not drawn.
Cards of NVIDIA, which the product decides for; `--vendors all` takes every card. With --keep the
models fitted on the other sources are kept and taken again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train.adapt import adapted, site_of
from omnipilot_slurm.train.fit import fit
from omnipilot_slurm.train.gate import judged
from omnipilot_slurm.train.load import load_dataset

#: bars of the mean MAPE at k = 15, 40, 120
BARS = {
    "inferencex": (25, 19, 14),
    "ml.energy-v3": (42, 32, 23),
    "argonne-llm-inference-bench": (15, 12, 8),
}
SIZES = (15, 40, 120)
#: points of error by which a promoted draw may be worse than unadapted
HARM = 2.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of k rows: errors in percent of rows not drawn, coverage, and the gate's word."""

    shipped: float
    adapted: float
    coverage: float
    is_promoted: bool

    @property
    def is_harmful(self) -> bool:
        """Whether the gate let a draw in that made the site's errors larger."""
        return self.is_promoted and self.adapted > self.shipped + HARM


def base_model(data, source: str, keep: Path | None):
    """Return the model of all other sources, fitted or as kept."""
    folder = None if keep is None else keep / f"{data.data_hash[:12]}-without-{source}"
    if folder is not None and (folder / artifact.CARD).exists():
        return artifact.read(folder)[0]
    others = np.flatnonzero(data.groups["source"] != source)
    model = fit(data.take(others)).model
    if folder is not None:
        artifact.write(folder, model, {})
    return model


def draw(site, size: int, seed: int, *, gated: bool) -> Draw:
    """Adapt to `size` rows and judge on the cells that have none of them."""
    data = site.data
    order = np.random.default_rng(seed).permutation(len(data))
    rows = np.sort(order[:size])
    rest = np.flatnonzero(~np.isin(site.cells, site.cells[rows]))
    table, true = data.table.take(rest), data.measured["output_tok_s"][rest]
    model = adapted(site, rows)
    found = Predictor(model).predict_table(table)
    bounds, answered = found.targets["output_tok_s"], [each.tier != "out" for each in found.support]
    inside = (bounds.lo <= true) & (true <= bounds.hi)
    centres, left, base = Predictor(model).quantiles(table)
    mid = base[:, 0] * np.exp(centres[:, 0] + left[:, 0, 1])
    before = site.shipped.base[rest, 0] * np.exp(site.shipped.mid[rest, 0])
    verdict = judged(site, rows, np.zeros(size, dtype=bool))[0] if gated else None
    return Draw(
        shipped=float(100 * np.abs(before / true - 1).mean()),
        adapted=float(100 * np.abs(mid / true - 1).mean()),
        coverage=float(inside[answered].mean()),
        is_promoted=verdict is not None and verdict.is_promoted,
    )


@click.command()
@click.argument("csv", type=click.Path(exists=True, path_type=Path))
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path))
@click.option("--draws", default=5, show_default=True)
@click.option("--vendors", type=click.Choice(["nvidia", "all"]), default="nvidia")
@click.option("--gate/--no-gate", default=True)
@click.option("--site", "sites", multiple=True, type=click.Choice(list(BARS)), default=list(BARS))
@click.option("--without-b", type=float, help="Leave out models of so many 10**9 parameters.")
def main(*, csv: Path, keep: Path | None, sites: tuple[str, ...], **how: Any) -> None:
    """Print the table."""
    data = load_dataset([csv], lambda _: None)
    click.echo("output tok/s, mean MAPE in % of rows in cells not drawn; cover: of 80 % intervals")
    click.echo(f"{'site':28s} {'k':>4s} {'bar':>5s} {'shipped':>8s} {'adapted':>8s} {'cover':>6s} "
               f"{'promoted':>9s} {'harmful':>8s}")  # fmt: skip
    for source in sites:
        model = base_model(data, source, keep)
        chosen = data.groups["source"] == source
        if how["vendors"] == "nvidia":
            chosen &= data.table.labels["vendor"] == "nvidia"
        if how["without_b"] is not None:
            chosen &= np.round(data.table.numbers["params_b"]) != how["without_b"]
        site = site_of(model, data.take(np.flatnonzero(chosen)))
        for size, bar in zip(SIZES, BARS[source], strict=True):
            found = [draw(site, size, seed, gated=how["gate"]) for seed in range(how["draws"])]
            mean = {
                name: np.mean([getattr(each, name) for each in found])
                for name in ("shipped", "adapted", "coverage", "is_promoted", "is_harmful")
            }
            click.echo(
                f"{source:28s} {size:4d} {bar:5d} {mean['shipped']:8.1f} {mean['adapted']:8.1f} "
                f"{mean['coverage']:6.2f} {mean['is_promoted']:9.2f} {mean['is_harmful']:8.2f}"
            )


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
