"""Commands that print, wait or make folders: they neither start a server nor change a variable.

In: a command's own text. Out: whether it may be passed over as it stands. Called by walk, since
expanding every word of every `echo` takes longer than all the rest of a usual script.
"""

from __future__ import annotations

import re
from typing import Final

#: plain arguments and `$X`, `${X}`: no substitution, redirect, escape or second command
_ARGUMENTS: Final = rb"(?:[ \t]+(?:[^`\\(){}<>|&;\n]|\$\{\w+\})*)?"
#: the same with variables of Slurm and the user only: the value of another may move with the GPUs,
#: and then the folder does too, or name a version
_FIXED_ARGUMENTS: Final = (
    rb"(?:[ \t]+(?:[^`\\(){}<>|&;\n$]|\$\{?(?:SLURM_SUBMIT_DIR|HOME|USER)\b\}?)*)?"
)
_INERT: Final = re.compile(
    rb"(?:echo|mkdir|sleep|date|hostname|pwd|ulimit|umask|whoami)"
    + _ARGUMENTS
    + rb"|(?:cd|module|ml)"
    + _FIXED_ARGUMENTS
)
#: `set -euo pipefail`; with `--` or plain words it sets the arguments
_SHELL_OPTIONS: Final = re.compile(rb"set(?:[ \t]+[-+](?:[a-z]*o[ \t]+[a-z]+|[a-z]+))+")
#: a module or folder of this name tells the version
_TELLING: Final = re.compile(rb"vllm", re.IGNORECASE)


def is_inert(text: bytes) -> bool:
    """Return whether a command does nothing that matters, whatever the variables in it are."""
    if _INERT.fullmatch(text) is None:
        return _SHELL_OPTIONS.fullmatch(text) is not None
    return _TELLING.search(text) is None
