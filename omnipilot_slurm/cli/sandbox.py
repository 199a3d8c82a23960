"""`omnipilot sandbox`: a throwaway Slurm to try things on, from the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.errors import SandboxError
from omnipilot_slurm.records import Mode

if TYPE_CHECKING:
    from omnipilot_slurm.sandbox import Sandbox


@click.group()
@click.option("--folder", type=click.Path(path_type=Path), help="Where it lies.")
@click.option("--name", help="One of several side by side, in the default folder.")
@click.pass_context
def sandbox(ctx: click.Context, folder: Path | None, name: str | None) -> None:
    """Run a throwaway one-machine Slurm with four GPU nodes; needs root.

    It has its own munge, ports and files and never touches a Slurm of this machine. The folder is
    --folder, else $OMNIPILOT_SANDBOX, else /var/cache/omnipilot/sandbox; --name adds to the last
    two.
    """
    from omnipilot_slurm.sandbox import default_folder  # noqa: PLC0415 loaded when it is used

    if folder is not None and name is not None:
        raise click.UsageError("--folder and --name exclude each other")
    if name is not None and not name.isidentifier():
        raise click.UsageError(f"--name must be a word of letters, digits and _, was {name!r}")
    root = folder or default_folder()
    ctx.obj = root.with_name(f"{root.name}-{name}") if name else root


@sandbox.command()
@click.option("--port-base", type=click.IntRange(1024, 65000), help="First of its TCP ports.")
@click.option("--accounting/--no-accounting", default=None, help="Default: when it is installed.")
@click.option(
    "--mode",
    type=click.Choice(["off", *(mode.value for mode in Mode)]),
    default="enforce",
    show_default=True,
    help="How far OmniPilot may go; off: it is not installed.",
)
@click.option(
    "--plugin",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of another job_submit.lua, instead of OmniPilot.",
)
@click.option("--slurm-conf", "extra_conf", multiple=True, help="A line to end slurm.conf with.")
@click.pass_obj
def up(
    folder: Path,
    *,
    port_base: int | None,
    accounting: bool | None,
    mode: str,
    plugin: Path | None,
    extra_conf: tuple[str, ...],
) -> None:
    """Bring it up; what runs already is left alone."""
    from omnipilot_slurm.sandbox import Pilot, Sandbox  # noqa: PLC0415 loaded when it is used

    instance = Sandbox(
        folder,
        port_base=port_base,
        accounting=accounting,
        plugin=plugin,
        pilot=None if plugin or mode == "off" else Pilot(mode=mode),
        extra_conf=extra_conf,
    )
    seconds = instance.up()
    click.echo(f"up after {seconds:.1f} s, in {folder}", err=True)
    click.echo(_exports(instance))


@sandbox.command()
@click.pass_obj
def down(folder: Path) -> None:
    """Stop every process that `up` started, and no other; the files stay."""
    from omnipilot_slurm.sandbox import Sandbox  # noqa: PLC0415 loaded when it is used

    Sandbox(folder).down()


@sandbox.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def status(folder: Path, *, as_json: bool) -> int:
    """Say which of its processes run; exits 1 unless all do."""
    from omnipilot_slurm.sandbox import Sandbox  # noqa: PLC0415 loaded when it is used

    rows = Sandbox(folder).status()
    if as_json:
        daemons = {row.name: row.pid for row in rows}
        click.echo(json.dumps({"folder": str(folder), "daemons": daemons}))
    for row in () if as_json else rows:
        click.echo(f"{row.name:16} {'down' if row.pid is None else f'up {row.pid}'}")
    if not rows:
        click.echo(f"no sandbox is up in {folder}", err=True)
    return 0 if rows and all(row.pid is not None for row in rows) else 1


@sandbox.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def env(folder: Path, *, as_json: bool) -> None:
    """Print what makes this shell's Slurm commands speak with it: eval "$(... env)"."""
    from omnipilot_slurm.sandbox import Sandbox  # noqa: PLC0415 loaded when it is used

    instance = Sandbox(folder)
    click.echo(json.dumps(instance.env()) if as_json else _exports(instance))


@sandbox.command(context_settings={"ignore_unknown_options": True})
@click.option("--user", default="nobody", show_default=True, help="Who submits.")
@click.argument("sbatch_args", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def submit(folder: Path, user: str, sbatch_args: tuple[str, ...]) -> int:
    """Run `sbatch SBATCH_ARGS...` as an ordinary user, since root's jobs are not looked at."""
    from omnipilot_slurm.sandbox import Sandbox  # noqa: PLC0415 loaded when it is used

    instance = Sandbox(folder)
    if not any(row.pid for row in instance.status()):
        hint = "bring it up with `omnipilot sandbox up`"
        raise SandboxError(f"no sandbox is up in {str(folder)!r}", hint=hint)
    before, script, after = _split(sbatch_args)
    answer = instance.submit(before, script=script, script_args=after, user=user)
    click.echo(answer.stdout, nl=False)
    click.echo(answer.stderr, nl=False, err=True)
    return answer.returncode


def _split(args: tuple[str, ...]) -> tuple[tuple[str, ...], bytes | None, tuple[str, ...]]:
    """Split sbatch's arguments at the script, whose text travels: its file may be closed to others.

    The script is the first argument that names a file beginning with `#!`, without which sbatch
    takes none.
    """
    for index, word in enumerate(args):
        path = Path(word)
        if not word.startswith("-") and path.is_file():
            script = path.read_bytes()
            if script.startswith(b"#!"):
                return args[:index], script, args[index + 1 :]
    return args, None, ()


def _exports(instance: Sandbox) -> str:
    return "\n".join(f"export {key}={shlex.quote(value)}" for key, value in instance.env().items())
