"""Fit the coefficients of start-up memory on public figures.

    python -m omnipilot_slurm.train.startup tests/fixtures/startup_figures.yaml

In: rows of what a server logged that it holds, the model catalog, the coefficients in force. Out:
for each coefficient and era the interval [lo, mid, hi]: the median of what the rows imply, and
their range widened by half of itself on either side. A few rows only widen the interval in force,
and one that no row says anything of is kept. Prints the body of etc/startup.yaml.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Interval
from omnipilot_slurm.resources import read_layers
from omnipilot_slurm.startup_file import COMMON, OF_ERA, load_startup
from omnipilot_slurm.strict_yaml import Flag, Integer, ListOf, Nullable, Number, Section, Text, load
from omnipilot_slurm.vllm.checks.quantization import quantization_in_force
from omnipilot_slurm.vllm.eras import possible_eras
from omnipilot_slurm.vllm.overhead import GIB, EraCoefficients, StartupCoefficients, widths
from omnipilot_slurm.vllm.shards import weights_gib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omnipilot_slurm.facts import ModelFacts

FIGURES_VERSION = 1
_BYTES = 2.0
#: a coefficient's name -> how much wider than its range it is at least, on either side
_LEAST = {
    "weights_frac": 0.01,
    "plain_weights_frac": 0.005,
    "sampler_bytes": 1.0,
    "activation_frac": 0.1,
    "non_torch_gib": 0.15,
    "non_torch_parallel_gib": 0.3,
    "non_torch_pcie_gib": 0.15,
    "graphs_gib": 0.3,
}
#: from that many rows on the interval in force has no say
_ENOUGH = 3
#: from here on a bound is printed without decimals
_WHOLE = 1000
_PARTS = ("weights", "activation", "non_torch", "graphs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What one server logged, in GiB a GPU; None: not logged or not known.

    `pcie`: its GPUs are several and have no NVLink.
    """

    id: str
    source: str
    model: str
    version: str
    total_gib: float
    utilization: float
    tensor_parallel: int
    tokens: int | None
    seqs: int | None
    weights_gib: float
    activation_gib: float | None
    non_torch_gib: float | None
    graphs_gib: float | None
    kv_gib: float | None
    fits: tuple[str, ...]
    note: str
    pcie: bool = False


_FIGURE = Section(
    keys={
        "id": Text(),
        "source": Text(),
        "model": Text(),
        "version": Text(),
        "total_gib": Number(above=0),
        "utilization": Number(above=0),
        "tensor_parallel": Integer(lo=1),
        "tokens": Nullable(of=Integer(lo=1)),
        "seqs": Nullable(of=Integer(lo=1)),
        "weights_gib": Number(above=0),
        "activation_gib": Nullable(of=Number()),
        "non_torch_gib": Nullable(of=Number()),
        "graphs_gib": Nullable(of=Number()),
        "kv_gib": Nullable(of=Number()),
        "fits": ListOf(item=Text(choices=_PARTS)),
        "note": Text(),
        "pcie": Flag(),
    },
    optional=frozenset({"pcie"}),
    into=Figure,
)
_SPEC = Section(keys={"figures": ListOf(item=_FIGURE, min_items=1)})


def read_figures(path: Path) -> tuple[Figure, ...]:
    """Return the rows of a file of figures.

    Raises: ConfigError with every fault.
    """
    loaded = load(read_layers([path]), _SPEC, version=FIGURES_VERSION)
    figures: tuple[Figure, ...] = loaded.value["figures"]
    return figures


def fit(
    figures: Sequence[Figure],
    model_of: Callable[[str], ModelFacts],
    prior: StartupCoefficients,
) -> tuple[StartupCoefficients, Mapping[str, int]]:
    """Return the coefficients, and by name (`era.name`) how many rows each rests on.

    What no row implies stays as `prior` has it.
    """
    implied: dict[str, list[float]] = defaultdict(list)
    for figure in figures:
        for name, value in _implied(figure, model_of(figure.model), prior).items():
            implied[name].append(value)
    counts = {name: len(values) for name, values in implied.items()}
    eras = {
        era: replace(
            held,
            **{
                name: widened(implied[f"{era}.{name}"], _LEAST[name], getattr(held, name))
                for name in _LEAST.keys() & set(OF_ERA)
                if implied.get(f"{era}.{name}")
            },
        )
        for era, held in prior.eras.items()
    }
    weights: dict[str, Any] = {
        name: widened(implied[name], _LEAST[name], getattr(prior, name))
        for name in _LEAST.keys() & set(COMMON)
        if implied.get(name)
    }
    return replace(prior, **weights, eras=eras), counts


def widened(values: Sequence[float], least: float, held: Interval) -> Interval:
    """Return [lo, mid, hi] of values: their median and range, widened by half of the range.

    Six values leave one in seven outside their range; half of it on either side is for that, and
    for the cards and models that no report covers. Fewer than three only widen what is held.
    """
    lo, mid, hi = min(values), median(values), max(values)
    margin = max((hi - lo) / 2, least)
    lo, hi = max(lo - margin, 0.0), hi + margin
    if len(values) < _ENOUGH:
        lo, hi = min(lo, held.lo), max(hi, held.hi)
    return Interval(lo=lo, mid=mid, hi=hi)


def _implied(figure: Figure, model: ModelFacts, prior: StartupCoefficients) -> dict[str, float]:
    """Return what one row implies of each coefficient that it says something of."""
    era = _era(figure, model)
    held, found = prior.eras[era], {}
    if "weights" in figure.fits:
        name = "weights_frac" if model.quantization or model.experts else "plain_weights_frac"
        found[name] = figure.weights_gib / _computed_weights(model, figure)
    if "activation" in figure.fits:
        found |= {f"{era}.{k}": v for k, v in _activation(figure, model, held, prior).items()}
    if "non_torch" in figure.fits:
        name, grown = _non_torch_name(figure), 0.0
        if name == "non_torch_parallel_gib":
            grown = held.non_torch_per_gpu_gib.mid * (figure.tensor_parallel - 2)
        found[f"{era}.{name}"] = max(_non_torch(figure, model, held, prior) - grown, 0.0)
    if "graphs" in figure.fits and figure.graphs_gib is not None:
        layers = held.graphs_per_layer_gib.mid * model.layers
        found[f"{era}.graphs_gib"] = max(figure.graphs_gib - layers, 0.0)
    return found


def _non_torch_name(figure: Figure) -> str:
    if figure.tensor_parallel == 1:
        return "non_torch_gib"
    return "non_torch_pcie_gib" if figure.pcie else "non_torch_parallel_gib"


def _era(figure: Figure, model: ModelFacts) -> str:
    """Return a row's era; V0 by its note where one version runs both engines."""
    eras = [era for _, group in possible_eras(figure.version, model.architecture) for era in group]
    return eras[0].name if "V0" in figure.note or len(eras) == 1 else eras[-1].name


def _computed_weights(model: ModelFacts, figure: Figure) -> float:
    return weights_gib(
        model,
        quantization_in_force(model, EngineArgs()),
        dtype_bytes=_BYTES,
        tensor_parallel=figure.tensor_parallel,
    ).mid


def _peaks(
    figure: Figure, model: ModelFacts, held: EraCoefficients, prior: StartupCoefficients
) -> tuple[float, float]:
    """Return the forward pass's and the sampler's computed peak, in GiB."""
    tokens, seqs = figure.tokens or 0, figure.seqs or 0
    wide = widths(model, figure.tensor_parallel, _BYTES)
    rows = prior.hidden_copies.mid + (1.0 if wide.parallel else 0.0)
    forward = tokens * _BYTES * (wide.layer + rows * model.hidden) / GIB
    states = tokens * _BYTES * model.hidden / GIB
    return forward, states + min(seqs, tokens) * model.vocab * held.sampler_bytes.mid / GIB


def _activation(
    figure: Figure, model: ModelFacts, held: EraCoefficients, prior: StartupCoefficients
) -> dict[str, float]:
    forward, sampled = _peaks(figure, model, held, prior)
    measured = figure.activation_gib or 0.0
    if forward > sampled:
        return {"activation_frac": measured / forward}
    states = (figure.tokens or 0) * _BYTES * model.hidden / GIB
    return {"sampler_bytes": (measured - states) * GIB / ((figure.seqs or 1) * model.vocab)}


def _non_torch(
    figure: Figure, model: ModelFacts, held: EraCoefficients, prior: StartupCoefficients
) -> float:
    """Return what was logged, or what the cache's size leaves for it."""
    if figure.non_torch_gib is not None:
        return figure.non_torch_gib
    activation = figure.activation_gib
    if activation is None:
        activation = max(_peaks(figure, model, held, prior))
    budget = figure.total_gib * figure.utilization
    return budget - figure.weights_gib - activation - (figure.kv_gib or 0.0)


def main(path: Path) -> None:
    """Print the fit as the body of startup.yaml."""
    catalog, prior = Catalog.load(site=None), load_startup()
    fitted, counts = fit(read_figures(path), lambda name: catalog.model(name).facts, prior)
    for name in COMMON:
        _show(name, getattr(fitted, name), counts.get(name, 0))
    sys.stdout.write(f"draft_frac: {fitted.draft_frac}  # assumed\n\neras:\n")
    for era, held in fitted.eras.items():
        sys.stdout.write(f"  {era}:\n")
        for name in OF_ERA:
            _show(f"    {name}", getattr(held, name), counts.get(f"{era}.{name}", 0))


def _show(name: str, interval: Interval, n_rows: int) -> None:
    bounds = ", ".join(
        f"{bound:.4g}" if bound < _WHOLE else f"{bound:.0f}"
        for bound in (interval.lo, interval.mid, interval.hi)
    )
    rests_on = f"{n_rows} row{'s' if n_rows > 1 else ''}" if n_rows else "assumed"
    sys.stdout.write(f"{name}: [{bounds}]  # {rests_on}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
