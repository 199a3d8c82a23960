"""Python text inside a batch script: does it start vLLM itself, and with what?

In: the source of `python - <<EOF`, `python -c` or a python batch script. Out: an Offline with the
arguments of `LLM(...)`, or a verdict that a server may hide in it. Called by programs.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_CHARS: Final = 16 * 1024
_ENGINES: Final = frozenset({"LLM", "EngineArgs", "LLMEngine"})
_SERVER: Final = re.compile(
    r"vllm\.entrypoints|AsyncLLMEngine|AsyncEngineArgs|AsyncLLM\b|build_app\(|run_server\("
    r"|[\"']vllm[\"']\s*,\s*[\"']serve[\"']|vllm serve"
)
_LLM_CALL: Final = re.compile(r"\bLLM\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """An engine made in Python: the keyword arguments that are constants, by name."""

    arguments: Mapping[str, object] = field(default_factory=dict)
    complete: bool = True


def starts_server(source: str) -> bool:
    """Return whether Python text may start a vLLM server by itself."""
    return bool(_SERVER.search(source))


def offline_engine(source: str) -> Offline | None:
    """Return the engine that Python text makes with `LLM(...)`, None where it makes none."""
    if not _LLM_CALL.search(source) or "vllm" not in source:
        return None
    if len(source) > _MAX_CHARS:
        return Offline(complete=False)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return Offline(complete=False)
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _ENGINES:
            return _engine(node, constants)
    return None


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return the names that are assigned exactly once in a module, to a constant."""
    found: dict[str, list[object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0]}


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _engine(call: ast.Call, constants: Mapping[str, object]) -> Offline:
    given = [(keyword.arg, keyword.value) for keyword in call.keywords]
    if call.args:
        given.insert(0, ("model", call.args[0]))
    arguments: dict[str, object] = {}
    complete = True
    for name, value in given:
        if name is None:
            complete = False
        elif isinstance(value, ast.Constant):
            arguments[name] = value.value
        elif isinstance(value, ast.Name) and value.id in constants:
            arguments[name] = constants[value.id]
        else:
            arguments[name] = None
    return Offline(arguments=arguments, complete=complete)
