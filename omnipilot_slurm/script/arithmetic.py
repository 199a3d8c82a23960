"""Bash's whole-number arithmetic, as far as GPU counts need it: + - * / % and parentheses.

In: the text between `$((` and `))` and a look-up for variables. Out: the value, or None where it
cannot be told. Called by scope (array indices) and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)(?::?-(\d+))?\}?|([-+*/%()]))")
_MAX_TOKENS: Final = 64
_MAX_DIGITS: Final = 12
_MAX_VALUE: Final = 10**12

#: gives a variable's value, None where it is not known
Number: TypeAlias = Callable[[str], int | None]
#: ("number", digits), ("sign", sign) or (name, default)
_Tokens: TypeAlias = list[tuple[str, str]]


def evaluate(expression: str, number: Number) -> int | None:
    """Return the value of an expression, None where it cannot be told."""
    tokens = _tokens(expression)
    if not tokens:
        return None
    try:
        value, rest = _sum(tokens, number)
    except (_UnknownError, ZeroDivisionError):
        return None
    return value if not rest and abs(value) < _MAX_VALUE else None


class _UnknownError(Exception):
    """The expression holds something that is not known."""


def _tokens(expression: str) -> _Tokens:
    tokens: _Tokens = []
    position, expression = 0, expression.strip()
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None or len(tokens) == _MAX_TOKENS:
            return []
        digits, name, default, sign = match.groups()
        if len(digits or default or "") > _MAX_DIGITS:
            return []
        if digits is not None:
            tokens.append(("number", digits))
        elif name is not None:
            tokens.append((name, default or ""))
        else:
            tokens.append(("sign", sign))
        position = match.end()
    return tokens


def _sum(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    value, tokens = _product(tokens, number)
    while tokens and tokens[0] in (("sign", "+"), ("sign", "-")):
        sign = tokens[0][1]
        right, tokens = _product(tokens[1:], number)
        value = value + right if sign == "+" else value - right
    return value, tokens


def _product(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    value, tokens = _atom(tokens, number)
    while tokens and tokens[0][0] == "sign" and tokens[0][1] in "*/%":
        sign = tokens[0][1]
        right, tokens = _atom(tokens[1:], number)
        if sign == "*":
            value *= right
        else:
            quotient = abs(value) // abs(right) * (1 if value * right >= 0 else -1)
            value = quotient if sign == "/" else value - quotient * right
    return value, tokens


def _atom(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    if not tokens:
        raise _UnknownError
    (kind, text), rest = tokens[0], tokens[1:]
    if kind == "number":
        return int(text), rest
    if kind == "sign":
        return _signed(text, rest, number)
    value = number(kind)
    if value is None and text:
        value = int(text)
    if value is None:
        raise _UnknownError
    return value, rest


def _signed(sign: str, tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    """Read what follows a leading sign: `-X`, `+X` or `(...)`."""
    if sign in "+-":
        value, rest = _atom(tokens, number)
        return (-value if sign == "-" else value), rest
    if sign == "(":
        value, rest = _sum(tokens, number)
        if rest and rest[0] == ("sign", ")"):
            return value, rest[1:]
    raise _UnknownError
