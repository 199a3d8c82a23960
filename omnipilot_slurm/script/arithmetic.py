"""Bash's whole-number arithmetic, as far as GPU counts need it: + - * / % and parentheses.

In: the text between `$((` and `))` and a look-up for variables. Out: the value, or None where it
cannot be told. Called by expand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)(?::-(\d+))?\}?|([-+*/%()]))")
_MAX_TOKENS: Final = 64


def evaluate(expression: str, number: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression; `number` gives a variable's value or None."""
    tokens = _tokens(expression)
    if not tokens:
        return None
    try:
        value, rest = _sum(tokens, number)
    except (_UnknownError, ZeroDivisionError, RecursionError):
        return None
    return value if not rest else None


class _UnknownError(Exception):
    """The expression holds something that is not known."""


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position, expression = 0, expression.strip()
    while position < len(expression) and len(tokens) < _MAX_TOKENS:
        match = _TOKEN.match(expression, position)
        if match is None or match.end() == position:
            return []
        digits, name, default, sign = match.groups()
        if digits is not None:
            tokens.append(("number", digits))
        elif name is not None:
            tokens.append((name, default or ""))
        else:
            tokens.append(("sign", sign))
        position = match.end()
    return tokens if position >= len(expression) else []


_Tokens = list[tuple[str, str]]


def _sum(tokens: _Tokens, number: Callable[[str], int | None]) -> tuple[int, _Tokens]:
    value, tokens = _product(tokens, number)
    while tokens and tokens[0][0] == "sign" and tokens[0][1] in "+-":
        sign = tokens[0][1]
        right, tokens = _product(tokens[1:], number)
        value = value + right if sign == "+" else value - right
    return value, tokens


def _product(tokens: _Tokens, number: Callable[[str], int | None]) -> tuple[int, _Tokens]:
    value, tokens = _atom(tokens, number)
    while tokens and tokens[0][0] == "sign" and tokens[0][1] in "*/%":
        sign = tokens[0][1]
        right, tokens = _atom(tokens[1:], number)
        if sign == "*":
            value *= right
        else:
            value = value // right if sign == "/" else value % right
    return value, tokens


def _atom(tokens: _Tokens, number: Callable[[str], int | None]) -> tuple[int, _Tokens]:
    if not tokens:
        raise _UnknownError
    kind, text = tokens[0]
    if kind == "number":
        return int(text), tokens[1:]
    if kind == "sign":
        if text == "(":
            value, rest = _sum(tokens[1:], number)
            if rest and rest[0] == ("sign", ")"):
                return value, rest[1:]
        raise _UnknownError
    value_of_name = number(kind)
    if value_of_name is None and text:
        return int(text), tokens[1:]
    if value_of_name is None:
        raise _UnknownError
    return value_of_name, tokens[1:]
