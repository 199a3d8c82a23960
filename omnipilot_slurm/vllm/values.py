"""How vLLM converts the text of a command-line value: numbers with suffixes, JSON, true/false.

In: the kind letter of an option (see options.py) and the text. Out: the value, or ValueError with
vLLM's reason in short. Called by flags.py to refuse what vLLM refuses, and to read what it takes.
"""

from __future__ import annotations

import ast
import json
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_BARE_SUFFIXED = re.compile(r'("(?:[^"\\]|\\.)*")|\b\d+(?:\.\d+)?[kKmMgGtT]\b')
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
AUTO = -1


def human_int(text: str) -> int:
    """Read a count that may carry a suffix: 32k is 32000, 32K is 32768, 25.6k is 25600.

    Raises: ValueError for anything else, decimals with an upper-case suffix included.
    """
    stripped = text.strip()
    match = _SUFFIXED.fullmatch(stripped)
    if not match:
        return int(stripped)
    number, suffix = match.groups()
    if suffix.islower():
        value = float(number) * 1000 ** _POWERS[suffix]
        if value == math.inf:
            raise ValueError(f"too large a number: {stripped[:20]}...")
        return int(value)
    if "." in number:
        raise ValueError(f"decimals are not allowed with binary suffixes like {suffix}")
    multiplier: int = 1024 ** _POWERS[suffix.lower()]
    return int(number) * multiplier


def human_int_or_auto(text: str) -> int:
    """Read a count like human_int, or `auto`, which is -1."""
    return AUTO if text.strip().lower() in ("auto", "-1") else human_int(text)


def json_value(text: str) -> object:
    """Read JSON whose bare numbers may carry suffixes.

    Raises: ValueError when it is not JSON.
    """
    expanded = _BARE_SUFFIXED.sub(lambda m: m[1] or str(human_int(m[0])), text)
    try:
        value: object = json.loads(expanded)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return value


def json_object_or_text(text: str) -> object:
    """Read a JSON object; text that is not in braces stays as it is."""
    stripped = text.strip()
    return json_value(text) if stripped[:1] == "{" and stripped[-1:] == "}" else text


def json_object(text: str) -> dict[str, object]:
    """Read a JSON object whose bare numbers may carry suffixes.

    Raises: ValueError when it is something else.
    """
    value = json_value(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, not {text!r}")  # noqa: TRY004  (it is the text)
    return value


def key_counts(text: str) -> dict[str, int]:
    """Read `key=count,key=count`.

    Raises: ValueError when it is something else.
    """
    counts = {}
    for item in text.split(","):
        key, equals, count = item.partition("=")
        if not equals:
            raise ValueError(f"each item should be in the form KEY=VALUE, not {item!r}")
        counts[key.strip().lower()] = int(count)
    return counts


def json_or_key_counts(text: str) -> object:
    """Read a JSON object, or `key=count` pairs."""
    is_object = text[:1] == "{" and text[-1:] == "}"
    return json_value(text) if is_object else key_counts(text)


def object_text(text: str) -> str | None:
    """Read a JSON object or `key=count` pairs as JSON without suffixes, None for `None`.

    Raises: ValueError when it is something else.
    """
    if text.strip() in ("", "None"):
        return None
    value = json_or_key_counts(text.strip())
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, not {text!r}")  # noqa: TRY004  (it is the text)
    return json.dumps(value)


def level_or_object(text: str) -> object:
    """Read a compilation level (0 to 3) or a Python literal of a dict.

    Raises: ValueError when it is something else.
    """
    if text in ("0", "1", "2", "3"):
        return int(text)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"expected a dict, not {text!r}") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a dict, not {text!r}")  # noqa: TRY004  (it is the text)
    return value


def truth(text: str) -> bool:
    """Read true or false, in any case.

    Raises: ValueError for another word.
    """
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"expected 'true' or 'false', not {text!r}")
    return lowered == "true"


#: kind letter -> converter; a letter that is not here takes any text
CONVERTERS: dict[str, Callable[[str], object]] = {
    "i": int,
    "h": human_int,
    "H": human_int_or_auto,
    "x": float,
    "j": json_value,
    "o": json_object,
    "d": json_object_or_text,
    "k": key_counts,
    "m": json_or_key_counts,
    "p": level_or_object,
    "t": truth,
}
#: kind letter -> what argparse calls the type in its refusal
TYPE_NAMES = {
    "i": "int",
    "h": "human_readable_int",
    "H": "human_readable_int_or_auto",
    "x": "float",
    "j": "JSON",
    "o": "JSON object",
    "d": "JSON",
    "k": "key=count",
    "m": "JSON or key=count",
    "p": "dict or level",
    "t": "boolean",
}
