"""`omnipilot config check | print`: is the site's configuration right, and what does it say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnipilot_slurm.resources import SITE_FOLDER, shipped_path
from omnipilot_slurm.site_check import FILES, check_site, loaded_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.site_check import SiteCheck

_FAILED = 1
#: thousands of facts, of which only the site's own are shown
_FACTS = "models.yaml"
_folder = click.option(
    "--config",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with the site's files. [default: {SITE_FOLDER}]",
)
_one_json = click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")


@click.group()
def config() -> None:
    """Check the site's configuration, or show what it says."""


@config.command()
@_folder
@_one_json
def check(folder: Path | None, *, as_one_json: bool) -> int:
    """Say everything that is wrong with the files, each at its place; exit 1 where something is.

    Warnings are not wrong: names that the cluster does not have, GPUs without a price, files that
    nobody reads.
    """
    found = check_site(folder or SITE_FOLDER)
    if as_one_json:
        lists = {"faults": found.faults, "warnings": found.warnings}
        plain = {name: [asdict(fault) for fault in each] for name, each in lists.items()}
        click.echo(json.dumps(plain, ensure_ascii=False))
    else:
        for fault in found.faults:
            click.echo(str(fault))
        for warning in found.warnings:
            place = f"{warning.file}:{warning.line}:{warning.column}"
            click.echo(f"{place}: warning: {warning.message}")
    click.echo(_summary(found), err=True)
    return _FAILED if found.faults else 0


def _summary(found: SiteCheck) -> str:
    counts = f"faults: {len(found.faults)}, warnings: {len(found.warnings)}"
    if found.faults:
        return f"{counts}; held against the cluster once there are no faults"
    if found.snapshot is None:
        return f"{counts}; not held against the cluster: no snapshot of it can be read here"
    return f"{counts}; held against {found.snapshot}"


@config.command("print")
@_folder
@click.option("--effective", is_flag=True, help="Show all keys in effect, not the site's alone.")
@click.option("--origin", is_flag=True, help="Say of each key in which file and line it is.")
@_one_json
def show(folder: Path | None, *, effective: bool, origin: bool, as_one_json: bool) -> None:
    """Print each key that the site's files set, with its value.

    With --effective also those of the shipped files under them, but for the models that
    models.yaml describes.
    """
    entries = list(_entries(folder or SITE_FOLDER, effective=effective))
    if as_one_json:
        document = {key: {"value": value, "origin": place} for key, value, place in entries}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    for key, value, place in entries:
        click.echo(f"{key}: {value}" + (f"  # {place}" if origin else ""))
    if not entries:
        hint = "--effective shows what holds"
        click.echo(f"{folder or SITE_FOLDER} has no files with keys of your own; {hint}", err=True)


def _entries(folder: Path, *, effective: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, value as written, file:line) of every file, in its order.

    Raises: ConfigError with the faults of the first file that has some.
    """
    for name in FILES:
        shipped = str(shipped_path("etc", name))
        for key, value, place in loaded_file(name, [folder]).entries():
            is_own = place.rpartition(":")[0] != shipped
            if is_own or (effective and name != _FACTS):
                yield key, value, place
