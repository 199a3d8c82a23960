"""The variables, functions and arguments in force at a command, and what a parameter's value is.

In: a parameter's name. Out: the segments of its value, or None where nothing sets it. Called by
expand, assignments and walk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import arithmetic
from omnipilot_slurm.script.budget import Budget
from omnipilot_slurm.script.slurm_environment import FOLLOWS_GPUS, is_output_variable
from omnipilot_slurm.script.words import (
    BLANK,
    How,
    Segment,
    Splice,
    Value,
    Word,
    Words,
    bounded,
    loosened,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tree_sitter import Node

    from omnipilot_slurm.script.source import Source

#: names that the shim never sends
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_SET_BY_SYSTEM: Final = frozenset(
    "HOME USER LOGNAME HOSTNAME PWD OLDPWD PATH SHELL TMPDIR SCRATCH WORK RANDOM UID EUID PPID"
    " SECONDS LINENO BASH_SOURCE FUNCNAME BASHPID HOSTTYPE OSTYPE IFS OPTARG OPTIND".split()
)
_SPACE: Final = Segment(" ")
_MAX_DIGITS: Final = 4
#: what arithmetic reads as a decimal number
_NUMBER: Final = re.compile(r"0|-?[1-9]\d{0,8}")
#: the name under which arguments stand among the variables
ARGUMENTS: Final = "@"


@dataclass(slots=True)
class Scope:
    """What is known of the shell's state.

    `environment` came with the submission; `complete` says that what it lacks was not set there.
    `slurm` holds the SLURM_* values that follow from the request. The arguments are the array "@"
    of `variables`. `unseen`: a file that is not seen
    was sourced and may have set anything. `substitutions` collects the `$(...)` met on the way,
    which the walker follows.
    """

    environment: Mapping[str, str]
    complete: bool
    slurm: Mapping[str, str]
    budget: Budget = field(default_factory=Budget)
    in_function: bool = False
    unseen: bool = False
    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, tuple[Source, Node]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    substitutions: list[tuple[Node, Source]] = field(default_factory=list)

    def is_known_unset(self, name: str) -> bool:
        """Return whether a variable without a value here is certain to have none."""
        if name in self.variables or name.isdecimal():
            return True
        return self.complete and not self.unseen and not _SECRET.search(name)

    def branch(self) -> Scope:
        """Return a copy whose changes stay its own."""
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            exported=set(self.exported),
        )

    @property
    def args(self) -> Words:
        """The arguments of the script, or of the function that runs."""
        value = self.variables.get(ARGUMENTS)
        return value if isinstance(value, list) else []

    @args.setter
    def args(self, words: Words) -> None:
        self.variables[ARGUMENTS] = loosened(words)

    def value(self, name: str, index: str | None = None) -> tuple[Segment, ...] | None:
        """Return a parameter's value, None when it is not set as far as can be told."""
        if name in ("@", "*"):
            return joined(self.args, self.argument_how)
        if name in self.variables:
            return self._assigned(self.variables[name], index)
        if name.isdecimal():
            return self._positional(name)
        if not name.isidentifier():
            return (unknown(),)
        return self._inherited(name)

    @property
    def argument_how(self) -> How:
        """How a value is given that comes as an argument."""
        return How.FUNCTION_ARG if self.in_function else How.VARIABLE

    @property
    def argument_default_how(self) -> How:
        """How a value is given that is the default of an argument."""
        return How.FUNCTION_ARG if self.in_function else How.POSITIONAL_DEFAULT

    def _inherited(self, name: str) -> tuple[Segment, ...] | None:
        """Return what a variable that the script does not set holds when the job starts."""
        if name in self.environment and not name.startswith("SLURM_"):
            return (Segment(self.environment[name], how=How.VARIABLE),)
        if name in self.slurm:
            follows = name in FOLLOWS_GPUS
            return (Segment(self.slurm[name], how=How.SLURM_ENV, follows=follows),)
        if is_output_variable(name):
            return (unknown(how=How.SLURM_ENV),)
        return (unknown(),) if name in _SET_BY_SYSTEM else None

    def _positional(self, digits: str) -> tuple[Segment, ...] | None:
        number = int(digits) if len(digits) <= _MAX_DIGITS else 0
        if number == 0:
            return (unknown(),)
        ahead = self.args[:number]
        if any(isinstance(word, Splice) for word in ahead):
            return (unknown(fixed=False),)
        found = ahead[-1] if len(ahead) == number else None
        return found.through(self.argument_how).segments if isinstance(found, Word) else None

    def _assigned(self, value: Value, index: str | None) -> tuple[Segment, ...] | None:
        if value is None:
            return None
        if isinstance(value, Word):
            return value.through(How.VARIABLE).segments
        if index in ("@", "*"):
            return joined(value, How.ARRAY)
        return self._element(value, index or "0")

    def _element(self, items: Words, index: str) -> tuple[Segment, ...]:
        numbers = Numbers(self)
        position = arithmetic.evaluate(index, numbers)
        if position is None:
            return (unknown(),)
        if position < 0:
            position += len(items)
        ahead = items[: position + 1]
        if position < 0 or any(isinstance(item, Splice) for item in ahead):
            return (unknown(),)
        item = items[position] if position < len(items) else None
        return numbers.marked(item.segments) if isinstance(item, Word) else ()


class Numbers:
    """Looks variables up as arithmetic does, and remembers what the result rests on."""

    __slots__ = ("_fixed", "_scope", "depends", "follows")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._fixed = True
        self.depends: frozenset[str] = frozenset()
        self.follows = False

    def __call__(self, name: str) -> int | None:
        """Return a variable's value as a whole number, None where it is not known."""
        segments = self._scope.value(name)
        if segments is None:
            if self._scope.is_known_unset(name):
                return 0
            self.depends |= {name}
            return None
        text = self.rest_on(Word(segments))
        return int(text) if text is not None and _NUMBER.fullmatch(text) else None

    def rest_on(self, word: Word) -> str | None:
        """Return a word's text, None where it is not known; the result rests on it."""
        self.depends |= word.depends
        self.follows = self.follows or any(segment.follows for segment in word.segments)
        self._fixed = self._fixed and word.fixed
        return word.text

    def evaluated(self, expression: Word) -> int | None:
        """Return the value of an expression whose `$` expansions are filled in."""
        text = self.rest_on(expression)
        return None if text is None else arithmetic.evaluate(text, self)

    def marked(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the element that an index chose, resting on what the index rests on."""
        return tuple(
            segment.through(How.VARIABLE, self.depends)._replace(
                fixed=segment.fixed and self._fixed
            )
            for segment in segments
        )

    def segment(self, value: int | None) -> Segment:
        """Return the result of a calculation."""
        text = None if value is None else str(value)
        return Segment(
            text,
            how=How.COMPUTED,
            depends=self.depends,
            fixed=self._fixed,
            follows=self.follows,
        )


def joined(words: Words, how: How) -> tuple[Segment, ...]:
    """Return the one text that `"$*"` makes of several words."""
    segments: list[Segment] = []
    for word in words:
        if word == BLANK:
            continue
        if segments and not (isinstance(word, Splice) and word.is_blank):
            segments.append(_SPACE)
        if isinstance(word, Splice):
            segments.append(word.as_segment()._replace(splits=False))
        else:
            segments += word.through(how).segments
    return bounded(tuple(segments))
