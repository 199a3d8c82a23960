"""Groups whose subcommands are imported when they are called, from a table.

In: a table of names. Out: a click group that lists the names without loading what is behind them,
so that a thin command starts in the time that click needs. Used by main.py and report.py.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class Subcommand(NamedTuple):
    """Where a subcommand is (`module:attribute`), and its line in the list of commands."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, *args: Any, table: Mapping[str, Subcommand], **others: Any) -> None:
        super().__init__(*args, **others)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        """Return the names in the table, in order."""
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 click's signature
        """Import and return the command of that name; None when there is none."""
        known = self.table.get(cmd_name)
        if known is None:
            return None
        module, attribute = known.target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 click's signature
        """Write the list of commands."""
        rows = [(name, self.table[name].summary) for name in sorted(self.table)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
