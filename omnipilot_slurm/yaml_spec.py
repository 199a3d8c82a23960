"""What a place in a YAML file may hold: one small record for each kind, each checks its own node.

In: a node of yaml_tree. Out: a Python value, with every fault noted on the Check that travels
along. Called by strict_yaml, which re-exports the specs; its head shows how they are used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from omnipilot_slurm.errors import Fault, near_names
from omnipilot_slurm.yaml_tree import Items, Node, Pairs, Scalar, fault_at
from omnipilot_slurm.yaml_words import FALSE, NULL, NUMBER, TRUE, trap, unknown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: how many characters of a value a message repeats
_SHOWN = 60
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")


class Spec(Protocol):
    """What a place may hold."""

    def check(self, node: Node, path: str, check: Check) -> Any:
        """Return the value of a node, noting on `check` what is wrong with it."""

    def describe(self) -> str:
        """Return what the place must be, in words that follow 'must be'."""


@dataclass(slots=True)
class Check:
    """The faults found so far."""

    faults: list[Fault]

    def fault(self, node: Node, path: str, message: str) -> None:
        """Note what is wrong at a node; `path` is its dotted key."""
        self.faults.append(fault_at(node, f"{path}: {message}" if path else message))

    def mismatch(self, node: Node, path: str, spec: Spec, advice: str = "") -> None:
        """Note that a node is not what its spec describes."""
        ending = f"; {advice}" if advice else ""
        self.fault(node, path, f"must be {spec.describe()}, was {shown(node)}{ending}")


def shown(node: Node) -> str:
    """Return what stands at a node, short enough for a message."""
    if isinstance(node, Items):
        return f"a list of {len(node.items)}"
    if isinstance(node, Pairs):
        return f"a mapping of {len(node.pairs)}"
    if node.plain and node.text in NULL:
        return "nothing"
    return repr(node.text if len(node.text) <= _SHOWN else f"{node.text[:_SHOWN]}...")


def _unquoted(node: Scalar, kind: str) -> str:
    """Say what to write where a number or flag is expected and `node` is neither."""
    if not node.plain:
        return "write it without quotes"
    reading = trap(node.text)
    if reading not in (None, "nothing", "a number"):
        return f"YAML 1.1 reads it as {reading}; write {kind}"
    if re.fullmatch(r"[-+]?[0-9.]+ *[A-Za-z%]+", node.text):
        return "the unit is in the key; write the number alone"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A word or text; `choices` closes the set, `pattern` is a regular expression `means` names."""

    choices: tuple[str, ...] = ()
    pattern: str = ""
    means: str = "text"
    max_length: int = 2000
    empty: bool = False

    def describe(self) -> str:
        """Say the choices, or what the text means."""
        return f"one of {', '.join(self.choices)}" if self.choices else self.means

    def check(self, node: Node, path: str, check: Check) -> str:
        """Return the text."""
        if not isinstance(node, Scalar):
            check.mismatch(node, path, self)
            return ""
        reading = trap(node.text) if node.plain else None
        if reading == "nothing" and not self.empty:
            check.mismatch(node, path, self)
        elif reading not in (None, "nothing"):
            advice = f'YAML 1.1 reads it as {reading}; write "{node.text}" in quotes'
            check.mismatch(node, path, self, advice)
        elif not self._fits(node.text):
            near = near_names(node.text, self.choices, n=1)
            check.mismatch(node, path, self, f"did you mean {near[0]!r}" if near else "")
        return node.text

    def _fits(self, text: str) -> bool:
        if self.choices:
            return text in self.choices
        if len(text) > self.max_length or not (text or self.empty):
            return False
        return not self.pattern or re.fullmatch(self.pattern, text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number in decimal, lo <= value <= hi."""

    lo: int | None = None
    hi: int | None = None

    def describe(self) -> str:
        """Say the range."""
        return f"a whole number{_range(self.lo, self.hi)}"

    def check(self, node: Node, path: str, check: Check) -> int:
        """Return the number."""
        if not isinstance(node, Scalar):
            check.mismatch(node, path, self)
        elif not (node.plain and _INTEGER.fullmatch(node.text)):
            check.mismatch(node, path, self, _unquoted(node, "the digits in decimal"))
        elif _outside(int(node.text), self.lo, self.hi):
            check.mismatch(node, path, self)
        else:
            return int(node.text)
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A finite number, lo <= value <= hi and value > above; `2e-6` and `2.0e-6` are the same."""

    lo: float | None = None
    hi: float | None = None
    above: float | None = None

    def describe(self) -> str:
        """Say the range."""
        above = "" if self.above is None else f" above {self.above}"
        return f"a number{above}{_range(self.lo, self.hi)}"

    def check(self, node: Node, path: str, check: Check) -> float:
        """Return the number."""
        if not isinstance(node, Scalar):
            check.mismatch(node, path, self)
        elif not (node.plain and NUMBER.fullmatch(node.text)):
            check.mismatch(node, path, self, _unquoted(node, "the number in decimal"))
        else:
            value = float(node.text)
            too_low = self.above is not None and value <= self.above
            if math.isfinite(value) and not too_low and not _outside(value, self.lo, self.hi):
                return value
            check.mismatch(node, path, self)
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """`true` or `false`, written so."""

    def describe(self) -> str:
        """Say the two words."""
        return "true or false"

    def check(self, node: Node, path: str, check: Check) -> bool:
        """Return the flag."""
        if isinstance(node, Scalar) and node.plain and node.text in {"true", "false"}:
            return node.text == "true"
        word = node.text.casefold() if isinstance(node, Scalar) else ""
        meant = "true" if word in TRUE else "false" if word in FALSE else None
        check.mismatch(node, path, self, f"write {meant} without quotes" if meant else "")
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nullable:
    """What `of` allows, or `null` for None."""

    of: Spec

    def describe(self) -> str:
        """Say what it wraps, or null."""
        return f"{self.of.describe()} or null"

    def check(self, node: Node, path: str, check: Check) -> Any:
        """Return None or the value."""
        if isinstance(node, Scalar) and node.plain and node.text in {"null", "~"}:
            return None
        return self.of.check(node, path, check)


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several kinds that fits; list the narrow ones first."""

    specs: tuple[Spec, ...]

    def describe(self) -> str:
        """Say all of them."""
        return " or ".join(spec.describe() for spec in self.specs)

    def check(self, node: Node, path: str, check: Check) -> Any:
        """Return the value of the first kind that fits."""
        for spec in self.specs:
            trial = Check([])
            value = spec.check(node, path, trial)
            if not trial.faults:
                return value
        check.mismatch(node, path, self)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list of one kind, as a tuple."""

    item: Spec
    min_items: int = 0
    max_items: int = 10_000

    def describe(self) -> str:
        """Say the kind of its items."""
        return f"a list, each {self.item.describe()}"

    def check(self, node: Node, path: str, check: Check) -> tuple[Any, ...]:
        """Return the items."""
        if not isinstance(node, Items):
            check.mismatch(node, path, self, "put it in [ ]" if isinstance(node, Scalar) else "")
            return ()
        if not self.min_items <= len(node.items) <= self.max_items:
            bounds = f"{self.min_items} to {self.max_items} items"
            check.fault(node, path, f"must have {bounds}, was {len(node.items)}")
        return tuple(
            self.item.check(item, f"{path}[{position}]", check)
            for position, item in enumerate(node.items)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping from names the site chooses to values of one kind, as a dict."""

    value: Spec
    key: Text | Integer = field(default_factory=lambda: Text(means="a name"))
    max_items: int = 20_000

    def describe(self) -> str:
        """Say the kind of its values."""
        return f"a mapping, each value {self.value.describe()}"

    def check(self, node: Node, path: str, check: Check) -> dict[Any, Any]:
        """Return the pairs, in the order written."""
        if not isinstance(node, Pairs):
            check.mismatch(node, path, self)
            return {}
        if len(node.pairs) > self.max_items:
            check.fault(node, path, f"must have at most {self.max_items} keys")
        return {
            self.key.check(key, f"a key of {path}" if path else "a key", check): self.value.check(
                value, _join(path, text), check
            )
            for text, (key, value) in node.pairs.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping of known keys, all there but the `optional` ones; a dict, or the record `into`."""

    keys: Mapping[str, Spec]
    optional: frozenset[str] = frozenset()
    into: Callable[..., Any] | None = None

    def describe(self) -> str:
        """Say the keys."""
        return f"a mapping of {', '.join(self.keys)}"

    def check(self, node: Node, path: str, check: Check) -> Any:
        """Return the record or the dict; an optional key that is absent stays absent."""
        if not isinstance(node, Pairs):
            check.mismatch(node, path, self)
            return None
        n_before = len(check.faults)
        values = {}
        for text, (key, value) in node.pairs.items():
            spec = self.keys.get(text)
            if spec is None:
                check.fault(key, path, unknown_key(text, self.keys))
            else:
                values[text] = spec.check(value, _join(path, text), check)
        missing = [key for key in self.keys if key not in node.pairs and key not in self.optional]
        for name in missing:
            wanted = self.keys[name].describe()
            check.fault(node, _join(path, name), f"is missing; it must be {wanted}")
        if self.into is None or len(check.faults) > n_before:
            return values
        return self.into(**values)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _range(lo: float | None, hi: float | None) -> str:
    if lo is not None and hi is not None:
        return f" from {lo} to {hi}"
    if lo is not None:
        return f" of at least {lo}"
    return "" if hi is None else f" of at most {hi}"


def _outside(value: float, lo: float | None, hi: float | None) -> bool:
    return (lo is not None and value < lo) or (hi is not None and value > hi)
