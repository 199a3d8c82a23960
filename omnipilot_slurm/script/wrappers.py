"""What stands in front of a program: srun, containers, env, conda run, bash -c and their kin.

In: the words of a command. Out: the program behind all wrappers, the text a shell is told to run,
and what the wrappers say of GPUs, images and variables. Called by serving.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import slurm_options
from omnipilot_slurm.script.source import How, Segment, Splice, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.script.expand import Words

_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_]\w*=")
_MAX_WRAPPERS: Final = 16
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SPACE: Final = Segment(text=" ")
_UNKNOWN: Final = Segment(text=None, how=How.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How a wrapper's own words end: options with a value, then `skip` words, then the program.

    `verbs`: the program follows only one of these sub-commands.
    """

    short: str = ""
    long: str = ""
    skip: int = 0
    verbs: str = ""


_UV: Final = _Rule(
    short="pCip",
    long="python with with-requirements with-editable project directory env-file extra group only-group"
    " no-group index default-index index-url extra-index-url package cache-dir config-file refresh-package"
    " upgrade-package reinstall-package resolution prerelease link-mode module find-links from",
    verbs="run",
)
_CONDA: Final = _Rule(short="np", long="name prefix cwd", verbs="run")
_RULES: Final[Mapping[str, _Rule]] = {
    "exec": _Rule(short="a"),
    "nohup": _Rule(),
    "time": _Rule(short="fo", long="format output"),
    "setsid": _Rule(),
    "command": _Rule(),
    "builtin": _Rule(),
    "nice": _Rule(short="n", long="adjustment"),
    "ionice": _Rule(short="cnp", long="class classdata"),
    "chrt": _Rule(skip=1),
    "stdbuf": _Rule(short="ioe", long="input output error"),
    "timeout": _Rule(short="ks", long="kill-after signal", skip=1),
    "taskset": _Rule(skip=1),
    "numactl": _Rule(short="mNCipl", long="membind cpunodebind physcpubind interleave preferred"),
    "unbuffer": _Rule(),
    "catchsegv": _Rule(),
    "tini": _Rule(short="p", long=""),
    "dumb-init": _Rule(),
    "xvfb-run": _Rule(short="sn", long="server-args server-num"),
    "flock": _Rule(short="wE", long="timeout conflict-exit-code", skip=1),
    "sudo": _Rule(short="ugCDhpRrTt", long="user group"),
    "strace": _Rule(short="oepsu"),
    "ddtrace-run": _Rule(),
    "opentelemetry-instrument": _Rule(long="traces_exporter metrics_exporter service_name"),
    "nsys": _Rule(
        short="otcwsxyd", verbs="profile",
        long="output trace duration delay capture-range sample session-new stats wait kill",
    ),
    "ncu": _Rule(short="oksc", long="export kernel-name launch-skip launch-count set section"),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _Rule(short="npra", long="name prefix root-prefix cwd attach", verbs="run"),
    "uv": _UV,
    "uvx": replace(_UV, verbs=""),
    "pipx": _Rule(long="spec python", verbs="run"),
    "poetry": _Rule(short="CP", long="directory project", verbs="run"),
    "pipenv": _Rule(verbs="run"),
    "pdm": _Rule(short="p", long="project", verbs="run"),
    "hatch": _Rule(short="e", long="env", verbs="run"),
    "rye": _Rule(verbs="run"),
    "pixi": _Rule(short="e", long="environment manifest-path", verbs="run"),
    "mpirun": _Rule(short="nxH", long="np hostfile host map-by bind-to mca npernode"),
    "mpiexec": _Rule(short="nxf", long="np hostfile host map-by bind-to mca ppn"),
    "enroot": _Rule(short="emc", long="env mount conf rc", verbs="start"),
    "shifter": _Rule(short="ieVw", long="image env volume workdir module"),
    "ch-run": _Rule(short="bcs", long="bind cd set-env storage unset-env join-ct", skip=1),
    "ssh": _Rule(short="bcDEeFIiJLlmOopQRSWw", skip=1),
    "systemd-run": _Rule(short="pHM", long="property unit slice description uid gid setenv"),
}  # fmt: skip
_APPTAINER: Final = _Rule(
    short="BHSWo",
    long="bind env env-file home pwd cwd workdir overlay scratch app network network-args dns hostname"
    " security add-caps drop-caps apply-cgroups mount fusemount cpus memory memory-swap device"
    " docker-username docker-password nvccli-args keep-privs",
    verbs="exec run shell",
)
_DOCKER: Final = _Rule(
    short="vepwuhlmac",
    long="volume env env-file publish workdir user name network net gpus shm-size ipc runtime entrypoint"
    " mount device hostname label memory memory-swap cpus ulimit cap-add cap-drop security-opt restart"
    " platform pull add-host log-driver log-opt pid uts tmpfs cpuset-cpus cpuset-mems group-add hooks-dir"
    " annotation userns cgroup-parent health-cmd expose dns cpu-shares cgroupns",
    verbs="run exec",
)
_CONTAINERS: Final[Mapping[str, _Rule]] = {
    "apptainer": _APPTAINER,
    "singularity": _APPTAINER,
    "docker": _DOCKER,
    "podman": _DOCKER,
    "podman-hpc": _DOCKER,
    "nerdctl": _DOCKER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOption:
    """One option of an srun in front of the program, with the word its value stands in."""

    name: str
    value: str | None
    word: Word | None
    offset: int


@dataclass(slots=True)
class Unwrapped:
    """A program behind its wrappers.

    `words` begin with the program (empty where there is none); `shell_text` is what a shell is told
    to run instead; `entrypoint` says that the words are arguments of an image's own program.
    """

    words: Words = field(default_factory=list)
    shell_text: Word | None = None
    evaluated: bool = False
    reads_stdin: bool = False
    entrypoint: bool = False
    steps: list[StepOption] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    environment: dict[str, Word | None] = field(default_factory=dict)
    wrapper_names: list[str] = field(default_factory=list)

    @property
    def program(self) -> str | None:
        """The program's base name, None where it is not known."""
        first = self.words[0] if self.words else None
        text = first.text if isinstance(first, Word) else None
        return text.rsplit("/", 1)[-1] if text else None


def unwrap(words: Words) -> Unwrapped:
    """Take all wrappers away from the words of a command."""
    found = Unwrapped(words=list(words))
    for _ in range(_MAX_WRAPPERS):
        name = found.program
        if name is None or not _step(name, found):
            break
        found.wrapper_names.append(name)
        if found.shell_text is not None or found.reads_stdin or found.entrypoint:
            break
    return found


def _step(name: str, found: Unwrapped) -> bool:
    """Take one wrapper away; False where the first word is none."""
    if name == "srun":
        _srun(found)
    elif name == "env":
        _env(found)
    elif name in _SHELLS:
        return _shell(found)
    elif name == "eval":
        _evaluate(found, found.words[1:])
    elif name in _CONTAINERS:
        return _container(found, _CONTAINERS[name])
    elif name == "screen" or name == "tmux" or name == "script":
        return _terminal(found)
    elif name in _RULES:
        return _plain(found, name)
    else:
        return False
    return True


def _plain(found: Unwrapped, name: str) -> bool:
    rule = _RULES[name]
    rest = _behind_verb(found.words[1:], rule)
    if rest is None:
        return False
    behind = _behind_options(rest, rule)
    if name == "ssh" and len(behind) > 1:
        _evaluate(found, behind[1:])
        return True
    if behind[: rule.skip] and _text(behind[0]) == "--":
        behind = behind[1:]
    found.words = behind[rule.skip :]
    if found.words and _text(found.words[0]) == "--":
        found.words = found.words[1:]
    return bool(found.words)


def _behind_verb(words: Words, rule: _Rule) -> Words | None:
    if not rule.verbs:
        return words
    rest = _behind_options(words, rule)
    if not rest or _text(rest[0]) not in rule.verbs.split():
        return None
    return rest[1:]


def _behind_options(words: Words, rule: _Rule, values: dict[str, Word] | None = None) -> Words:
    """Return the words behind a wrapper's options; note options' values in `values`."""
    long = rule.long.split()
    index = 0
    while index < len(words):
        text = _text(words[index])
        if text is None or not text.startswith("-") or text == "-":
            if isinstance(words[index], Splice) or (isinstance(words[index], Word) and text == ""):
                index += 1
                continue
            break
        if text == "--":
            return words[index + 1 :]
        name, equals, _ = text.lstrip("-").partition("=")
        is_long = text.startswith("--") or name in long
        takes = (name in long) if is_long else (text[1] in rule.short and len(text) == 2)  # noqa: PLR2004
        if values is not None:
            value = (
                words[index + 1]
                if takes and not equals and index + 1 < len(words)
                else words[index]
            )
            if isinstance(value, Word):
                values[name if is_long else text[1]] = (
                    value.part(len(text.partition("=")[0]) + 1) if equals else value
                )
        index += 2 if takes and not equals else 1
    return words[index:]


def _srun(found: Unwrapped) -> None:
    words = found.words[1:]
    options, command = slurm_options.parse([_text(word) for word in words])
    for option in options:
        word = words[option.index]
        found.steps.append(
            StepOption(
                name=option.name,
                value=option.value,
                word=word if isinstance(word, Word) else None,
                offset=option.offset,
            )
        )
        if option.name == "container-image" and option.value:
            found.images.append(option.value)
    while command < len(words) and isinstance(words[command], Splice):
        command += 1
    found.words = words[command:]


def _env(found: Unwrapped) -> None:
    rest = _behind_options(found.words[1:], _Rule(short="uCS", long="unset chdir split-string"))
    while rest:
        text = rest[0].shown if isinstance(rest[0], Word) else ""
        if not _ASSIGNMENT.match(text):
            break
        name = text.partition("=")[0]
        word = rest[0]
        found.environment[name] = word.part(len(name) + 1) if isinstance(word, Word) else None
        rest = rest[1:]
    found.words = rest


def _shell(found: Unwrapped) -> bool:
    """Read `bash -lc TEXT`; `bash FILE` stays a program, bare `bash` reads its standard input."""
    words = found.words[1:]
    for index, word in enumerate(words):
        text = _text(word)
        if text is None or not text.startswith(("-", "+")):
            return False
        if text == "-s" or text == "-":
            break
        if not text.startswith("--") and "c" in text[1:]:
            behind = [w for w in words[index + 1 :] if _text(w) != "--"]
            if not behind or not isinstance(behind[0], Word):
                return False
            found.shell_text = behind[0]
            found.words = []
            return True
    found.reads_stdin = True
    found.words = []
    return True


def _evaluate(found: Unwrapped, words: Words) -> None:
    segments = []
    for word in words:
        if segments:
            segments.append(_SPACE)
        segments += word.segments if isinstance(word, Word) else (_UNKNOWN,)
    found.shell_text = Word(segments=tuple(segments))
    found.evaluated = True
    found.words = []


def _container(found: Unwrapped, rule: _Rule) -> bool:
    words = _behind_verb(found.words[1:], rule)
    if words is None:
        return False
    values: dict[str, Word] = {}
    verb = next((_text(w) for w in found.words[1:] if _text(w) in rule.verbs.split()), "run")
    words = _behind_options(words, rule, values)
    if not words:
        return False
    image, found.words = words[0], words[1:]
    if isinstance(image, Word):
        found.images.append(image.shown)
    entrypoint = values.get("entrypoint")
    if "gpus" in values and "device" in values["gpus"].shown:
        found.environment["CUDA_VISIBLE_DEVICES"] = None
    if entrypoint is not None and entrypoint.text:
        found.words = [entrypoint, *found.words]
    elif verb == "run" and _is_entrypoint(image, found.words):
        found.entrypoint = True
    return bool(found.words)


def _is_entrypoint(image: Word | Splice, words: Words) -> bool:
    """Return whether the words behind an image are arguments of the image's own vLLM server."""
    name = image.shown.lower() if isinstance(image, Word) else "?"
    first = _text(words[0]) if words else None
    if first is None:
        return bool(words) and "vllm" in name
    if not first.startswith("-"):
        return "vllm-openai" in name and first not in _NOT_MODELS and "/" in first[1:]
    return "vllm" in name or "?" in name or any(_text(w) == "--model" for w in words)


_NOT_MODELS: Final = _SHELLS | {"vllm", "python", "python3", "env", "sleep", "nvidia-smi"}


def _terminal(found: Unwrapped) -> bool:
    """Read `screen -dmS name CMD...`, `tmux new-session -d "CMD"` and `script -c CMD file`."""
    name = found.program
    words = found.words[1:]
    if name == "script":
        for index, word in enumerate(words[:-1]):
            if (_text(word) or "").startswith("-") and (_text(word) or "").endswith("c"):
                _evaluate(found, [words[index + 1]])
                return True
        return False
    if name == "tmux":
        if not words or _text(words[0]) not in ("new", "new-session", "new-window", "neww"):
            return False
        rest = _behind_options(words[1:], _Rule(short="scnxytFe"))
    else:
        rest = words
        while rest and (_text(rest[0]) or "").startswith("-"):
            rest = rest[2 if (_text(rest[0]) or "").endswith("S") else 1 :]
    if not rest:
        return False
    if len(rest) == 1:
        _evaluate(found, rest)
    else:
        found.words = rest
    return True


def _text(word: Word | Splice) -> str | None:
    return word.text if isinstance(word, Word) else None
