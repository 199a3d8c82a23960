"""The command line's edge: lazy subcommands, error lines, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import click
import pytest

from omnipilot_slurm.cli import main as edge
from omnipilot_slurm.errors import ConfigError, Fault, SandboxError, UsageError


@pytest.mark.parametrize("name", sorted(edge.COMMANDS))
def test_every_command_is_there_and_has_help(name, capsys):
    command = edge.cli.get_command(click.Context(edge.cli), name)
    assert command.help
    assert edge.main([name, "--help"]) == 0
    assert name in capsys.readouterr().out


def test_help_lists_every_command_and_loads_none(monkeypatch, capsys):
    broken = edge.Subcommand("omnipilot_slurm.cli.nonesuch:x", "Is broken.")
    monkeypatch.setitem(edge.COMMANDS, "x-broken", broken)
    assert edge.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in edge.COMMANDS)
    assert re.search(r"^  x-broken +Is broken\.$", listed, re.MULTILINE)


def test_a_subcommand_loads_nothing_of_the_others_and_nothing_heavy():
    code = (
        "import sys; from omnipilot_slurm.cli.main import main; main(['sandbox', '--help']);"
        "print(*sorted(m for m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "omnipilot_slurm.cli.sandbox" in loaded
    assert not loaded & {"numpy", "yaml", "sklearn", "tree_sitter", "omnipilot_slurm.sandbox"}
    others = {known.target.split(":")[0] for known in edge.COMMANDS.values()}
    assert loaded & others == {"omnipilot_slurm.cli.sandbox"}


@pytest.fixture
def command(monkeypatch):
    """Make a command `x` that does what it is told."""

    def make(action):
        module = ModuleType("x_commands")
        module.x = click.command()(action)
        monkeypatch.setitem(sys.modules, "x_commands", module)
        monkeypatch.setitem(edge.COMMANDS, "x", edge.Subcommand("x_commands:x", "Does it."))

    return make


@pytest.mark.parametrize(("answer", "code"), [(None, 0), (0, 0), (3, 3), (4, 4)])
def test_what_a_command_returns_is_the_exit_code(command, answer, code):
    command(lambda: answer)
    assert edge.main(["x"]) == code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SandboxError("no ports", hint="stop one"), 1, "error: no ports\nhint: stop one\n"),
        (UsageError("no such mode"), 2, "error: no such mode\n"),
        (
            ConfigError([Fault(file="a.yaml", line=2, column=1, message="is missing")]),
            1,
            "error: a.yaml:2:1: is missing\n",
        ),
        (
            ZeroDivisionError("division by zero"),
            1,
            (
                "error: unexpected ZeroDivisionError: division by zero\n"
                "hint: this is a defect of omnipilot; OMNIPILOT_DEBUG=1 shows where it happened\n"
            ),
        ),
    ],
)
def test_an_error_is_said_on_stderr_with_its_hint(command, capsys, error, code, said):
    def fail():
        raise error

    command(fail)
    assert edge.main(["x"]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", said)


def test_the_place_of_an_unexpected_error_is_shown_on_request(command, capsys, monkeypatch):
    def fail():
        raise ZeroDivisionError

    command(fail)
    monkeypatch.setenv("OMNIPILOT_DEBUG", "1")
    edge.main(["x"])
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["nonesuch"], ["sandbox", "--bad"], ["sandbox", "submit"]])
def test_a_command_line_that_cannot_be_read_exits_2(args, capsys):
    assert edge.main(args) == 2
    assert "Error: " in capsys.readouterr().err


def test_an_interrupt_exits_130(command):
    def interrupt():
        raise KeyboardInterrupt

    command(interrupt)
    assert edge.main(["x"]) == 130


def test_a_reader_that_left_is_no_defect():
    code = "import sys; from omnipilot_slurm.cli.main import main; sys.exit(main(['--help']))"
    shell = f'{sys.executable} -c "{code}" | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "1")
