"""What `$(...)` and `$((...))` print, where the script alone tells it.

In: the node of a substitution. Out: one segment, unknown for most. The job's number of GPUs is told
in many ways, and is known from the request. Called by expand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import arithmetic
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
_EXPRESSION: Final = re.compile(r"(?:expr\s+|echo\s+\$\(\()(?P<expression>[^|;&]+?)(?:\)\))?$")

#: expands a node as one word
WordOf = Callable[["Node", "Source", "Scope"], Word]


def of_command(node: Node, source: Source, scope: Scope, *, quoted: bool, word: WordOf) -> Segment:
    """Return what `$(...)` prints; the walker follows the commands in it later."""
    scope.substitutions.append((node, source))
    text = decode(source.data[node.start_byte : node.end_byte])
    text = text.strip("`").removeprefix("$(").removesuffix(")").strip()
    if _counts_gpus(text, scope):
        return Segment(scope.slurm["SLURM_GPUS_ON_NODE"], how=How.COMPUTED, follows=True)
    match = _EXPRESSION.match(text)
    if match is not None:
        found = of_arithmetic(f"$(({match['expression']}))", scope)
        if found.text is not None:
            return found
    echoed = _echoed(node, source, scope, word)
    return echoed or unknown(how=How.COMPUTED, splits=not quoted)


def _counts_gpus(text: str, scope: Scope) -> bool:
    if "SLURM_GPUS_ON_NODE" not in scope.slurm or "CUDA_VISIBLE_DEVICES" in scope.variables:
        return False
    return any(p.match(text) for p in (_GPU_COUNT, _TORCH_COUNT, _DEVICE_COUNT))


def _echoed(node: Node, source: Source, scope: Scope, word: WordOf) -> Segment | None:
    """Return the text of `$(echo WORD)`, None for other commands."""
    command = node.named_children[0] if node.named_child_count == 1 else None
    if command is None or command.type != "command" or command.named_child_count != 2:  # noqa: PLR2004
        return None
    name, argument = command.named_children
    if source.data[name.start_byte : name.end_byte] != b"echo":
        return None
    found = word(argument, source, scope)
    text = found.text
    if text is None or text.startswith("-"):
        return None
    how = max((How.COMPUTED, *(segment.how for segment in found.segments)))
    return Segment(text.strip(), how=how, depends=found.depends, fixed=found.fixed)


def of_arithmetic(text: str, scope: Scope) -> Segment:
    """Evaluate `$(( ... ))` over whole numbers that are known."""
    expression = text.removeprefix("$((").removesuffix("))").removeprefix("$[").removesuffix("]")
    numbers = Numbers(scope)
    return numbers.segment(arithmetic.evaluate(expression, numbers))
