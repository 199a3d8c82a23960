"""Words that do not mean in YAML 1.1 what they look like, and keys that are nearly right.

In: a plain word or a key. Out: what YAML 1.1 makes of the word, or the message for the key.
Called by yaml_spec.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Iterable

#: endings by which a key says its unit, the longest first where one ends in another
UNITS = (
    "usd_per_output_token", "usd_per_gpu_hour", "usd_per_hour", "usd_per_kwh", "usd",
    "per_second", "per_s", "tok_s", "gb_s", "tflops", "billion", "bytes", "kib", "mib", "gib",
    "gb", "ms", "s", "seconds", "min", "minutes", "h", "hours", "d", "days", "w", "frac",
    "percent", "tokens",
)  # fmt: skip

NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
NULL = {"", "~", "null", "Null", "NULL"}
TRUE = {"y", "yes", "on", "true"}
FALSE = {"n", "no", "off", "false"}
_FLAGS = TRUE | FALSE


def trap(text: str) -> str | None:
    """Return what YAML 1.1 reads a plain word as where that is not the word itself."""
    if text in NULL:
        return "nothing"
    if text.casefold() in _FLAGS:
        return "true" if text.casefold() in TRUE else "false"
    if text[0].isalpha():
        return None
    if re.fullmatch(r"[-+]?0[0-7_]+", text):
        return "an octal number"
    if re.fullmatch(r"[-+]?0[xb][0-9a-fA-F_]+", text):
        return "a hexadecimal or binary number"
    if re.fullmatch(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", text):
        return "a number in base 60"
    if re.fullmatch(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?", text):
        return "a date"
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        return "a number that is not finite"
    if NUMBER.fullmatch(text) or re.fullmatch(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?", text):
        return "a number"
    return None


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the message for a key that no schema has, with the one that was probably meant."""
    names = tuple(known)
    message = f"unknown key {key!r}"
    twins = [name for name in names if _stem(name) == _stem(key)]
    if twins:
        return f"{message}: did you mean {twins[0]!r}; a key carries its unit"
    near = near_names(key, names, n=1)
    if near:
        return f"{message}: did you mean {near[0]!r}"
    return f"{message}; it must be one of {', '.join(names)}"


def _stem(key: str) -> str:
    """Return a key without its unit."""
    for unit in UNITS:
        if key.endswith(f"_{unit}"):
            return key[: -len(unit) - 1]
    return key
