"""Find the vLLM launches of a batch script and read them.

In: script bytes, what came with the submission (arguments, environment) and the GPU request. Out:
a Script. Unclear stays unclear: a script that cannot be told apart is never called a server.
Called by decide, detect and advise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Script
from omnipilot_slurm.script import launches, programs, python_source, wrappers
from omnipilot_slurm.script.expand import Scope
from omnipilot_slurm.script.programs import Kind
from omnipilot_slurm.script.slurm_environment import slurm_variables
from omnipilot_slurm.script.source import MAX_BYTES, Segment, Source, Splice, Word, decode
from omnipilot_slurm.script.walk import Command, Context, Frame, OverBudgetError, Walker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.records import Submission
    from omnipilot_slurm.script.source import Expired
    from omnipilot_slurm.script.tres import GpuRequest
    from omnipilot_slurm.script.wrappers import Unwrapped

_CANDIDATE: Final = re.compile(rb"vllm|#\s?OMNIPILOT", re.IGNORECASE)
_CONFLICT: Final = re.compile(rb"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%")
_TEMPLATE_DIRECTIVE: Final = re.compile(rb"^#SBATCH\b.*(?:\{\{|\{%|<%)", re.MULTILINE)
_SHELL_SHEBANG: Final = re.compile(rb"^#!\s*\S*?(?:/|env\s+(?:-\S+\s+)?)(?:ba|da|k|z)?sh\b")
_PYTHON_SHEBANG: Final = re.compile(rb"^#!.*\bpython[\d.]*\b")
_MAX_NESTING: Final = 8


def _never() -> bool:
    return False


def find(
    submission: Submission,
    request: GpuRequest,
    *,
    environment_is_complete: bool = False,
    expired: Expired = _never,
) -> Script:
    """Return what a batch script does.

    `environment_is_complete`: a variable that the submission does not carry was not set there.
    `expired` answers True once the time for reading is over; the script is then not told apart.
    """
    script = submission.script
    if len(script) > MAX_BYTES:
        return _unclear(f"longer than {MAX_BYTES} bytes")
    if _CONFLICT.search(script):
        return _unclear("the script holds merge-conflict markers")
    if _TEMPLATE_DIRECTIVE.search(script):
        return _unclear("a template that is not filled in")
    if _PYTHON_SHEBANG.match(script):
        return _python_script(decode(script))
    if script.startswith(b"#!") and not _SHELL_SHEBANG.match(script.partition(b"\n")[0]):
        return _unclear("not a script for bash or sh")
    scope = Scope(
        environment=submission.environment,
        complete=environment_is_complete,
        slurm=slurm_variables(submission, request, complete=environment_is_complete),
        args=tuple(Word(segments=(Segment(text=arg),)) for arg in submission.args),
    )
    reader = Reader(script=script, expired=expired)
    try:
        reader.read(scope)
    except OverBudgetError:
        return _unclear("too large or too deep to be read in time")
    return launches.summed_up(reader.notes, request, names_vllm=bool(_CANDIDATE.search(script)))


def _unclear(why: str) -> Script:
    return Script(kind=Kind.OPAQUE, is_serving=None, why=why)


def _python_script(source: str) -> Script:
    if python_source.starts_server(source):
        return _unclear("a Python batch script that may start a server")
    engine = python_source.offline_engine(source)
    if engine is None:
        return Script(kind=Kind.NONE, is_serving=False, why="a Python batch script")
    run = launches.of_python(engine)
    return Script(
        kind=Kind.OFFLINE, is_serving=False, engine_run=run, why="offline batch in Python"
    )


@dataclass(slots=True)
class Reader:
    """Reads the commands of one script as the walker meets them, and takes notes."""

    script: bytes
    expired: Expired
    notes: launches.Notes = field(default_factory=lambda: launches.Notes())
    _walker: Walker = field(init=False)
    _files: dict[str, Source] = field(default_factory=dict)
    _nesting: int = 0

    def __post_init__(self) -> None:
        self._walker = Walker(visit=self.visit, expired=self.expired)

    def read(self, scope: Scope) -> None:
        """Walk the whole script."""
        self._walker.run(Frame(source=Source.of_script(self.script), scope=scope))
        self.notes.pinned = self.notes.pinned or "CUDA_VISIBLE_DEVICES" in scope.variables
        self.notes.errors += self._walker.errors

    def visit(self, command: Command) -> None:
        """Read one command."""
        if not command.words:
            self._redirected_text(command)
            return
        unwrapped = wrappers.unwrap(command.words)
        for name, value in command.assignments.items():
            unwrapped.environment.setdefault(name, value)
        self.notes.hints += [*unwrapped.images, *_hints(command.words)]
        if unwrapped.shell_text is not None:
            self._nested_text(unwrapped.shell_text, unwrapped, command)
        elif unwrapped.reads_stdin:
            self._nested_stdin(unwrapped, command)
        elif unwrapped.entrypoint:
            self._launch("docker entrypoint", unwrapped.words, unwrapped, command)
        else:
            self._program(unwrapped, command)

    # texts that are scripts of their own

    def _nested_text(self, word: Word, unwrapped: Unwrapped, command: Command) -> None:
        context = replace(
            command.context, evaluated=command.context.evaluated or unwrapped.evaluated
        )
        end = self._inner_end(word)
        self._nested(Source(word.segments, end=end), unwrapped, command, context)

    def _inner_end(self, word: Word) -> int | None:
        """Return the byte of the quote that closes a word, where text may be inserted."""
        if word.end is None or self.script[word.end - 1 : word.end] not in (b'"', b"'"):
            return None
        return word.end - 1

    def _nested_stdin(self, unwrapped: Unwrapped, command: Command) -> None:
        if command.stdin is None:
            return
        self._nested(command.stdin, unwrapped, command, command.context)

    def _nested(
        self, source: Source, unwrapped: Unwrapped, command: Command, context: Context
    ) -> None:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise OverBudgetError
        outer, self.notes.outer = self.notes.outer, unwrapped
        self._walker.run(Frame(source=source, scope=command.scope.branch(), context=context))
        self.notes.outer = outer
        self._nesting -= 1

    def _redirected_text(self, command: Command) -> None:
        if command.stdin is not None and command.writes is not None:
            self._write(command)

    def _write(self, command: Command) -> None:
        """Remember a heredoc that is written to a file: a job script, or text that is run later."""
        assert command.stdin is not None
        text = decode(command.stdin.data)
        if "#SBATCH" in text:
            self.notes.kinds.append(Kind.GENERATOR)
        elif command.writes is not None:
            self._files[_file_name(command.writes.shown)] = command.stdin

    # programs

    def _program(self, unwrapped: Unwrapped, command: Command) -> None:
        name = unwrapped.program
        if name is None:
            self._unknown_program(unwrapped, command)
        elif name == "vllm":
            self._vllm(unwrapped, command)
        elif programs.is_python(name):
            self._python(unwrapped, command)
        elif name in ("cat", "tee"):
            if command.stdin is not None:
                self._note_heredoc(name, unwrapped, command)
        elif name in (".", "source"):
            self.notes.sourced.append(_shown(unwrapped.words[1:2]))
        else:
            self._other(name, unwrapped, command)

    def _note_heredoc(self, name: str, unwrapped: Unwrapped, command: Command) -> None:
        if name == "tee" and command.writes is None and len(unwrapped.words) > 1:
            last = unwrapped.words[-1]
            command = replace(command, writes=last if isinstance(last, Word) else None)
        if command.writes is not None:
            self._write(command)

    def _unknown_program(self, unwrapped: Unwrapped, command: Command) -> None:
        args = _texts(unwrapped.words[1:])
        if any(arg.endswith(".py") for arg in args) or args[:1] == ["-m"]:
            self._python(unwrapped, command)
        elif unwrapped.words and isinstance(unwrapped.words[0], Word):
            self.notes.kinds.append(Kind.OPAQUE)

    def _other(self, name: str, unwrapped: Unwrapped, command: Command) -> None:
        path = _shown(unwrapped.words[:1])
        args = _texts(unwrapped.words[1:])
        if (
            name in ("bash", "sh", "zsh")
            or name.endswith((".sh", ".bash"))
            or path.startswith("./")
        ):
            if self._written_earlier(name, path, args, unwrapped, command):
                return
        if name == "sbatch" and command.stdin is not None:
            self.notes.kinds.append(Kind.GENERATOR)
            return
        if name in ("bash", "sh", "zsh", "dash", "ksh"):
            self.notes.kinds.append(Kind.OPAQUE)
            return
        kind = programs.of_program(name, path, args, images=unwrapped.images)
        self.notes.kinds.append(kind)
        if kind is Kind.OFFLINE:
            self.notes.engine_run = launches.of_model_args(args, form="lm_eval")
        self._beside(name, args, unwrapped)

    def _written_earlier(
        self, name: str, path: str, args: list[str], unwrapped: Unwrapped, command: Command
    ) -> bool:
        is_shell = name in ("bash", "sh", "zsh")
        target = next((arg for arg in args if not arg.startswith("-")), "") if is_shell else path
        heredoc = self._files.get(_file_name(target))
        if heredoc is None:
            return False
        self._nested(heredoc, unwrapped, command, replace(command.context, generated=True))
        return True

    def _beside(self, name: str, args: list[str], unwrapped: Unwrapped) -> None:
        if "CUDA_VISIBLE_DEVICES" in unwrapped.environment:
            self.notes.pinned = True
        if programs.occupies_gpus(name, args):
            self.notes.gpu_work.append(name)

    def _vllm(self, unwrapped: Unwrapped, command: Command) -> None:
        verb = next((t for t in _texts(unwrapped.words[1:2])), "")
        if verb == "serve":
            self._launch("vllm serve", unwrapped.words[2:], unwrapped, command)
        elif verb == "bench":
            self._bench(unwrapped, command)
        elif verb == "run-batch":
            self.notes.kinds.append(Kind.OFFLINE)
        elif verb in ("chat", "complete"):
            self.notes.kinds.append(Kind.CLIENT)
        elif verb == "?" or any(isinstance(word, Splice) for word in unwrapped.words[1:]):
            self.notes.kinds.append(Kind.OPAQUE)

    def _bench(self, unwrapped: Unwrapped, command: Command) -> None:
        what = next(iter(_texts(unwrapped.words[2:3])), "")
        if what == "serve":
            self.notes.kinds.append(Kind.CLIENT)
            return
        self.notes.kinds.append(Kind.BENCH)
        launch = launches.of_words(
            "vllm bench", unwrapped.words[3:], unwrapped, command, self.notes
        )
        self.notes.engine_run = launch

    def _python(self, unwrapped: Unwrapped, command: Command) -> None:
        words = unwrapped.words[1:]
        module, rest = _python_target(words)
        if module == "-c" or module == "-":
            self._python_text(module, rest, command)
        elif module.startswith("-m "):
            self._python_module(module[3:], rest, unwrapped, command)
        elif module:
            self._python_file(module, rest, unwrapped, command)

    def _python_text(self, where: str, rest: launches.Words, command: Command) -> None:
        if where == "-c":
            source = _shown(rest[:1])
        else:
            source = decode(command.stdin.data) if command.stdin is not None else ""
        self._python_source(source)

    def _python_source(self, source: str) -> None:
        if python_source.starts_server(source):
            self.notes.kinds.append(Kind.OPAQUE)
            return
        engine = python_source.offline_engine(source)
        if engine is not None:
            self.notes.kinds.append(Kind.OFFLINE)
            self.notes.engine_run = launches.of_python(engine)
            self.notes.gpu_work.append("LLM()")

    def _python_module(
        self, module: str, rest: launches.Words, unwrapped: Unwrapped, command: Command
    ) -> None:
        if module == "vllm.entrypoints.openai.api_server":
            self._launch("openai.api_server", rest, unwrapped, command)
        elif module == "vllm.entrypoints.api_server":
            self._launch("api_server", rest, unwrapped, command)
        elif module in ("vllm", "vllm.entrypoints.cli.main", "vllm.scripts"):
            self._vllm(replace_words(unwrapped, [unwrapped.words[0], *rest]), command)
        elif module in ("vllm.entrypoints.openai.run_batch",):
            self.notes.kinds.append(Kind.OFFLINE)
        else:
            self._plain_python(module, rest, unwrapped, command, is_module=True)

    def _python_file(
        self, path: str, rest: launches.Words, unwrapped: Unwrapped, command: Command
    ) -> None:
        if path.endswith("vllm/entrypoints/openai/api_server.py"):
            self._launch("openai.api_server", rest, unwrapped, command)
            return
        if path.endswith("vllm/entrypoints/api_server.py"):
            self._launch("api_server", rest, unwrapped, command)
            return
        heredoc = self._files.get(_file_name(path))
        if heredoc is not None:
            self._python_source(decode(heredoc.data))
            return
        self._plain_python(path, rest, unwrapped, command, is_module=False)

    def _plain_python(
        self,
        target: str,
        rest: launches.Words,
        unwrapped: Unwrapped,
        command: Command,
        *,
        is_module: bool,
    ) -> None:
        args = _texts(rest)
        urls = _server_urls(command, unwrapped.environment)
        kind = programs.of_python(target, args, is_module=is_module, urls=urls)
        self.notes.kinds.append(kind)
        self._beside("python", [target, *args], unwrapped)

    def _launch(
        self, form: str, words: launches.Words, unwrapped: Unwrapped, command: Command
    ) -> None:
        if any(_TEMPLATE.search(text) for text in _texts(words)):
            self.notes.errors.append("vllm serve with placeholders")
            return
        self.notes.kinds.append(Kind.SERVER)
        self.notes.launches.append(launches.of_words(form, words, unwrapped, command, self.notes))
        if self.notes.launches[-1].environment.get("CUDA_VISIBLE_DEVICES", "") != "":
            self.notes.pinned = True


def replace_words(unwrapped: Unwrapped, words: launches.Words) -> Unwrapped:
    """Return the same wrappers around other words."""
    return replace(unwrapped, words=words)


def _python_target(words: launches.Words) -> tuple[str, launches.Words]:
    """Return what an interpreter runs (`-m MODULE`, `-c`, `-` or a file) and its arguments."""
    index = 0
    while index < len(words):
        text = next(iter(_texts(words[index : index + 1])), "")
        if text == "-m":
            return "-m " + _shown(words[index + 1 : index + 2]), words[index + 2 :]
        if text in ("-c", "-"):
            return text, words[index + 1 :]
        if text in ("-W", "-X"):
            index += 2
        elif text.startswith("-") and text != "-":
            index += 1
        else:
            return text, words[index + 1 :]
    return "-", []


def _server_urls(command: Command, environment: Mapping[str, Word | None]) -> list[str]:
    found = [
        value.shown
        for name, value in environment.items()
        if value is not None and programs.names_a_server(name)
    ]
    for name, value in command.scope.variables.items():
        if programs.names_a_server(name) and isinstance(value, Word):
            found.append(value.shown)
    return [url for url in found if url.startswith("http")]


def _hints(words: launches.Words) -> list[str]:
    """Return the texts that may name vLLM's version: modules, environments, pins, images."""
    texts = _texts(words)
    if texts[:1] and texts[0] in ("module", "ml", "source", ".", "conda", "mamba", "micromamba"):
        return texts[1:]
    if texts[:1] and ("pip" in texts[0] or texts[0] in ("uv", "uvx")):
        return texts[1:]
    return [text for text in texts[:3] if "/" in text and "vllm" in text]


def _texts(words: launches.Words) -> list[str]:
    return [word.shown if isinstance(word, Word) else "?" for word in words]


def _shown(words: launches.Words) -> str:
    return " ".join(_texts(words))


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
