"""Everything this package raises on purpose, drawn as a tree.

OmnipilotError
├── UsageError        the caller asked for something that cannot be asked
├── ConfigError       YAML of etc/ does not say what it must (carries every fault at once)
├── CatalogError      a model or GPU that the catalogs do not know (carries near names)
├── DataError         rows, dumps or result files that do not fit their schema
├── ProtocolError     a line on the socket that is not a message of this protocol
├── ArtifactError     a cost model that must not be used
├── SlurmError        a Slurm command failed or answered something else
├── SandboxError      the throwaway Slurm could not be brought up or down
└── StoreError        the site's database cannot be read or written

Every error carries a hint: what to do next, in one line, or "" where nothing helps.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class OmnipilotError(Exception):
    """Base of all errors of this package; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(OmnipilotError):
    """The caller asked for something that cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One place in a configuration file that is wrong; `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class ConfigError(OmnipilotError):
    """Configuration that must not be used; `faults` lists every fault found."""

    def __init__(self, faults: Sequence[Fault], *, hint: str = "") -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint)
        self.faults = tuple(faults)


class CatalogError(OmnipilotError):
    """A name that the catalogs do not know; `near` lists the closest known ones."""

    def __init__(self, message: str, *, near: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.near = tuple(near)


class DataError(OmnipilotError):
    """Rows, dumps or result files that do not fit their schema."""


class ProtocolError(OmnipilotError):
    """A line on the socket that is not a message of this protocol; `code` goes into the answer."""

    def __init__(self, message: str, *, code: str = "message", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ArtifactError(OmnipilotError):
    """A cost model that must not be used: truncated, swapped, of another schema, or not finite."""


class SlurmError(OmnipilotError):
    """A Slurm command failed or answered something that cannot be read."""


class SandboxError(OmnipilotError):
    """The throwaway Slurm could not be brought up or down."""


class StoreError(OmnipilotError):
    """The site's database cannot be read or written."""


def near_names(name: str, known: Iterable[str], *, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` known names closest to `name`, nearest first, ignoring case."""
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=n, cutoff=0.6)
    return tuple(folded[candidate] for candidate in close)
