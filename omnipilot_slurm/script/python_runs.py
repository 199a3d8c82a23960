"""Python in a batch script: vLLM's own modules, programs that are not seen, and text inside it.

In: the words behind an interpreter. Out: entries in the reader's notes. Called by reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.records import Editable
from omnipilot_slurm.script import engine_runs, programs, python_source
from omnipilot_slurm.script.programs import Kind
from omnipilot_slurm.script.words import (
    How,
    Segment,
    Splice,
    Word,
    Words,
    decode,
    shown,
    texts_of,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.script.frame import Command
    from omnipilot_slurm.script.python_source import Started
    from omnipilot_slurm.script.reader import Reader
    from omnipilot_slurm.script.unwrapped import Unwrapped

_SERVER_MODULES: Final = {
    "vllm.entrypoints.openai.api_server": "openai.api_server",
    "vllm.entrypoints.api_server": "api_server",
}
_CLI_MODULES: Final = frozenset({"vllm", "vllm.entrypoints.cli.main", "vllm.scripts"})
_BATCH_MODULE: Final = "vllm.entrypoints.openai.run_batch"
_VALUED_OPTIONS: Final = frozenset({"-W", "-X"})


def read(reader: Reader, words: Words, unwrapped: Unwrapped, command: Command) -> None:
    """Read the words behind an interpreter."""
    what, rest = _target(words)
    if what == "-c":
        read_source(reader, shown(rest[:1]), unwrapped, command)
    elif what == "-":
        text = decode(command.stdin.data) if command.stdin is not None else ""
        read_source(reader, text, unwrapped, command)
    elif what.startswith("-m "):
        _read_module(reader, what[3:], rest, unwrapped, command)
    else:
        _read_file(reader, what, rest, unwrapped, command)


def _target(words: Words) -> tuple[str, Words]:
    """Return what an interpreter runs (`-m MODULE`, `-c`, `-` or a file) and its arguments."""
    index = 0
    while index < len(words):
        text = shown(words[index : index + 1])
        if text == "-m":
            return "-m " + shown(words[index + 1 : index + 2]), words[index + 2 :]
        if text in ("-c", "-"):
            return text, words[index + 1 :]
        if text in _VALUED_OPTIONS:
            index += 2
        elif text.startswith("-"):
            index += 1
        else:
            return text, words[index + 1 :]
    return "-", []


def read_source(reader: Reader, source: str, unwrapped: Unwrapped, command: Command) -> None:
    """Read Python text that stands in the script."""
    notes = reader.notes
    if "#SBATCH" in source:
        notes.kinds.append(Kind.GENERATOR)
        return
    if python_source.starts_server(source):
        started = python_source.started(source)
        if started is None:
            notes.kinds.append(Kind.OPAQUE)
        else:
            _launch(reader, started, unwrapped, command)
        return
    engine = python_source.offline_engine(source)
    if engine is not None:
        notes.kinds.append(Kind.OFFLINE)
        notes.engine_run = engine_runs.of_python(engine)
        notes.gpu_work.append("LLM()")


def _launch(reader: Reader, started: Started, unwrapped: Unwrapped, command: Command) -> None:
    """Note a server that Python starts as a process; it is read but never changed."""
    before = len(reader.notes.launches)
    if started.text is not None:
        text = Word((Segment(started.text, how=How.COMPUTED),))
        reader.run_text(text, unwrapped, command)
    else:
        _launch_words(reader, started, unwrapped, command)
    for index in range(before, len(reader.notes.launches)):
        launch = reader.notes.launches[index]
        reader.notes.launches[index] = replace(
            launch,
            tp_source="absent" if launch.tp_source == "absent" else "python",
            tp_place=None,
            editable=Editable.NO,
            why="the server is started by Python code",
            conditions=frozenset(),
        )


def _launch_words(reader: Reader, started: Started, unwrapped: Unwrapped, command: Command) -> None:
    words: Words = [
        Word((unknown() if text is None else Segment(text, how=How.COMPUTED),))
        for text in started.words
    ]
    if started.is_open:
        words.append(Splice())
    module = started.words[2] if started.words[1:2] == ("-m",) else None
    if module is not None:
        reader.launch(_SERVER_MODULES[module], words[3:], unwrapped, command)
    else:
        reader.launch("vllm serve", words[2:], unwrapped, command)


def _read_module(
    reader: Reader, module: str, rest: Words, unwrapped: Unwrapped, command: Command
) -> None:
    if module in _SERVER_MODULES:
        reader.launch(_SERVER_MODULES[module], rest, unwrapped, command)
    elif module in _CLI_MODULES:
        reader.vllm(rest, unwrapped, command)
    elif module == _BATCH_MODULE:
        reader.offline(rest, unwrapped, command)
    else:
        _read_unseen(reader, module, rest, unwrapped, command, is_module=True)


def _read_file(
    reader: Reader, path: str, rest: Words, unwrapped: Unwrapped, command: Command
) -> None:
    for module, form in _SERVER_MODULES.items():
        if path.endswith(module.replace(".", "/") + ".py"):
            reader.launch(form, rest, unwrapped, command)
            return
    text = reader.written_python(path)
    if text is not None:
        read_source(reader, text, unwrapped, command)
    else:
        _read_unseen(reader, path, rest, unwrapped, command, is_module=False)


def _read_unseen(
    reader: Reader,
    target: str,
    rest: Words,
    unwrapped: Unwrapped,
    command: Command,
    *,
    is_module: bool,
) -> None:
    args = texts_of(rest)
    if "?" in target:
        # `python $VLLM_ENTRY`: the variable's name is all that is seen of the program
        args += sorted(_depends(unwrapped.words))
    urls = _server_urls(command, unwrapped.environment)
    kind = programs.of_python(target, args, is_module=is_module, urls=urls)
    reader.notes.kinds.append(kind)
    if kind is Kind.OFFLINE:
        reader.notes.engine_run = engine_runs.of_model_args(args)
    reader.beside("python", [target, *args], unwrapped)


def _depends(words: Words) -> frozenset[str]:
    return frozenset().union(*(word.depends for word in words))


def _server_urls(command: Command, environment: Mapping[str, Word | None]) -> list[str]:
    values = {**command.scope.variables, **environment}
    found = [
        value.shown
        for name, value in values.items()
        if isinstance(value, Word) and programs.names_a_server(name)
    ]
    return [url for url in found if url.startswith("http")]
