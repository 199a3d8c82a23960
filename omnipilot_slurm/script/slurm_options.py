"""The option grammar that sbatch and srun share: which options take a value.

In: words of a command line or of an #SBATCH line. Out: (long name, value, index of the value's
word, offset in it) for each option and where the command begins. Called by directives and
wrappers. Names and arities as `sbatch --help` and `srun --help` of 22.05 to 24.11 list them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT: Final = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile",
    "G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos",
    "r": "relative", "S": "core-spec", "T": "threads", "t": "time", "W": "wait", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
_SHORT_FLAGS: Final = {
    "E": "preserve-env", "H": "hold", "h": "help", "K": "kill-on-bad-exit", "k": "no-kill",
    "l": "label", "O": "overcommit", "Q": "quiet", "s": "oversubscribe", "u": "unbuffered",
    "v": "verbose", "V": "version", "X": "disable-status", "Z": "no-allocate",
}  # fmt: skip
_SHORT_OPTIONAL: Final = {"I": "immediate"}
#: long options without a value
_FLAGS: Final = frozenset(
    "contiguous debugger-test disable-status exact help hold ignore-pbs interactive label"
    " multi-prog no-allocate no-kill no-requeue no-shell oom-kill-step overcommit oversubscribe"
    " overlap parsable preserve-env pty quiet quit-on-interrupt reboot requeue resv-ports share"
    " spread-job test-only unbuffered usage use-min-nodes verbose version whole"
    " container-mount-home no-container-mount-home container-remap-root"
    " no-container-remap-root container-entrypoint no-container-entrypoint container-writable"
    " container-readonly".split()
)
#: long options whose value can only stand behind `=`
_OPTIONAL: Final = frozenset(
    "bell compress exclusive get-user-env immediate kill-on-bad-exit nice no-bell propagate"
    " send-libs stepmgr x11".split()
)
_VALUED: Final = frozenset(_SHORT.values()) | frozenset(
    "acctg-freq bb bbf bcast bcast-exclude cluster-constraint comment container container-id"
    " container-image container-mounts container-name container-save container-workdir"
    " container-env core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu deadline delay-boot"
    " environment epilog export export-file external-launcher extra gid gpu-bind gpu-freq gpus"
    " gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint het-group jobid kill-command"
    " mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi network"
    " ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres oom-kill"
    " open-mode plane power prefer priority profile prolog reservation resources segment signal"
    " slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec"
    " threads-per-core time-min tmp tree-width tres-bind tres-per-task uid wckey wrap".split()
)
_ALIASES: Final = {"tasks-per-node": "ntasks-per-node", "licences": "licenses"}
_LONG: Final = _FLAGS | _OPTIONAL | _VALUED | _ALIASES.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option as written; the value stands in word `index` from character `offset` on."""

    name: str
    value: str | None
    index: int
    offset: int


def parse(words: Sequence[str | None]) -> tuple[tuple[Option, ...], int]:
    """Return the options and the index of the first word that is none (the command).

    A word that is None (not known) ends the options, unless it is an option's value.
    """
    options: list[Option] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word is None or word in ("-", "") or not word.startswith("-"):
            break
        if word == "--":
            return tuple(options), index + 1
        option = _long(words, index) if word.startswith("--") else _short(words, index)
        options.append(option)
        index = option.index + 1
    return tuple(options), index


def long_name(name: str) -> str:
    """Return the full name of a long option that may be abbreviated, as getopt_long does."""
    if name in _LONG:
        return _ALIASES.get(name, name)
    matches = [known for known in _LONG if known.startswith(name)]
    return _ALIASES.get(matches[0], matches[0]) if len(matches) == 1 else name


def _long(words: Sequence[str | None], index: int) -> Option:
    word = words[index] or ""
    name, equals, value = word[2:].partition("=")
    name = long_name(name)
    if equals:
        return Option(name=name, value=value, index=index, offset=len(word) - len(value))
    if name in _FLAGS or name in _OPTIONAL or index + 1 >= len(words):
        return Option(name=name, value=None, index=index, offset=len(word))
    return Option(name=name, value=words[index + 1], index=index + 1, offset=0)


def _short(words: Sequence[str | None], index: int) -> Option:
    word = words[index] or ""
    letter, rest = word[1], word[2:]
    if letter in _SHORT_FLAGS:
        return Option(name=_SHORT_FLAGS[letter], value=None, index=index, offset=len(word))
    if letter in _SHORT_OPTIONAL:
        return Option(name=_SHORT_OPTIONAL[letter], value=rest or None, index=index, offset=2)
    name = _SHORT.get(letter, letter)
    if rest:
        offset = 3 if rest.startswith("=") else 2
        return Option(name=name, value=word[offset:], index=index, offset=offset)
    if index + 1 >= len(words):
        return Option(name=name, value=None, index=index, offset=len(word))
    return Option(name=name, value=words[index + 1], index=index + 1, offset=0)
