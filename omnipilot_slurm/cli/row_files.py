"""Files of measured rows on a command line: `--data CSV [CSV]...`.

In: a command. Out: the command with its files as `first` and `more`. Called by what trains, judges
and draws the cost model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def row_files(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --data and the files behind it."""
    more = click.argument("more", nargs=-1, type=_FILE, metavar="[CSV]...")
    first = click.option(
        "--data", "first", multiple=True, required=True, type=_FILE, help="Rows of the tidy schema."
    )
    return first(more(command))
