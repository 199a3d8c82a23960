"""What a batch script says in comments: #SBATCH options, #OMNIPILOT words, walltime, memory.

In: script bytes. Out: a Submission as slurmctld would show it (for commands that run before
sbatch) and Directives. Called by detect and advise for the former, by decide for the latter.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.records import Mode, Submission
from omnipilot_slurm.script import slurm_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MEMORY: Final = re.compile(r"^(\d{1,15})([kKmMgGtT]?)[bB]?$")
_MIB: Final = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
_TIME: Final = re.compile(r"^(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,9}(?::\d{1,9}){0,2})$")
_OMNIPILOT: Final = re.compile(
    r"^[ \t]*#[ \t]?OMNIPILOT\b[ \t:=]*(?P<words>.*)$", re.IGNORECASE | re.MULTILINE
)
#: lines and words of a line that are read, and words not understood that are kept
_MOST_LINES: Final = 50
_MOST_WORDS: Final = 50
_MOST_UNKNOWN: Final = 20
_SBATCH: Final = "#SBATCH"
_MAX_VALUE: Final = 1e12
_EXPORTED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)")
#: keys of `#OMNIPILOT key=value` and the type of their values
DIRECTIVE_KEYS: Final = {
    "concurrency": int,
    "isl": int,
    "osl": int,
    "slo_ttft_ms": float,
    "slo_tpot_ms": float,
    "requests_per_s": float,
    "hours": float,
}


_WORD: Final = rf"(?:off|auto|advise|observe|(?:{'|'.join(DIRECTIVE_KEYS)})=[\w.]{{1,20}})"
#: `omnipilot=off`, alone or among words for others, in JSON too
_COMMENT: Final = re.compile(
    rf"""(?:^|[\s,;{{"'])omnipilot["']?\s?[=:]\s?["']?"""
    rf"""(?P<words>[^;,\s"'}}]+(?:[,\s]{{1,2}}{_WORD}(?![^;,\s"'}}]))*)""",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What the user told us: `off`, a lower mode, `auto`, workload values, words not understood."""

    off: bool = False
    mode: Mode | None = None
    auto: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def omnipilot(script: bytes, comment: str | None = None) -> Directives:
    """Return the #OMNIPILOT words of a script, then those of `--comment omnipilot=...`.

    Later words win; only the first 50 lines and 50 words of each count. In a comment, several words
    are joined by `+`, by commas or blanks: `omnipilot=auto+isl=512`.
    """
    found = Directives()
    text = script.decode("utf-8", "replace")
    for match in islice(_OMNIPILOT.finditer(text), _MOST_LINES):
        found = _read_words(found, re.split(r"[\s,]+", match["words"].partition("#")[0].strip()))
    for match in _COMMENT.finditer(comment or ""):
        found = _read_words(found, re.split(r"[+,\s]+", match["words"]))
    return found


def _read_words(found: Directives, words: Iterable[str]) -> Directives:
    for word in islice(filter(None, words), _MOST_WORDS):
        key, equals, value = word.casefold().partition("=")
        if equals:
            found = _read_value(found, word, key, value)
        elif key == "off":
            found = replace(found, off=True)
        elif key == "auto":
            found = replace(found, auto=True)
        elif key in (Mode.ADVISE, Mode.OBSERVE):
            found = replace(found, mode=Mode(key))
        else:
            found = _with_unknown(found, word)
    return found


def _read_value(found: Directives, word: str, key: str, value: str) -> Directives:
    try:
        number = DIRECTIVE_KEYS[key](value)
    except (KeyError, ValueError):
        return _with_unknown(found, word)
    if not 0 < number < _MAX_VALUE:
        return _with_unknown(found, word)
    return replace(found, values={**found.values, key: number})


def _with_unknown(found: Directives, word: str) -> Directives:
    return replace(found, unknown=(*found.unknown, word)[:_MOST_UNKNOWN])


class Header(NamedTuple):
    """The options of a script's #SBATCH lines, by long name; the last one wins.

    `is_het`: the job has further components, whose options are not these.
    """

    options: dict[str, str | None]
    is_het: bool = False


def header_of(script: bytes) -> Header:
    """Return the options that sbatch would read in a script.

    Lines after the first command do not count; `##SBATCH` is a comment.
    """
    options: dict[str, str | None] = {}
    for number, line in enumerate(script.decode("utf-8", "surrogateescape").split("\n")):
        stripped = line.strip()
        if number > 0 and stripped and not stripped.startswith("#"):
            break
        if line.startswith(_SBATCH) and line[len(_SBATCH) :][:1] in (" ", "\t"):
            words = _split(line[len(_SBATCH) :])
            if words in (["hetjob"], ["packjob"]):
                return Header(options, is_het=True)
            options |= {option.name: option.value for option in slurm_options.parse(words)[0]}
    return Header(options)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def submission_of(
    script: bytes, *, args: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
) -> tuple[Submission, str]:
    """Return the submission that sbatch would make of a script, and the form of tres_per_node.

    The form is gres or gpus-per-node, which slurmctld no longer tells apart. Values that cannot
    be read count as not set.
    """
    options, is_het = header_of(script)
    gres = options.get("gres")
    gpus_per_node = None if _asks_gpus(gres) else _as_gres(options.get("gpus-per-node"))
    nodes = _first_number(options.get("nodes"))
    submission = Submission(
        script=script,
        args=args,
        environment={**_exported(options.get("export")), **(environment or {})},
        account=options.get("account"),
        qos=options.get("qos"),
        partition=options.get("partition"),
        name=options.get("job-name"),
        tres_per_node=",".join(filter(None, (gres, gpus_per_node))) or None,
        tres_per_job=_as_gres(options.get("gpus")),
        tres_per_task=_as_gres(options.get("gpus-per-task")) or options.get("tres-per-task"),
        tres_per_socket=_as_gres(options.get("gpus-per-socket")),
        cpus_per_tres=options.get("cpus-per-gpu"),
        mem_per_tres=_mib_per_gpu(options.get("mem-per-gpu")),
        ntasks_per_gpu=_first_number(options.get("ntasks-per-gpu")),
        min_nodes=nodes,
        max_nodes=nodes,
        num_tasks=_first_number(options.get("ntasks")),
        ntasks_per_node=_first_number(options.get("ntasks-per-node")),
        cpus_per_task=_first_number(options.get("cpus-per-task")),
        min_mem_per_node_mib=parse_memory(options.get("mem")),
        min_mem_per_cpu_mib=parse_memory(options.get("mem-per-cpu")),
        time_limit_min=parse_walltime(options.get("time")),
        features=options.get("constraint"),
        reservation=options.get("reservation"),
        req_nodes=options.get("nodelist"),
        exc_nodes=options.get("exclude"),
        array=options.get("array"),
        het_job_offset=0 if is_het else None,
        held="hold" in options,
        comment=options.get("comment"),
    )
    return submission, "gpus-per-node" if gpus_per_node else "gres"


def _asks_gpus(gres: str | None) -> bool:
    return any(
        part.startswith(("gpu:", "gpu=")) or part == "gpu" for part in (gres or "").split(",")
    )


def _exported(export: str | None) -> dict[str, str]:
    """Return the variables that `--export=ALL,NAME=VALUE` sets."""
    found = map(_EXPORTED.fullmatch, (export or "").split(","))
    return {match["name"]: match["value"] for match in found if match}


def _as_gres(gpus: str | None) -> str | None:
    return ",".join(f"gpu:{part}" for part in gpus.split(",")) if gpus else None


def _mib_per_gpu(memory: str | None) -> str | None:
    mib = parse_memory(memory)
    return None if mib is None else f"gpu:{mib}"


def _first_number(text: str | None) -> int | None:
    match = re.match(r"^\s*(\d{1,9})", text or "")
    return int(match[1]) if match else None


def parse_walltime(text: str | None) -> int | None:
    """Return minutes, rounded up, of M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for no limit."""
    match = _TIME.match((text or "").strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        hours += 24 * int(match["days"])
    elif len(parts) == 3:  # noqa: PLR2004 - H:M:S
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return hours * 60 + minutes + (seconds > 0)


def parse_memory(text: str | None) -> int | None:
    """Return MiB of `200G`, `4000`, `1T`; None where nothing or 0 (all of the node) is asked."""
    match = _MEMORY.match((text or "").strip())
    if match is None:
        return None
    return round(int(match[1]) * _MIB[match[2].lower()]) or None
