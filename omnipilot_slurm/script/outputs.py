"""What `$(...)` and `$((...))` print, where the script alone tells it.

In: the node of a substitution. Out: one segment, unknown for most. The job's number of GPUs is told
in many ways, and is known from the request. Called by expand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script.scope import Numbers
from omnipilot_slurm.script.words import How, Segment, Word, decode, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.source import Source

_LINE_COUNT: Final = (
    r"\|\s*(?:wc\s+-l|grep\s+-c\S*\s+\S+)\s*(?:\|\s*(?:xargs|tr\s+-d\s+\S+(?:\s\S+)?)\s*)?$"
)
_GPU_COUNT: Final = re.compile(
    r"nvidia-smi\s+(?:-L|--list-gpus|--query-gpu=[\w.,]+\s+--format=csv,noheader\S*)\s*"
    r"(?:2>\s*/dev/null\s*)?" + _LINE_COUNT
)
_TORCH_COUNT: Final = re.compile(
    r"""python[\d.]*\s+-c\s+["']import torch;\s*print\(torch\.cuda\.device_count\(\)\)["']$"""
)
_DEVICES: Final = (
    r"""["']?\$\{?(?:CUDA_VISIBLE_DEVICES|SLURM_JOB_GPUS|SLURM_STEP_GPUS|GPU_DEVICE_ORDINAL)"""
    r"""\}?["']?"""
)
_NUMBER_OF_FIELDS: Final = r"""awk\s+-F\s*["']?,["']?\s+["']\{\s*print\s+NF\s*;?\s*\}["']"""
_DEVICE_COUNT: Final = re.compile(
    rf"""(?:echo|printf\s+["']?%s\S*)\s+{_DEVICES}\s*\|\s*(?:{_NUMBER_OF_FIELDS}"""
    r"""|tr\s+["']?,["']?\s+["']?(?:\\n|\s)["']?\s*\|\s*wc\s+-[lw])\s*$"""
    rf"""|{_NUMBER_OF_FIELDS}\s*<<<\s*{_DEVICES}$"""
)

_SPACE: Final = Segment(" ")
_MOST_WORDS: Final = 32

#: expands a node as one word
WordOf = Callable[["Node", "Source", "Scope"], Word]


def of_command(node: Node, source: Source, scope: Scope, *, quoted: bool, word: WordOf) -> Segment:
    """Return what `$(...)` prints; the walker follows the commands in it later."""
    scope.substitutions.append((node, source))
    text = decode(source.data[node.start_byte : node.end_byte])
    text = text.strip("`").removeprefix("$(").removesuffix(")").strip()
    if _counts_gpus(text, scope):
        return Segment(scope.slurm["SLURM_GPUS_ON_NODE"], how=How.COMPUTED, follows=True)
    printed = _printed(node, source, scope, word)
    return printed or unknown(how=How.COMPUTED, splits=not quoted)


def _counts_gpus(text: str, scope: Scope) -> bool:
    if "SLURM_GPUS_ON_NODE" not in scope.slurm or "CUDA_VISIBLE_DEVICES" in scope.variables:
        return False
    return any(p.match(text) for p in (_GPU_COUNT, _TORCH_COUNT, _DEVICE_COUNT))


def _printed(node: Node, source: Source, scope: Scope, word: WordOf) -> Segment | None:
    """Return the text of `$(echo WORD)` and `$(expr A + B)`, None for other commands."""
    command = node.named_children[0] if node.named_child_count == 1 else None
    name = None if command is None else command.child_by_field_name("name")
    if command is None or name is None or command.child_count > _MOST_WORDS:
        return None
    program = source.data[name.start_byte : name.end_byte]
    arguments = command.named_children[1:]
    if program == b"echo" and len(arguments) == 1:
        return _echoed(word(arguments[0], source, scope))
    if program == b"expr":
        pieces = [
            piece for node in arguments for piece in (*word(node, source, scope).segments, _SPACE)
        ]
        numbers = Numbers(scope)
        return numbers.segment(numbers.evaluated(Word(tuple(pieces))))
    return None


def _echoed(word: Word) -> Segment | None:
    text = word.text
    if text is None or text.startswith("-"):
        return None
    how = max((How.COMPUTED, *(segment.how for segment in word.segments)))
    follows = any(segment.follows for segment in word.segments)
    return Segment(text.strip(), how=how, depends=word.depends, fixed=word.fixed, follows=follows)
