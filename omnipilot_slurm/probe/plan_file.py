"""A plan of benchmarks in a folder: what to run, what is done, what it has cost.

In: a folder. Out: the same `Plan` again, and the ledger beside it. Called by `omnipilot probe`.
`plan.json` is written once; a task writes `done/CELL.json` when it ends, whole or not at all, and
`begun/CELL-TIME` when it begins, so that what a killed task has cost is known too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SCHEMA: Final = 1
_PLAN: Final = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One benchmark: the words of server and client ({port} stands for a free one), and its arm.

    `told` is what ingest is told of it. `max_minutes` ends it whatever its scatter.
    """

    name: str
    model: str
    gpu: str
    n_gpus: int
    serve: tuple[str, ...]
    bench: tuple[str, ...]
    told: Mapping[str, str]
    max_minutes: float
    worth_usd_per_h: float

    @property
    def max_gpu_hours(self) -> float:
        """The most that it may cost."""
        return self.n_gpus * self.max_minutes / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cells in the order of their worth, and what all of them may cost together."""

    budget_gpu_hours: float
    width_frac: float
    max_rounds: int
    cells: tuple[Cell, ...]


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a plan into a folder that has none.

    Raises: DataError where one is there already: its results are of that one.
    """
    if (folder / _PLAN).exists():
        raise DataError(f"{folder}: has a plan already", hint="name another folder, or resume it")
    for name in ("done", "begun", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _replace(folder / _PLAN, {"schema": SCHEMA, **asdict(plan)})


def read_plan(folder: Path) -> Plan:
    """Return the plan of a folder.

    Raises: DataError.
    """
    try:
        said = json.loads((folder / _PLAN).read_text(encoding="utf-8"))
        if said.pop("schema") != SCHEMA:
            raise DataError(f"{folder / _PLAN}: schema must be {SCHEMA}")
        cells = [
            Cell(**(cell | {"serve": tuple(cell["serve"]), "bench": tuple(cell["bench"])}))
            for cell in said.pop("cells")
        ]
        return Plan(cells=tuple(cells), **said)
    except OSError as error:
        raise DataError(
            f"{folder / _PLAN}: cannot be read: {error.strerror}",
            hint="`omnipilot probe plan` makes one",
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{folder / _PLAN}: must be a plan of schema {SCHEMA}: {error}") from error


def note_begin(folder: Path, cell: int, at: float) -> None:
    """Note that a cell is begun at a Unix time."""
    (folder / "begun" / f"{cell}-{at:.3f}").touch()


def note_end(folder: Path, cell: int, result: Mapping[str, object]) -> None:
    """Note how a cell ended, its `gpu_hours` included."""
    _replace(folder / "done" / f"{cell}.json", dict(result))


def ended(folder: Path) -> dict[int, dict[str, Any]]:
    """Return how the cells that are done ended, by their number."""
    return {
        int(path.stem): json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / "done").glob("*.json")
    }


def spent_gpu_hours(folder: Path, plan: Plan) -> float:
    """Return what has been spent: as measured of what ended, at most of what was only begun."""
    done = ended(folder)
    total = sum(float(each["gpu_hours"]) for each in done.values())
    for path in (folder / "begun").iterdir():
        cell = int(path.name.partition("-")[0])
        if path.name != str(done.get(cell, {}).get("begun")):
            total += plan.cells[cell].max_gpu_hours
    return total


def open_cells(folder: Path, plan: Plan) -> Sequence[int]:
    """Return the numbers of the cells that are not done."""
    done = ended(folder)
    return [number for number in range(len(plan.cells)) if number not in done]


def _replace(path: Path, value: object) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)
