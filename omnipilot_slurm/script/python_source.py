"""Python text inside a batch script: whether it starts vLLM itself, and with what.

In: the source of `python - <<EOF`, `python -c` or a Python batch script. Out: an Offline with the
arguments of `LLM(...)`, the words of a server it starts, or the note that one may hide in it.
Called by python_runs.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_CHARS: Final = 16 * 1024
_ENGINES: Final = frozenset({"LLM", "EngineArgs", "LLMEngine"})
_STARTERS: Final = frozenset(
    {"Popen", "run", "call", "check_call", "check_output", "execvp", "system", "popen"}
)
_SERVER: Final = re.compile(
    r"vllm\.entrypoints|AsyncLLMEngine|AsyncEngineArgs|AsyncLLM\b|build_app\(|run_server\("
    r"|[\"']vllm[\"']\s*,\s*[\"']serve[\"']|vllm serve"
)
#: nesting that nobody writes; CPython's parser recurses for each, and a small stack overflows
_DEEP: Final = re.compile(
    r"(?:[-+~(\[{]\s*){64}|(?:\b(?:not\b|await\b|lambda\s*+\w*+\s*+:)\s*){64}"
)
_LLM_CALL: Final = re.compile(r"\bLLM\s*\(")
_MODULES: Final = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """An engine made in Python: the keyword arguments that are constants, by name."""

    arguments: Mapping[str, object] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server that Python starts as a process: its words, None for what is not known.

    `is_open`: more words may follow. `text` is given instead where a shell is told to run it.
    """

    words: tuple[str | None, ...] = ()
    is_open: bool = False
    text: str | None = None


def starts_server(source: str) -> bool:
    """Return whether Python text may start a vLLM server by itself."""
    return bool(_SERVER.search(source))


def started(source: str) -> Started | None:
    """Return the server that Python text starts with subprocess, None where it cannot be read."""
    tree = _parsed(source)
    if tree is None:
        return None
    constants = _constants(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _name(node.func) in _STARTERS:
            words = _words(node.args[0], constants)
            if words is not None and (words.text is not None or _is_server(words.words)):
                found.append(words)
    return found[0] if len(found) == 1 else None


def offline_engine(source: str) -> Offline | None:
    """Return the engine that Python text makes with `LLM(...)`, None where it makes none."""
    if not _LLM_CALL.search(source) or "vllm" not in source:
        return None
    tree = _parsed(source)
    if tree is None:
        return Offline(complete=False)
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _ENGINES:
            return _engine(node, constants)
    return None


def _parsed(source: str) -> ast.Module | None:
    if len(source) > _MAX_CHARS or _DEEP.search(source):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of the names that are assigned exactly once in a module."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    for name in _changed(tree):
        found.pop(name, None)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _changed(tree: ast.Module) -> Iterator[str]:
    """Yield the names that are changed in place: `x += ...`, `x.append(...)`."""
    for node in ast.walk(tree):
        target: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_change = node.func.attr in ("append", "extend", "insert")
            target = node.func.value if is_change else None
        if isinstance(target, ast.Name):
            yield target.id


def _resolved(node: ast.expr, constants: Mapping[str, ast.expr]) -> ast.expr:
    return constants.get(node.id, node) if isinstance(node, ast.Name) else node


def _text(node: ast.expr, constants: Mapping[str, ast.expr]) -> str | None:
    """Return the text of a constant, also inside str(...)."""
    node = _resolved(node, constants)
    if isinstance(node, ast.Call) and _name(node.func) == "str" and len(node.args) == 1:
        node = _resolved(node.args[0], constants)
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return str(node.value)
    return None


def _words(node: ast.expr, constants: Mapping[str, ast.expr]) -> Started | None:
    node = _resolved(node, constants)
    text = _text(node, constants)
    if text is not None and _SERVER.search(text):
        return Started(text=text)
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    words: list[str | None] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            return Started(words=tuple(words), is_open=True)
        words.append(_text(item, constants))
    return Started(words=tuple(words))


def _is_server(words: tuple[str | None, ...]) -> bool:
    names = [word.rsplit("/", 1)[-1] if word else None for word in words[:3]]
    is_serve = names[:2] == ["vllm", "serve"]
    return is_serve or (words[1:2] == ("-m",) and words[2:3] != () and words[2] in _MODULES)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _engine(call: ast.Call, constants: Mapping[str, ast.expr]) -> Offline:
    given = [(keyword.arg, keyword.value) for keyword in call.keywords]
    if call.args:
        given.insert(0, ("model", call.args[0]))
    arguments: dict[str, object] = {}
    complete = True
    for name, value in given:
        if name is None:
            complete = False
            continue
        found = _resolved(value, constants)
        arguments[name] = found.value if isinstance(found, ast.Constant) else None
    return Offline(arguments=arguments, complete=complete)
