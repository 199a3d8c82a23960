"""Read a vLLM command line as vLLM's own parser reads it, by version.

In: the words behind `vllm serve`, `-m vllm.entrypoints.openai.api_server` or the legacy
`-m vllm.entrypoints.api_server`, and the version where it is known. Out: a CommandLine with every
option, positional and problem. Called by the script reader, `omnipilot fit` and the tests.
The rules are argparse's (reader.py) behind those of vLLM's own parser class (tokens.py), over the
options of options.py. Where the version is not known, what all versions agree on is read as
certain, else the newest reading is taken and the difference noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.vllm.command_line import (
    CommandLine,
    Effect,
    Occurrence,
    Positional,
    Problem,
    Splice,
)
from omnipilot_slurm.vllm.engine_args import engine_args
from omnipilot_slurm.vllm.grammar import FORMS, grammar, is_beyond, since
from omnipilot_slurm.vllm.reader import Reader
from omnipilot_slurm.vllm.tokens import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FORMS",
    "CommandLine",
    "Effect",
    "Occurrence",
    "Positional",
    "Problem",
    "Splice",
    "engine_args",
    "parse",
]

#: images whose entrypoint is known to be `vllm serve`; in older ones it is the api_server
_IMAGE_SERVES = since("0.26.0")


def parse(
    words: Sequence[str | Splice | None], *, version: str | None = None, form: str = "vllm serve"
) -> CommandLine:
    """Return what vLLM's parser makes of the words behind the launcher.

    A word None is one word whose text is not known; a Splice is any number of words. `version` is
    a version string, a partial one ("0.8") or None; `form` one of FORMS.
    """
    rules = grammar(form, version)
    if form == "docker entrypoint" and rules.holds(_IMAGE_SERVES):
        rules = grammar("vllm serve", version)
    reader = Reader(prepare(words, rules), rules, may_be_newer=is_beyond(version))
    reader.read()
    return CommandLine(
        form=form,
        version=version,
        occurrences=tuple(reader.occurrences),
        positionals=tuple(reader.positionals),
        problems=tuple(reader.problems),
        open_from=reader.open_from,
    )
