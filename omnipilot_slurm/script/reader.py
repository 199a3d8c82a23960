"""Reads the commands of one script as the walker meets them, and takes notes.

In: a Command. Out: entries in Notes; texts that are scripts of their own (`bash -c`, heredocs,
files written on the way) are walked in turn. Called by serving.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.script import engine_runs, launches, programs, python_runs, trace, wrappers
from omnipilot_slurm.script.budget import OverBudgetError
from omnipilot_slurm.script.frame import Command, Frame
from omnipilot_slurm.script.notes import Notes, Site, pins_devices
from omnipilot_slurm.script.programs import Kind
from omnipilot_slurm.script.source import Source
from omnipilot_slurm.script.unwrapped import SHELLS
from omnipilot_slurm.script.walk import Walker
from omnipilot_slurm.script.words import (
    How,
    Splice,
    Word,
    Words,
    bounded,
    decode,
    shown,
    texts_of,
)

if TYPE_CHECKING:
    from omnipilot_slurm.script.budget import Budget
    from omnipilot_slurm.script.scope import Scope
    from omnipilot_slurm.script.unwrapped import Unwrapped

_MAX_NESTING: Final = 8
_STEPS_OF_A_LAUNCH: Final = 500
_MOST_WORDS_OF_A_COMMAND: Final = 512
_JOB_SCRIPT: Final = "#SBATCH"
_PLACEHOLDER: Final = re.compile(r"\{\{|\{%|<%|(?<![<\w$])<[A-Za-z_][\w .:/-]*>")
_QUOTED: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
#: `$TOOL serve M -tp 2`: an option of vLLM's
_SERVE_OPTION: Final = re.compile(r"--|-(?:tp|pp|dp|q)(?:=|$)")
_SETUP_PROGRAMS: Final = ("module", "ml", "source", ".", "conda", "mamba", "micromamba")
_WRITERS: Final = frozenset({"cat", "tee", "echo", "printf"})
_FILE_RUNNERS: Final = SHELLS | {"source", "."}


@dataclass(slots=True)
class Reader:
    """Takes notes on the commands of one script."""

    script: bytes
    budget: Budget
    n_tasks: int = 1
    notes: Notes = field(default_factory=Notes)
    _walker: Walker = field(init=False)
    _files: dict[str, Source] = field(default_factory=dict)
    _around: tuple[Unwrapped, ...] = ()

    def __post_init__(self) -> None:
        self._walker = Walker(visit=self.visit, budget=self.budget)

    def read(self, scope: Scope) -> None:
        """Walk the whole script."""
        self._walker.run(Frame(Source.of_script(self.script), scope))
        self.notes.pinned = self.notes.pinned or pins_devices(scope.variables)
        self.notes.errors += self._walker.errors

    def visit(self, command: Command) -> None:
        """Read one command."""
        if not command.words:
            self._written(command)
            return
        if len(command.words) > _MOST_WORDS_OF_A_COMMAND:
            raise OverBudgetError
        if self._is_one_of_several(command):
            return
        unwrapped = wrappers.unwrap(command.words)
        unwrapped.environment = {**command.assignments, **unwrapped.environment}
        self.notes.hints += [*unwrapped.images, *_hints(command.words)]
        n_launches = len(self.notes.launches)
        if unwrapped.shell_text is not None:
            self.run_text(unwrapped.shell_text, unwrapped, command)
        elif unwrapped.reads_stdin:
            self._run_stdin(unwrapped, command)
        elif unwrapped.entrypoint:
            self.launch("docker entrypoint", unwrapped.words, unwrapped, command)
        else:
            self._program(unwrapped, command)
        if len(self.notes.launches) == n_launches:
            self.notes.trace += trace.of_command(command)

    def _is_one_of_several(self, command: Command) -> bool:
        """Read a command whose program a branch decides: as each of the programs it can be."""
        first = command.words[0]
        only = first.segments[0] if isinstance(first, Word) and len(first.segments) == 1 else None
        options: list[tuple[Word, ...]] = []
        if isinstance(first, Splice) and first.is_choice and not first.is_blank:
            options = list(first.options)
        elif only is not None and only.text is None:
            options = [(option,) for option in only.options]
        context = command.context._replace(branch=True)
        n_launches = len(self.notes.launches)
        for option in options:
            words: Words = [*option, *command.words[1:]]
            if words:
                self.visit(replace(command, words=words, context=context))
        # several ways to start the one server
        del self.notes.launches[n_launches + 1 :]
        return bool(options)

    # texts that are scripts of their own

    def run_text(self, word: Word, unwrapped: Unwrapped, command: Command) -> None:
        """Walk a text that a shell is told to run."""
        if unwrapped.evaluated and _is_output(word):
            self._run_output(command)
            return
        source = Source(bounded(word.segments), end=self._inner_end(word))
        scope = command.scope
        if unwrapped.names[-1:] != ["eval"]:
            scope = scope.branch()
            scope.args = unwrapped.shell_args
        is_evaluated = command.context.evaluated or unwrapped.evaluated
        context = command.context._replace(evaluated=is_evaluated)
        self._nested(Frame(source, scope, context, command.stdin), unwrapped)

    def _run_output(self, command: Command) -> None:
        """Note a shell that runs what a program prints: it may be a server."""
        # `eval "$(conda shell.bash hook)"` sets the shell up, `sh -c "$(curl ...)"` installs
        is_direct = "$(" in command.raw or "`" in command.raw
        if not is_direct or programs.could_serve(command.raw):
            self.notes.kinds.append(Kind.OPAQUE)

    def _inner_end(self, word: Word) -> int | None:
        """Return the byte of the quote that closes a word, where text may be inserted."""
        if word.end is None or self.script[word.end - 1 : word.end] not in (b'"', b"'"):
            return None
        return word.end - 1

    def _run_stdin(self, unwrapped: Unwrapped, command: Command) -> None:
        if command.stdin is None:
            return
        scope = command.scope.branch()
        scope.args = unwrapped.shell_args
        self._nested(Frame(command.stdin, scope, command.context), unwrapped)

    def _nested(self, frame: Frame, unwrapped: Unwrapped) -> None:
        if len(self._around) == _MAX_NESTING:
            raise OverBudgetError
        outer = self._around
        self._around = (*outer, unwrapped)
        self.budget.enter()
        self._walker.run(frame)
        self.budget.leave()
        self._around = outer

    def _written(self, command: Command) -> None:
        """Remember a text that is written to a file: a job script, or one that is run later."""
        text = command.stdin
        if text is None or command.writes is None:
            return
        if _JOB_SCRIPT.encode() in text.data:
            self.notes.kinds.append(Kind.GENERATOR)
        else:
            self._files[_file_name(command.writes.shown)] = text

    # programs

    def _program(self, unwrapped: Unwrapped, command: Command) -> None:
        name = unwrapped.program
        if unwrapped.unseen_program or (not unwrapped.words and unwrapped.skipped):
            self.notes.kinds.append(Kind.OPAQUE)
        elif name is None:
            self._unknown_program(unwrapped, command)
        elif name == "vllm":
            self.vllm(unwrapped.words[1:], unwrapped, command)
        elif programs.is_python(name):
            python_runs.read(self, unwrapped.words[1:], unwrapped, command)
        elif name in _WRITERS:
            self._writer(name, unwrapped, command)
        elif name in _FILE_RUNNERS or self._written_file(unwrapped) is not None:
            self._file(name, unwrapped, command)
        elif name == "sbatch" and command.stdin is not None:
            self.notes.kinds.append(Kind.GENERATOR)
        else:
            self._other(name, unwrapped)

    def _unknown_program(self, unwrapped: Unwrapped, command: Command) -> None:
        args = texts_of(unwrapped.words[1:])
        if any(arg.endswith(".py") for arg in args) or args[:1] == ["-m"]:
            python_runs.read(self, unwrapped.words[1:], unwrapped, command)
        elif args[:1] == ["serve"] and any(map(_SERVE_OPTION.match, args)):
            self.vllm(unwrapped.words[1:], unwrapped, command)
        elif unwrapped.words:
            self.notes.kinds.append(Kind.OPAQUE)

    def _writer(self, name: str, unwrapped: Unwrapped, command: Command) -> None:
        """Read cat, tee, echo and printf: they matter by what they write to files."""
        last = unwrapped.words[-1]
        if name == "tee" and command.writes is None and isinstance(last, Word):
            command = replace(command, writes=last)
        if command.writes is None:
            return
        if name in ("echo", "printf"):
            if _JOB_SCRIPT in shown(unwrapped.words[1:]):
                self.notes.kinds.append(Kind.GENERATOR)
        else:
            self._written(command)

    def _file(self, name: str, unwrapped: Unwrapped, command: Command) -> None:
        """Read `bash FILE` and `source FILE`: a file written earlier is walked."""
        text = self._written_file(unwrapped)
        if text is not None:
            context = command.context._replace(generated=True)
            self._nested(Frame(text, command.scope.branch(), context), unwrapped)
            return
        path = _target(unwrapped.words[1:]) if name in _FILE_RUNNERS else ""
        if name in SHELLS:
            self.notes.kinds.append(programs.of_shell_script(_file_name(path)))
        elif programs.could_serve(_file_name(path)) and not path.endswith("activate"):
            self.notes.kinds.append(Kind.OPAQUE)

    def _written_file(self, unwrapped: Unwrapped) -> Source | None:
        words = unwrapped.words
        path = _target(words[1:]) if unwrapped.program in _FILE_RUNNERS else shown(words[:1])
        return self._files.get(_file_name(path))

    def written_python(self, path: str) -> str | None:
        """Return the text of a Python file that the script has written, None for others."""
        found = self._files.get(_file_name(path))
        return None if found is None else decode(found.data)

    def _other(self, name: str, unwrapped: Unwrapped) -> None:
        args = texts_of(unwrapped.words[1:])
        kind = programs.of_program(name, shown(unwrapped.words[:1]), args, images=unwrapped.images)
        self.notes.kinds.append(kind)
        if kind is Kind.OFFLINE:
            self.notes.engine_run = engine_runs.of_model_args(args)
        self.beside(name, args, unwrapped)

    def beside(self, name: str, args: list[str], unwrapped: Unwrapped) -> None:
        """Note what a program beside a server does with the GPUs."""
        if pins_devices(unwrapped.environment_values):
            self.notes.pinned = True
        if programs.occupies_gpus(name, args):
            self.notes.gpu_work.append(name)

    def vllm(self, words: Words, unwrapped: Unwrapped, command: Command) -> None:
        """Read the words behind `vllm`."""
        verb = texts_of(words[:1])[0] if words else ""
        if verb == "serve":
            self.launch("vllm serve", words[1:], unwrapped, command)
        elif verb == "bench":
            self._bench(words[1:], unwrapped, command)
        elif verb == "run-batch":
            self.offline(words[1:], unwrapped, command)
        elif verb in ("chat", "complete"):
            self.notes.kinds.append(Kind.CLIENT)
        elif verb == "?" or any(isinstance(word, Splice) for word in words):
            self.notes.kinds.append(Kind.OPAQUE)

    def _bench(self, words: Words, unwrapped: Unwrapped, command: Command) -> None:
        if texts_of(words[:1]) == ["serve"]:
            self.notes.kinds.append(Kind.CLIENT)
            return
        self.notes.kinds.append(Kind.BENCH)
        self._engine_run("vllm bench", words[1:], unwrapped, command)

    def offline(self, words: Words, unwrapped: Unwrapped, command: Command) -> None:
        """Read the words behind `vllm run-batch`."""
        self.notes.kinds.append(Kind.OFFLINE)
        self._engine_run("", words, unwrapped, command)

    def _engine_run(self, form: str, words: Words, unwrapped: Unwrapped, command: Command) -> None:
        self.budget.spend(_STEPS_OF_A_LAUNCH)
        read = launches.of_words(form, words, self._site(unwrapped, command))
        self.notes.engine_run = read.launch
        self.notes.gpu_work.append("another vLLM engine")

    def _site(self, unwrapped: Unwrapped, command: Command) -> Site:
        return Site(
            command=command,
            around=(*self._around, unwrapped),
            hints=tuple(self.notes.hints),
            n_tasks=self.n_tasks,
        )

    def launch(self, form: str, words: Words, unwrapped: Unwrapped, command: Command) -> None:
        """Note the start of a server with the words behind its program."""
        if _PLACEHOLDER.search(_QUOTED.sub("", command.raw)) or any(
            mark in text for text in texts_of(words) for mark in ("{{ ", "{% ", "<% ")
        ):
            self.notes.errors.append("vllm serve with placeholders")
            return
        self.budget.spend(_STEPS_OF_A_LAUNCH)
        site = self._site(unwrapped, command)
        read = launches.of_words(form, words, site)
        if any("prints and exits" in problem for problem in read.launch.problems):
            return
        self.notes.kinds.append(Kind.SERVER)
        self.notes.launches.append(read.launch)
        self.notes.trace += trace.of_launch(command, read)
        for wrapper in site.around:
            self.notes.pinned = self.notes.pinned or pins_devices(wrapper.environment_values)
        self.notes.pinned = self.notes.pinned or pins_devices(command.scope.variables)


def _is_output(word: Word) -> bool:
    return all(s.text is None and s.how is How.COMPUTED for s in word.segments)


def _target(words: Words) -> str:
    """Return the file that a shell is told to run."""
    texts = [text for text in texts_of(words) if not text.startswith("-")]
    return texts[0] if texts else ""


def _hints(words: Words) -> list[str]:
    """Return the texts that may name vLLM's version: modules, environments, pins, images."""
    texts = texts_of(words[:3])
    if texts[0] in _SETUP_PROGRAMS or "pip" in texts[0] or texts[0] in ("uv", "uvx"):
        return texts_of(words[1:])
    return [text for text in texts if "vllm" in text and "/" in text]


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
