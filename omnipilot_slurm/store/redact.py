"""Taking secrets out of what is stored, and making it JSON whatever it was.

Pure. In: any value of a decision's record. Out: the same as JSON types, API keys, tokens and
passwords replaced. Called for every text that goes into a row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

REDACTED = "[redacted]"
MAX_DEPTH = 12

_NAME = (
    r"(?:api[-_]?k(?:ey?)?|(?:hf|auth|access|bearer)[-_]?token|access[-_]?key|secret|passw(?:or)?d|"
    r"credentials?)"
)
_OPTION = rf"--(?:[\w-]*[-_])?{_NAME}"
_SECRET_OPTION = re.compile(_OPTION, re.IGNORECASE)
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"';&|<>]+)"""
#: an option takes several keys: all words up to the next option or the command's end. Both patterns
#: begin at the start of a word only, or a long word would take the square of its length
_AFTER_OPTION = re.compile(
    rf"(?<![\w-])({_OPTION})(?:=|\s+(?!-)){_VALUE}(?:[ \t]+(?!-){_VALUE})*", re.IGNORECASE
)
_ASSIGNED = re.compile(
    rf"\b(?=\w+=)(\w*(?:KEY|TOKEN(?!S)|SECRET|PASSW|CREDENTIAL)\w*|(?i:{_NAME}))={_VALUE}"
)
_SECRET_KEY = re.compile(
    rf"(?<![a-z0-9])(?:key|token|{_NAME})(?![a-z0-9])|"
    r"(?-i:KEY|TOKEN(?!S)|SECRET|PASSW|CREDENTIAL)",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{6,}|sk-[\w-]{6,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|"
    r"nvapi-[\w-]{8,}|xox[abpr]-[\w-]{8,}|AKIA[0-9A-Z]{16}|(?<=Bearer )[\w.~+/-]+=*)|"
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
)
#: some part of every secret that is taken out below, in lower case and in capitals; every branch
#: begins with a letter of its own, so that re passes over other text quickly
_HINT = re.compile(
    r"key(?![a-z0-9])|token(?![a-z0-9])|secret(?![a-z0-9])|password(?![a-z0-9])|"
    r"passwd(?![a-z0-9])|credentials?(?![a-z0-9])|api[-_]?k|hf_|sk-|gh[pousr]_|github_pat_|"
    r"glpat-|nvapi-|xox[abpr]-|bearer|://[^\s/:@]+:[^\s/@]+@|"
    # and, in JSON, of a byte that was not UTF-8
    r"\\ud[89a-f]"
)
_CAPITAL_HINT = re.compile(r"KEY|TOKEN(?!S)|SECRET|PASSW|CREDENTIAL|AKIA")


def redact(text: str) -> str:
    """Return a text without the values of key options and variables, nor what looks like a key."""
    if not _may_hold_secrets(text):
        return text
    text = _AFTER_OPTION.sub(rf"\1 {REDACTED}", text)
    text = _ASSIGNED.sub(rf"\1={REDACTED}", text)
    return _SHAPES.sub(REDACTED, text)


def clean_json(value: object) -> str:
    """Return a value as JSON text without secrets, at little cost where there is none in it."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        # a key, a number or a depth that JSON does not have
        return json.dumps(clean(value))
    return json.dumps(clean(value)) if _may_hold_secrets(text) else text


def clean(value: object, *, depth: int = MAX_DEPTH) -> Any:
    """Return a value as JSON types without secrets; what JSON has no word for becomes text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Enum):
        return clean(value.value, depth=depth)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return redact(value.decode("utf-8", "backslashreplace"))
    if depth > 0 and isinstance(value, Mapping):
        return dict(_pairs(value, depth - 1))
    if depth > 0 and isinstance(value, list | tuple | AbstractSet):
        return _items(list(value), depth - 1)
    return redact(_encodable(str(value)))


_ENCODER = json.JSONEncoder(default=clean, allow_nan=False)


def _may_hold_secrets(text: str) -> bool:
    return bool(_HINT.search(text.lower()) or _CAPITAL_HINT.search(text))


def _pairs(value: Mapping[Any, object], depth: int) -> list[tuple[str, Any]]:
    return [
        (
            redact(_encodable(str(key))),
            REDACTED if item and _SECRET_KEY.search(str(key)) else clean(item, depth=depth),
        )
        for key, item in value.items()
    ]


def _items(values: list[object], depth: int) -> list[Any]:
    """Clean a list; in a command line, what follows a key option up to the next is its value."""
    cleaned = []
    in_option = False
    for value in values:
        text = value if isinstance(value, str) else ""
        if text.startswith("-") or not text:
            in_option = _SECRET_OPTION.fullmatch(text) is not None
        cleaned.append(REDACTED if in_option and text[:1] != "-" else clean(value, depth=depth))
    return cleaned


def _encodable(text: str) -> str:
    """Show bytes that were not UTF-8 as escapes: SQLite takes no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
