"""What stands around a command: the text it is in, the variables in force, and why not to edit it.

Records only; walk makes them, reader and launches read them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.script import expand

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source
    from omnipilot_slurm.script.words import Word, Words


class Context(NamedTuple):
    """What stands around a command; each flag names why its launch must not be edited."""

    branch: bool = False
    loop: bool = False
    parameters: bool = False
    evaluated: bool = False
    generated: bool = False
    broken: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether the command runs whenever the script does."""
        return not (self.branch or self.loop)


_PLAIN: Final = Context()


@dataclass(frozen=True, slots=True)
class Frame:
    """The text being walked, the variables in force, and what stands around.

    `stdin` is the heredoc that commands without one of their own read; `is_piped` says that they
    read what another command prints.
    """

    source: Source
    scope: Scope
    context: Context = _PLAIN
    stdin: Source | None = None
    is_piped: bool = False

    def marked(self, **flags: bool) -> Frame:
        """Return the frame with flags of its context set."""
        return replace(self, context=self.context._replace(**flags))

    def branched(self) -> Frame:
        """Return the frame with variables of its own."""
        return replace(self, scope=self.scope.branch())

    def words(self, node: Node) -> Words:
        """Expand an argument."""
        return expand.words_of(node, self.source, self.scope)

    def word(self, node: Node) -> Word:
        """Expand a node as one word."""
        return expand.word_of(node, self.source, self.scope)

    def text(self, node: Node) -> str:
        """Return a node's own text."""
        return expand.text_of(node, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command after expansion.

    `assignments` stand before its name; `stdin` is its heredoc; `writes` the file it is sent to;
    `end` is the byte of the script behind its last word, None where nothing may be put there; `raw`
    is its text as it stands.
    """

    words: Words
    assignments: dict[str, Word]
    frame: Frame
    context: Context
    stdin: Source | None = None
    writes: Word | None = None
    end: int | None = None
    raw: str = ""

    @property
    def scope(self) -> Scope:
        """The variables in force."""
        return self.frame.scope
