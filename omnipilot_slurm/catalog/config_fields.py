"""Typed reading of a parsed config.json: a field is there and right, absent, or a CatalogError.

In: any JSON value. Out: numbers, words and inner objects within sane bounds. Called by
hf_config and its neighbours; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: no width, count or length of a real model comes near it
MAX_NUMBER = 10**9
MAX_LAYERS = 2000
#: how many characters of a value a message repeats
_SHOWN = 60


class Fields:
    """One object of a config.json; `where` is its path in messages."""

    def __init__(self, values: Mapping[str, object], where: str = "config.json") -> None:
        self.values = values
        self.where = where

    def has(self, *names: str) -> bool:
        """Tell whether one of the names is there and not null."""
        return any(self.values.get(name) is not None for name in names)

    def count(self, *names: str) -> int | None:
        """Return the first of several whole numbers >= 0 that is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, list) and value:  # some files give one number a layer
                value = value[0]
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 0 <= int(value) <= MAX_NUMBER:  # type: ignore[call-overload]
                raise self.wrong(name, f"a whole number from 0 to {MAX_NUMBER}", value)
            return int(value)  # type: ignore[call-overload, no-any-return]
        return None

    def need(self, *names: str) -> int:
        """Return a whole number > 0 that must be there."""
        value = self.count(*names)
        if not value:
            missing = " or ".join(names)
            raise CatalogError(f"{self.where} has no {missing}, which the formulas need")
        return value

    def number(self, name: str) -> float | None:
        """Return a number, or None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "a number", value)
        if not abs(value) <= MAX_NUMBER:
            raise self.wrong(name, f"a number up to {MAX_NUMBER}", value)
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def word(self, *names: str) -> str | None:
        """Return the first text that is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise self.wrong(name, "text", value)
            return value
        return None

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of words, empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of words", value)
        return tuple(value[:MAX_LAYERS])

    def counts(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise self.wrong(name, "a list of whole numbers", value)
        return tuple(value[:MAX_LAYERS])

    def inner(self, *names: str) -> Fields | None:
        """Return the first inner object that is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, dict):
                raise self.wrong(name, "an object", value)
            return Fields(value, f"{self.where}.{name}")
        return None

    def inners(self, name: str) -> tuple[Fields, ...]:
        """Return a list of objects, empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(name, "a list of objects", value)
        where = f"{self.where}.{name}"
        return tuple(Fields(item, f"{where}[{n}]") for n, item in enumerate(value[:MAX_LAYERS]))

    def wrong(self, name: str, must_be: str, value: object) -> CatalogError:
        """Return the error for a field that is not what it must be."""
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        return CatalogError(f"{self.where}: {name} must be {must_be}, was {shown}")
