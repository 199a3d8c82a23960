"""What `$(...)` and `$((...))` print, where the script alone tells it.

In: the node of a substitution. Out: segments, unknown for most. The job's number of GPUs is told in
many ways, and is known from the request. Called by expand; commands reads here-documents with it.
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

#: `echo $CUDA_VISIBLE_DEVICES | tr ',' ' '`
_DEVICE_WORDS: Final = re.compile(
    rf"""echo\s+{_DEVICES}\s*\|\s*"""
    r"""(?:tr\s+["']?,["']?\s+["'](?:\s|\\n)["']|sed\s+["']s/,/ /g["'])$"""
)
_PROGRAM_PATH: Final = re.compile(
    r"(?:which|command\s+-v|type\s+-[pP])\s+(?P<name>[\w.+-]+)(?:\s+2>\s*/dev/null)?$"
)
_ECHO_OPTION: Final = re.compile(r"-[neE]+")
_QUOTES: Final = b"'\"\\"
_SPACE: Final = Segment(" ")
_MOST_WORDS: Final = 32

#: expands a node as one word
WordOf = Callable[["Node", "Source", "Scope"], Word]


def of_command(
    node: Node, source: Source, scope: Scope, *, quoted: bool, word: WordOf
) -> tuple[Segment, ...]:
    """Return what `$(...)` prints; the walker follows the commands in it later."""
    scope.substitutions.append((node, source))
    printed = _printed(node, source, scope, word)
    if printed is None:
        return (unknown(how=How.COMPUTED, splits=not quoted),)
    return tuple(segment._replace(splits=not quoted) for segment in printed)


def _of_gpus(text: str, scope: Scope) -> str | None:
    """Return what a command prints of the job's GPUs, None for other commands."""
    slurm = scope.slurm
    if "SLURM_GPUS_ON_NODE" not in slurm or "CUDA_VISIBLE_DEVICES" in scope.variables:
        return None
    if any(p.match(text) for p in (_GPU_COUNT, _TORCH_COUNT, _DEVICE_COUNT)):
        return slurm["SLURM_GPUS_ON_NODE"]
    if _DEVICE_WORDS.match(text) and "CUDA_VISIBLE_DEVICES" in slurm:
        return slurm["CUDA_VISIBLE_DEVICES"].replace(",", " ")
    return None


def _printed(node: Node, source: Source, scope: Scope, word: WordOf) -> tuple[Segment, ...] | None:
    """Return the text that the script alone tells, None for most commands."""
    text = decode(source.data[node.start_byte : node.end_byte])
    text = text.strip("`").removeprefix("$(").removesuffix(")").strip()
    of_gpus = _of_gpus(text, scope)
    if of_gpus is not None:
        return (Segment(of_gpus, how=How.COMPUTED, follows=True),)
    path = _PROGRAM_PATH.match(text)
    if path is not None:
        return (unknown(how=How.COMPUTED), Segment("/" + path["name"], how=How.COMPUTED))
    only = node.named_children[0] if node.named_child_count == 1 else None
    if only is None or only.child_count > _MOST_WORDS:
        return None
    if only.type == "redirected_statement":
        return _copied(only, source, scope, word)
    name = only.child_by_field_name("name") if only.type == "command" else None
    program = b"" if name is None else source.data[name.start_byte : name.end_byte]
    if program not in (b"echo", b"expr"):
        return None
    words = [word(child, source, scope) for child in only.named_children[1:]]
    if program == b"expr":
        numbers = Numbers(scope)
        pieces = (piece for argument in words for piece in (*argument.segments, _SPACE))
        return (numbers.segment(numbers.evaluated(Word(tuple(pieces)))),)
    return _echoed(words[0]) if len(words) == 1 else None


def _copied(node: Node, source: Source, scope: Scope, word: WordOf) -> tuple[Segment, ...] | None:
    """Return the here-document of `$(cat <<EOF ...)`, without the end of its last line."""
    body = node.child_by_field_name("body")
    here = node.named_children[-1]
    if body is None or source.data[body.start_byte : body.end_byte] != b"cat":
        return None
    if node.named_child_count != len(("cat", "<<EOF")) or here.type != "heredoc_redirect":
        return None
    found = heredoc_segments(here, source, scope, word)
    if not found or any(child.type == "pipeline" for child in here.named_children):
        return None
    *ahead, last = found
    text = last.text
    return (*ahead, last if text is None else last._replace(text=text.rstrip("\n")))


def heredoc_segments(
    node: Node, source: Source, scope: Scope, word: WordOf
) -> tuple[Segment, ...] | None:
    """Return a here-document's text: as it stands behind a quoted delimiter, else expanded."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    if start is None or body is None:
        return None
    delimiter = source.data[start.start_byte : start.end_byte]
    if any(mark in delimiter for mark in _QUOTES):
        return source.literal(body.start_byte, body.end_byte)
    return word(body, source, scope).segments


def _echoed(word: Word) -> tuple[Segment, ...] | None:
    text = word.text
    if text is None or _ECHO_OPTION.fullmatch(text):
        return None
    how = max((How.COMPUTED, *(segment.how for segment in word.segments)))
    follows = any(segment.follows for segment in word.segments)
    return (
        Segment(text.strip(), how=how, depends=word.depends, fixed=word.fixed, follows=follows),
    )
