"""The daemon's database, as commands that read it find it.

In: the options --config and --store, and times as people write them. Out: a connection and the
site's settings. Called by explain, tune, ingest and the reports.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from omnipilot_slurm.errors import StoreError, UsageError
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.store.database import open_for_reading, open_for_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SPAN_S: Final = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}
#: gives a command the option --config
config_option = click.option(
    "--config",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with the site's settings. [default: {SITE_FOLDER}]",
)
_OPTIONS = (
    config_option,
    click.option(
        "--store",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The daemon's database. [default: the one its settings name]",
    ),
)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --config and --store."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def site_folders(config: Path | None) -> list[Path]:
    """Return the folders whose files lie over the shipped ones."""
    return [folder for folder in (config or SITE_FOLDER,) if folder.is_dir()]


def store_path(config: Path | None, store: Path | None) -> Path:
    """Return where the database is: as given, else as the daemon's settings name it.

    Raises: UsageError where the site keeps none.
    """
    path = store or load_settings(site_folders(config)).settings.daemon.store
    if path is None:
        raise UsageError("daemon.store is null: no decisions are kept", hint="see omnipilot.yaml")
    return path


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading.

    Raises: StoreError when there is none, it cannot be read, or it is of another schema.
    """
    with closing(open_for_reading(path)) as connection:
        yield connection


@contextmanager
def opened_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for writing, made or brought up to date if need be.

    Raises: StoreError when it cannot be written, then or later.
    """
    try:
        with closing(open_for_writing(path)) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"{path}: cannot be written: {error}",
            hint="what was written before is kept; run this again, as root or the daemon's user, "
            "when there is room and nobody holds the database",
        ) from error


def since_time(text: str, now: float) -> float:
    """Return the Unix time that `--since` means: a span before now, or a local date and time.

    Raises: UsageError.
    """
    span = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([hdw])", text)
    if span is not None:
        return max(0.0, now - float(span[1]) * _SPAN_S[span[2]])
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--since must be a span (12h, 7d, 2w) or a date (2026-11-29), was {text!r}"
        ) from error
