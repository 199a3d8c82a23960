"""`omnipilot status` and `omnipilot reload`: ask the daemon that runs here.

In: the daemon's socket. Out: what it answers. For root, SlurmUser and the daemon's own user, whom
alone it answers.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from omnipilot_slurm.cli.site_store import site_folders
from omnipilot_slurm.errors import ConfigError, OmnipilotError
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.settings import load_settings
from omnipilot_slurm.text_table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_FAILED: Final = 1
#: a reload reads everything anew, and the daemon itself gives up after 30 s
_PATIENCE_S: Final = 35.0
_OPTIONS = (
    click.option(
        "--config",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help=f"Folder with the site's settings, which name the socket. [default: {SITE_FOLDER}]",
    ),
    click.option(
        "--socket",
        "path",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The daemon's socket. [default: the one its settings name]",
    ),
)


def _socket_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_socket_options
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def status(config: Path | None, path: Path | None, *, as_one_json: bool) -> int:
    """Show how omnipilotd is doing: its state, its store, its counts; exit 1 where a fault stands.

    A fault is a configuration that was not loaded, a cluster that does not answer, or a store that
    cannot be written. The daemon decides on meanwhile, on what it had before.
    """
    found = asked(_socket(config, path), "status")["status"]
    faults = list(_faults(found))
    if as_one_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo("\n".join(table(list(_rows("", found)))))
        for fault in faults:
            click.echo(f"fault: {fault}", err=True)
    return _FAILED if faults else 0


@click.command()
@_socket_options
def reload(config: Path | None, path: Path | None) -> int:
    """Let omnipilotd read its files and the cluster anew; exit 1 and list the faults if it cannot.

    The configuration before stays in force then. `omnipilot config check` tells the same before.
    """
    answer = asked(_socket(config, path), "reload")
    error = answer.get("error")
    if error is None:
        click.echo("the files are read and in force", err=True)
        return 0
    click.echo(error["text"])
    click.echo("not loaded: what was in force stays so", err=True)
    return _FAILED


def asked(path: Path, operation: str) -> dict[str, Any]:
    """Return the daemon's answer to an operation of docs/protocol.md.

    Raises: OmnipilotError where nobody answers.
    """
    request = json.dumps({"v": 1, "op": operation}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(request)
            with connection.makefile("rb") as stream:
                line = stream.readline()
    except OSError as error:
        raise OmnipilotError(
            f"{path}: omnipilotd does not answer: {error.strerror or error}",
            hint="is it running? `systemctl status omnipilotd` tells; daemon.socket names the path",
        ) from error
    if not line:
        raise OmnipilotError(
            f"{path}: omnipilotd hung up without an answer",
            hint="run this as root or the daemon's user; it answers nobody else",
        )
    answer: dict[str, Any] = json.loads(line)
    return answer


def _socket(config: Path | None, path: Path | None) -> Path:
    if path is not None:
        return path
    try:
        return load_settings(site_folders(config)).settings.daemon.socket
    except ConfigError as error:
        hint = "omnipilotd runs on with what it had; --socket PATH asks it all the same"
        raise ConfigError(error.faults, hint=hint) from error


def _rows(prefix: str, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each value with its dotted name, but for the histogram of latencies."""
    for key, value in found.items():
        name = f"{prefix}.{key}" if prefix else key
        if key == "up_to":
            continue
        if isinstance(value, dict):
            yield from _rows(name, value)
        else:
            yield name, _shown(key, value)


def _shown(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_at") and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value)


def _faults(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands in a fault of any part."""
    for name, text in _rows("", found):
        if name.rpartition(".")[2].endswith("fault") and text != "-":
            yield f"{name}: {text}"
