"""Bash's whole-number arithmetic, as far as GPU counts need it: + - * / %, < ? : and parentheses.

In: the text between `$((` and `))` with its `$` expansions filled in, and a look-up for variables.
Out: the value, or None where it cannot be told. Called by scope: for the indices of arrays, and for
what expand, outputs and conditions calculate.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

_TOKEN: Final = re.compile(r"\s*(?:(\d+)(?!\w)|\$?\{?([A-Za-z_]\w*)\}?|([<>=!]=|[-+*/%()<>?:]))")
_COMPARED: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MAX_TOKENS: Final = 64
_MAX_DIGITS: Final = 12
_MAX_VALUE: Final = 10**12

#: gives a variable's value, None where it is not known
Number: TypeAlias = Callable[[str], int | None]


class _Token(NamedTuple):
    """A number, a variable's name or a sign."""

    digits: str | None
    name: str | None
    sign: str | None


_Tokens: TypeAlias = list[_Token]


def evaluate(expression: str, number: Number) -> int | None:
    """Return the value of an expression, None where it cannot be told."""
    tokens = _tokens(expression)
    if not tokens:
        return None
    try:
        value, rest = _choice(tokens, number)
    except (_UnknownError, ZeroDivisionError):
        return None
    return value if not rest and abs(value) < _MAX_VALUE else None


class _UnknownError(Exception):
    """The expression holds something that is not known."""


def _tokens(expression: str) -> _Tokens:
    if "++" in expression or "--" in expression:
        # they change a variable
        return []
    tokens: _Tokens = []
    position, expression = 0, expression.strip()
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None or len(tokens) == _MAX_TOKENS:
            return []
        token = _Token(*match.groups())
        digits = token.digits or ""
        is_octal = digits.startswith("0") and len(digits) > 1
        if is_octal or len(digits) > _MAX_DIGITS:
            return []
        tokens.append(token)
        position = match.end()
    return tokens


def _choice(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    """Read `A > B ? C : D`; both ways are calculated, only one counts."""
    value, tokens = _comparison(tokens, number)
    if not tokens or tokens[0].sign != "?":
        return value, tokens
    first, tokens = _choice(tokens[1:], number)
    if not tokens or tokens[0].sign != ":":
        raise _UnknownError
    second, tokens = _choice(tokens[1:], number)
    return (first if value else second), tokens


def _comparison(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    value, tokens = _sum(tokens, number)
    compare = _COMPARED.get(tokens[0].sign or "") if tokens else None
    if compare is None:
        return value, tokens
    right, rest = _sum(tokens[1:], number)
    return int(compare(value, right)), rest


def _sum(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    value, tokens = _product(tokens, number)
    while tokens and tokens[0].sign in ("+", "-"):
        sign = tokens[0].sign
        right, tokens = _product(tokens[1:], number)
        value = value + right if sign == "+" else value - right
    return value, tokens


def _product(tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    value, tokens = _atom(tokens, number)
    while tokens and tokens[0].sign in ("*", "/", "%"):
        sign = tokens[0].sign
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
    token, rest = tokens[0], tokens[1:]
    if token.digits is not None:
        return int(token.digits), rest
    if token.sign is not None:
        return _signed(token.sign, rest, number)
    value = number(token.name or "")
    if value is None:
        raise _UnknownError
    return value, rest


def _signed(sign: str, tokens: _Tokens, number: Number) -> tuple[int, _Tokens]:
    """Read what follows a leading sign: `-X`, `+X` or `(...)`."""
    if sign in "+-":
        value, rest = _atom(tokens, number)
        return (-value if sign == "-" else value), rest
    if sign == "(":
        value, rest = _choice(tokens, number)
        if rest and rest[0].sign == ")":
            return value, rest[1:]
    raise _UnknownError
