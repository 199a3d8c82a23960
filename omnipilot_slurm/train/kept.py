"""Predictions out of fold kept on disk: an hour's work that a second look need not repeat.

In: a dataset, a split, a folder. Out: `Held`, read where it was kept, made and kept where not.
Called by evaluate, the benchmark and the report. The name of a file is the hash of everything that
its content depends on, the code included, so that nothing kept can be out of date.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train.evaluate import Held, held_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.ensembles import Settings

_PACKAGE = Path(__file__).parents[1]
#: the code that a prediction depends on, beside that of predict/
_CODE = (
    "dataset",
    "ensembles",
    "evaluate",
    "export",
    "fit",
    "folds",
    "kernel_fit",
    "neighbour",
    "physics",
)
_BOUNDS = ("lo", "mid", "hi")
_PLAIN = ("nearest", "tiers", "axes", "folds")


def kept(
    folder: Path | None,
    data: Dataset,
    split: str,
    settings: Settings,
    *,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Held:
    """Return `held_out` of these arguments; without a folder nothing is kept."""
    if folder is None:
        return held_out(data, split, settings, seed=seed, progress=progress)
    path = folder / f"{split}-{key_of(data, split, settings, seed)[:16]}.npz"
    try:
        return _read(path)
    except FileNotFoundError:
        progress(f"{split}: not in {folder} yet")
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        progress(f"{path}: cannot be read, made again: {error}")
    found = held_out(data, split, settings, seed=seed, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, found)
    return found


def key_of(data: Dataset, split: str, settings: Settings, seed: int | None) -> str:
    """Return a hash of the rows, the split, the settings, the folds' seed and the code."""
    digest = hashlib.sha256()
    sizes = {name: value for name, value in asdict(settings).items() if name != "n_jobs"}
    digest.update(repr((data.data_hash, split, sorted(sizes.items()), seed)).encode())
    for part in _parts(data):
        digest.update(part)
    return digest.hexdigest()


def _parts(data: Dataset) -> Iterator[bytes]:
    for columns in (data.table.numbers, data.table.labels, data.measured, data.groups):
        for name, values in sorted(columns.items()):
            yield name.encode() + values.tobytes()
    code = [_PACKAGE / "train" / f"{name}.py" for name in _CODE]
    for path in sorted([*(_PACKAGE / "predict").glob("*.py"), *code]):
        yield path.read_bytes()


def _write(path: Path, held: Held) -> None:
    arrays = {f"plain.{name}": getattr(held, name) for name in _PLAIN}
    arrays |= {f"physics.{name}": values for name, values in held.physics.items()}
    for target, bounds in held.targets.items():
        arrays |= {f"{bound}.{target}": getattr(bounds, bound) for bound in _BOUNDS}
    fresh = path.with_name(f".{path.name}")
    with fresh.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    fresh.replace(path)


def _read(path: Path) -> Held:
    # read whole before it is opened: numpy leaves a file that it cannot read open
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    targets = [name.partition(".")[2] for name in arrays if name.startswith("mid.")]
    return Held(
        targets={name: Bounds(*(arrays[f"{b}.{name}"] for b in _BOUNDS)) for name in targets},
        physics={
            name.partition(".")[2]: values
            for name, values in arrays.items()
            if name.startswith("physics.")
        },
        **{name: arrays[f"plain.{name}"] for name in _PLAIN},
    )
