"""The command-line grammar of a set of vLLM versions: which words are options, and what they take.

In: a version string, a partial one ("0.8") or None (unknown). Out: a Grammar that answers for every
known version the string may stand for, from the rows of options.py. Called by flags.py.
A version that was not read stands for its two neighbours; postN and its release for each other.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from omnipilot_slurm.vllm import options
from omnipilot_slurm.vllm.versions import find_key, parse_version

#: forms of launch -> the marks in options.py that exclude an option from them
_EXCLUDED = {
    "vllm serve": "LN",
    "openai.api_server": "SL",
    "docker entrypoint": "SL",
    "api_server": "SA",
}
FORMS = tuple(_EXCLUDED)
_KEYS = tuple(parse_version(version) for version in options.VERSIONS)
_N = len(_KEYS)
EVERY = (1 << _N) - 1
_ENOUGH = 0.6


class Option(NamedTuple):
    """One option string: where it stores, how it converts (see options.py), what it takes.

    `takes` is "" for a flag, "1" for one value, "?" or "+"; `is_on` is what a flag sets;
    `versions` has a bit for each position in options.VERSIONS.
    """

    dest: str
    letter: str
    nullable: bool
    takes: str
    is_on: bool
    versions: int


def mask(ranges: str) -> int:
    """Return the bits of version ranges as options.py writes them ("0-3,7-")."""
    bits = 0
    for run in ranges.split(","):
        first, dash, last = run.partition("-")
        end = int(last) if last else (_N - 1 if dash else int(first))
        bits |= (1 << (end + 1)) - (1 << int(first))
    return bits


def since(version: str) -> int:
    """Return the bits of all known versions from `version` on."""
    return EVERY & ~((1 << bisect_left(_KEYS, parse_version(version))) - 1)


def before(version: str) -> int:
    """Return the bits of all known versions before `version`."""
    return EVERY & ~since(version)


def span(bits: int) -> str:
    """Say in words which of the known versions some bits are ("from 0.8.3 to 0.17.1")."""
    first = options.VERSIONS[(bits & -bits).bit_length() - 1]
    last = options.VERSIONS[bits.bit_length() - 1]
    if first == last:
        return f"in {first} only"
    if bits.bit_length() == _N:
        return f"from {first}"
    return f"up to {last}" if bits & 1 else f"from {first} to {last}"


@lru_cache(maxsize=256)
def candidates(version: str | None) -> int:
    """Return the bits of the known versions that a version string may stand for."""
    key = find_key(version) if version is not None else None
    if key is None:
        return EVERY
    if key in _KEYS:
        return 1 << _KEYS.index(key)
    n = 2 if key.is_partial else None
    same = sum(1 << i for i, known in enumerate(_KEYS) if known.release[:n] == key.release)
    if same and key.stage >= 0:
        return same
    above = bisect_left(_KEYS, key)
    return (1 << max(above - 1, 0)) | (1 << min(above, _N - 1))


def is_beyond(version: str | None) -> bool:
    """Whether a version is older or newer than all that were read."""
    key = find_key(version) if version is not None else None
    return key is not None and not _KEYS[0].release <= key.release <= _KEYS[-1].release


class Grammar:
    """What the parsers of `versions` (bits) accept in one form of launch."""

    def __init__(self, form: str, versions: int) -> None:
        self.form = form
        self.versions = versions
        self.options: dict[str, tuple[Option, ...]] = {}
        for row in _rows():
            if row.versions & versions and not set(row.scope) & set(_EXCLUDED[form]):
                self._add(row)
        self._sorted = sorted(self.options)

    def _add(self, row: _Row) -> None:
        bits = row.versions & self.versions
        for string, is_on in row.strings:
            option = Option(row.dest, row.letter, row.nullable, row.takes, is_on, bits)
            self.options[string] = (option, *self.options.get(string, ()))

    def holds(self, bits: int) -> bool | None:
        """Whether something true of the versions `bits` holds here; None: of some, not all."""
        here = self.versions & bits
        return here == self.versions if here in (0, self.versions) else None

    def starting_with(self, prefix: str) -> list[str]:
        """Return the option strings that start with `prefix`, in order."""
        first = bisect_left(self._sorted, prefix)
        found = []
        for string in self._sorted[first:]:
            if not string.startswith(prefix):
                break
            found.append(string)
        return found

    def refusing(self, dest: str, value: str) -> int:
        """Return the bits of the versions whose choices for an option lack a value (~: None)."""
        table = _names()[0].get(dest)
        return table[""] & self.versions & ~table.get(value, 0) if table else 0

    def refusing_key(self, dest: str, key: str) -> int:
        """Return the bits of the versions whose JSON for an option may not have a key."""
        table = _names()[1].get(dest)
        return table[""] & self.versions & ~table.get(key, 0) if table else 0

    def neighbour(self, name: str) -> str | None:
        """Return the option string that shares the longest start with `name`, if long enough."""
        at = bisect_left(self._sorted, name)
        near = self._sorted[max(at - 1, 0) : at + 1]
        best = max(near, key=lambda string: _n_shared(string, name), default=None)
        return best if best and _n_shared(best, name) >= _ENOUGH * len(name) else None

    def completing(self, found: list[str]) -> tuple[list[str], bool]:
        """Return which of the options a prefix matches it means where it means just one.

        Also whether it means just one in every version.
        """
        bits_of = {string: self.known(string) for string in found}
        once = again = 0
        for bits in bits_of.values():
            again |= once & bits
            once |= bits
        alone = once & ~again
        return [s for s, bits in bits_of.items() if bits & alone], alone == self.versions

    def known(self, string: str) -> int:
        """Return the bits of the versions that have an option string."""
        return reduce(or_, (option.versions for option in self.options[string]))


def grammar(form: str, version: str | None) -> Grammar:
    """Return the grammar of a form of launch for the versions that `version` may stand for."""
    return _grammar(form, candidates(version))


@lru_cache(maxsize=32)
def _grammar(form: str, versions: int) -> Grammar:
    return Grammar(form, versions)


def _n_shared(one: str, other: str) -> int:
    same = (a == b for a, b in zip(one, other, strict=False))
    return next((i for i, alike in enumerate(same) if not alike), min(len(one), len(other)))


class _Row(NamedTuple):
    dest: str
    letter: str
    nullable: bool
    takes: str
    scope: str
    strings: tuple[tuple[str, bool], ...]
    versions: int


@lru_cache(maxsize=1)
def _rows() -> tuple[_Row, ...]:
    rows = []
    for line in options.OPTIONS.splitlines():
        dest, kind, strings, ranges = line.split(" ")
        letter, rest = kind[0], kind[1:]
        takes = "" if letter in "fbeq" else "".join(c for c in rest if c in "+?*") or "1"
        scope = "".join(c for c in rest if c in "SNAL")
        spelled = _spellings(letter, strings.split(","))
        rows.append(_Row(dest, letter, "n" in rest, takes, scope, spelled, mask(ranges)))
    return tuple(sorted(rows, key=lambda row: row.versions.bit_length()))


def _spellings(letter: str, strings: list[str]) -> tuple[tuple[str, bool], ...]:
    spelled = [(string, True) for string in strings]
    long = [string[2:] for string in strings if string.startswith("--")]
    if letter in "be":
        spelled += [(f"--no-{name}", False) for name in long]
    if letter == "e":
        for name in long:
            if name.startswith("enable-"):
                spelled.append((f"--disable-{name[7:]}", False))
            elif name.startswith("disable-"):
                spelled.append((f"--enable-{name[8:]}", False))
    return tuple(spelled)


@lru_cache(maxsize=1)
def _names() -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Return the tables of choices and of JSON keys: dest -> name -> bits of its versions.

    The name "" has the bits of all versions that restrict the option.
    """
    return _name_table(options.CHOICES), _name_table(options.KEYS)


def _name_table(text: str) -> dict[str, dict[str, int]]:
    table = {}
    for line in text.splitlines():
        dest, *cells = line.split(" ")
        bits_of: dict[str, int] = {}
        for cell in cells:
            ranges, _, names = cell.partition(":")
            bits = mask(ranges)
            for name in ("", *names.split("|")):
                bits_of[name] = bits_of.get(name, 0) | bits
        table[dest] = bits_of
    return table
