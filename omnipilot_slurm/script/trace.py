"""What two readings of a script are compared by: the words of the commands that do something.

In: a Command, and for a launch what a rewrite may change of it. Out: tuples of texts for
Notes.trace; two readings with the same trace run the same commands. Called by reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script.words import How, Splice, Word, decode, encode, text_of, texts_of

if TYPE_CHECKING:
    from omnipilot_slurm.records import Edit
    from omnipilot_slurm.script.frame import Command
    from omnipilot_slurm.script.launches import Read
    from omnipilot_slurm.script.scope import Scope

#: commands that only print or change the shell: what they show may differ
_SILENT: Final = frozenset(
    "echo printf : true set export declare local readonly typeset test [ [[ date module ml".split()
)


def of_command(command: Command, without: tuple[Word | Splice, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of a command, all but some, with the text that it reads."""
    first = text_of(command.words[0])
    if first in _SILENT:
        return []
    kept = command.words
    if without:
        left_out = {id(word) for word in without}
        kept = [word for word in kept if id(word) not in left_out]
    given = [f"{name}={word.shown}" for name, word in command.assignments.items()]
    if command.stdin is not None and (first != "cat" or command.writes is not None):
        given.append(decode(command.stdin.data))
    return [(*given, *texts_of(kept))]


def of_launch(command: Command, read: Read) -> list[tuple[str, ...]]:
    """Return a launch without what moves with its GPUs, and the variables that it inherits."""
    return [
        *of_command(command, read.moved),
        _inherited(command.scope, read.launch.tp_place),
    ]


def _inherited(scope: Scope, place: Edit | None) -> tuple[str, ...]:
    """Return the exported variables in force, but for those that stand around a place."""
    values = ((name, scope.variables.get(name)) for name in sorted(scope.exported))
    return tuple(
        f"{name}={value.shown}"
        for name, value in values
        if isinstance(value, Word) and not (place is not None and _holds(value, place))
    )


def _holds(value: Word, place: Edit) -> bool:
    """Return whether a value stands literally around a place in the script."""
    return any(
        segment.start is not None
        and segment.start <= place.start < segment.start + len(encode(segment.text or ""))
        and segment.how is not How.VARIABLE
        for segment in value.segments
    )
