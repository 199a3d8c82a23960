"""Commands that change the shell's own state: assignments, export, unset, read, set, shift, source.

In: a node or the words of a command, and a Frame. Out: nothing; the frame's scope is changed.
Called by walk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import branches
from omnipilot_slurm.script.scope import ARGUMENTS, Scope
from omnipilot_slurm.script.words import (
    EMPTY,
    MAX_WORDS,
    How,
    Segment,
    Splice,
    Value,
    Word,
    Words,
    loosened,
    shown,
    text_of,
    texts_of,
    unknown,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.frame import Command, Frame

_READERS: Final = frozenset({"read", "mapfile", "readarray", "getopts"})
_ARRAY_READERS: Final = frozenset({"read", "mapfile", "readarray"})
_ARRAY_OPTION: Final = re.compile(r"-[a-z]*a")
_CHANGED_IN_ARITHMETIC: Final = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)([A-Za-z_]\w*)"
)
_SHELL_OPTION: Final = re.compile(r"[-+][A-Za-z]*")
_EXPORTERS: Final = frozenset({"export", "declare", "typeset"})
#: files that hold values of a script's variables, not an environment or functions
_VALUES: Final = re.compile(r"conf|param|setting|vars|defaults|\.env$", re.IGNORECASE)
#: variables that hold the path of an environment to activate
_SET_UP: Final = re.compile(r"env|activate|conda|profile|module|set_?up|rc$", re.IGNORECASE)
_MAX_NAME: Final = 128


def assign(node: Node, frame: Frame) -> None:
    """Apply `NAME=VALUE`, `NAME+=VALUE` or `NAME=(...)`."""
    name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name_node is None:
        return
    variables, name = frame.scope.variables, frame.text(name_node)
    if "[" in name:
        variables[name.partition("[")[0]] = [Splice(fixed=False)]
        return
    new = _value(value, frame)
    is_append = any(child.type == "+=" for child in node.children)
    variables[name] = branches.appended(variables.get(name), new) if is_append else new


def _value(node: Node | None, frame: Frame) -> Word | Words:
    if node is None:
        return EMPTY
    if node.type != "array":
        return frame.word(node)
    if node.child_count > MAX_WORDS:
        return [Splice()]
    items = [child for child in node.named_children if child.type != "comment"]
    if any(frame.text(child).startswith("[") for child in items):
        return [Splice()]
    words = loosened([word for child in items for word in frame.words(child)])
    return words if len(words) <= MAX_WORDS else [Splice()]


def declare(node: Node, frame: Frame) -> None:
    """Apply `export`, `declare`, `local`, `readonly` and their kin."""
    exports = bool(node.children) and node.children[0].type in _EXPORTERS
    for child in node.named_children:
        name: Node | None = child
        if child.type == "variable_assignment":
            assign(child, frame)
            name = child.child_by_field_name("name")
        elif child.type == "command_substitution":
            # `export $(grep ... file)`: the names are not seen either
            frame.word(child)
            _open_up(frame.scope)
            name = None
        if exports and name is not None:
            frame.scope.exported.add(frame.text(name))


def unset(node: Node, frame: Frame) -> None:
    """Apply `unset NAME...`."""
    for child in node.named_children:
        frame.scope.variables[frame.text(child)] = None


def apply(name: str, command: Command) -> None:
    """Apply a builtin that changes variables or arguments; other commands change nothing."""
    words, scope = command.words, command.scope
    if name in _READERS or (name == "printf" and texts_of(words[1:2]) == ["-v"]):
        _forget(words[1:], scope)
        if name in _ARRAY_READERS:
            _read_array(name, command)
    elif name == "let":
        forget_changed(shown(words[1:]), scope)
    elif name == "set":
        _set_arguments(words, scope)
    elif name == "shift":
        _shift(words, scope)
    elif name in ("source", ".") and len(words) > 1:
        _source(words[1], scope)


def _forget(words: Words, scope: Scope) -> None:
    for word in words:
        name = text_of(word)
        if name and name.isidentifier():
            scope.variables[name] = Word((unknown(),))


def _read_array(name: str, command: Command) -> None:
    """Apply `read -a NAME` and `mapfile NAME`: what a here-string holds is known, no file is."""
    texts = texts_of(command.words)
    if name == "read" and not any(_ARRAY_OPTION.fullmatch(text) for text in texts[1:]):
        return
    if texts[-1].isidentifier():
        fields = _fields(command) if name == "read" else None
        command.scope.variables[texts[-1]] = [Splice(fixed=False)] if fields is None else fields


def _fields(command: Command) -> Words | None:
    """Return the words that `read` makes of a line, None where the line is not known."""
    line = Word(tuple(command.stdin.segments)) if command.stdin is not None else Word((unknown(),))
    separator = command.assignments.get("IFS")
    sign = None if separator is None else separator.text
    text = line.text
    if text is None or "\n" in text.strip("\n") or "IFS" in command.scope.variables:
        return None
    if sign is not None and (len(sign) != 1 or sign.isspace()):
        return None
    # a separator at the end begins no field
    pieces = text.strip("\n").removesuffix(sign or "").split(sign)
    follows = any(segment.follows for segment in line.segments)
    one = Segment("", how=How.VARIABLE, depends=line.depends, fixed=line.fixed, follows=follows)
    fields: Words = [Word((one._replace(text=piece),)) for piece in pieces if text]
    return fields[:MAX_WORDS]


def forget_changed(text: str, scope: Scope) -> None:
    """Note that arithmetic has changed variables: their values are not known behind it."""
    for match in _CHANGED_IN_ARITHMETIC.finditer(text):
        scope.variables[match[1] or match[2]] = Word((unknown(),))


def _set_arguments(words: Words, scope: Scope) -> None:
    """Apply `set -e -- A B` and `set A B`; options alone leave the arguments as they are."""
    index = 1
    while index < len(words):
        text = text_of(words[index])
        if text == "--":
            scope.args = words[index + 1 :]
            return
        if text is None or _SHELL_OPTION.fullmatch(text) is None:
            scope.args = words[index:]
            return
        # the name of `-o pipefail` follows
        index += 2 if "o" in text else 1


def _shift(words: Words, scope: Scope) -> None:
    count = text_of(words[1]) if len(words) > 1 else "1"
    n_gone = int(count) if count is not None and re.fullmatch(r"\d{1,4}", count) else None
    gone = scope.args[:n_gone]
    if n_gone is None or any(isinstance(word, Splice) for word in gone):
        scope.args = [Splice(fixed=False)]
    elif len(gone) == n_gone:
        scope.args = scope.args[n_gone:]


def _source(word: Word | Splice, scope: Scope) -> None:
    """Read `source FILE`: a file of values may set anything, an environment does not."""
    name = word.base_name if isinstance(word, Word) else None
    if name is None:
        is_set_up = any(map(_SET_UP.search, word.depends))
        holds_values = not is_set_up or any(map(_VALUES.search, word.depends))
    else:
        holds_values = _VALUES.search(name[-_MAX_NAME:]) is not None
    if holds_values:
        _open_up(scope)


def _open_up(scope: Scope) -> None:
    """Note that something that is not seen may have set any variable."""
    scope.unseen = True
    scope.budget.spend(len(scope.variables))
    for name, value in scope.variables.items():
        if name != ARGUMENTS:
            scope.variables[name] = _unsure(value)


def _unsure(value: Value) -> Value:
    if isinstance(value, list):
        return [
            w._replace(fixed=False) if isinstance(w, Splice) else _unsure_word(w) for w in value
        ]
    return None if value is None else _unsure_word(value)


def _unsure_word(word: Word) -> Word:
    return Word(tuple(segment._replace(fixed=False) for segment in word.segments), word.end)
