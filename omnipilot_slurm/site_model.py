"""The site's own cost models in a folder: every one kept, one in force, or none.

In: a folder. Out: the path of the model in force, new ones put in force, the one before again.
Called by `omnipilot adapt`, which writes, and by whoever predicts for the site.

A model is a folder `NUMBER` that appears whole; the link `current` names the one in force and is
replaced in one step. A process killed at any point leaves the model that was in force before, or
the new one. The files may be read by everybody, as what is published may.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import ArtifactError
from omnipilot_slurm.predict import artifact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from omnipilot_slurm.predict.model import CostModel

_CURRENT, _LOCK, _UNFINISHED = "current", ".lock", ".unfinished"


def in_force(folder: Path) -> Path | None:
    """Return the folder of the model in force; None: the shipped one is."""
    link = folder / _CURRENT
    try:
        return folder / link.readlink()
    except OSError:
        # no link, no folder, or not ours to read: what ships is in force
        return None


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the models that are kept, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal())


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder against other writers; what they left unfinished is removed.

    Raises: ArtifactError when another process holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ArtifactError(
            f"{folder}: cannot be written: {error.strerror}", hint="daemon.model names the folder"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArtifactError(
                f"{folder}: another `omnipilot adapt` is at work", hint="try again later"
            ) from error
        shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
        yield
    finally:
        os.close(lock)


def promote(folder: Path, model: CostModel, about: Mapping[str, Any]) -> int:
    """Write a model as the next number, put it in force, and return its number.

    Raises: OSError; then the model before is in force. To be called inside `writing`.
    """
    number = max(numbers(folder), default=0) + 1
    unfinished = folder / _UNFINISHED
    artifact.write(unfinished, model, about)
    for path in (folder, unfinished):
        path.chmod(0o755)
    for path in unfinished.iterdir():
        path.chmod(0o644)
    unfinished.rename(folder / str(number))
    _put_in_force(folder, number)
    return number


def roll_back(folder: Path) -> int | None:
    """Put the model before the one in force into force; None: that is the shipped one.

    Models that were rolled back stay on disk, and a later rollback skips none.
    Raises: ArtifactError when the shipped one is in force already. To be called inside `writing`.
    """
    now = in_force(folder)
    if now is None:
        raise ArtifactError(
            f"{folder}: the shipped model is in force, there is none before it",
            hint="`omnipilot adapt` makes one of the site's rows",
        )
    before = [number for number in numbers(folder) if number < int(now.name)]
    if not before:
        (folder / _CURRENT).unlink()
        return None
    _put_in_force(folder, before[-1])
    return before[-1]


def _put_in_force(folder: Path, number: int) -> None:
    fresh = folder / f"{_CURRENT}.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(str(number))
    fresh.replace(folder / _CURRENT)
