"""What login nodes get to see: files that everybody may read, replaced in one step.

In: a folder and what to write there. Out: files. Called by the loading thread after each swap;
`omnipilot advise` reads them with load_settings and the cluster's reader.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from omnipilot_slurm.settings import SCHEMA_VERSION
from omnipilot_slurm.yaml_tree import Items, Node, Pairs
from omnipilot_slurm.yaml_words import NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from omnipilot_slurm.strict_yaml import Loaded

_CONSTANTS = {"true": True, "false": False, "null": None, "~": None}
_READABLE = 0o644
_FOLDER = 0o755


def publish(folder: Path, documents: Mapping[str, str | None]) -> None:
    """Write each document under its file name; a reader sees the old text or the new one whole.

    A document None is taken away. Raises: OSError.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(_FOLDER)
    for name, text in documents.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            _replace(folder / name, text)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), _READABLE)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def effective(file: Loaded) -> str:
    """Return what a file and those below it say as one file that reads back the same.

    How the daemon itself runs (its section) is of no use elsewhere and left out; nothing in the
    others is secret.
    """
    sections = {key: _plain(node) for key, (_, node) in file.tree.pairs.items() if key != "daemon"}
    # JSON is YAML that quotes every text
    text = json.dumps({"schema": SCHEMA_VERSION, **sections}, indent=2, ensure_ascii=False)
    return f"# what is in force, written by omnipilotd\n{text}\n"


def _plain(node: Node) -> object:
    """Return a checked node as what JSON writes the same way: unquoted words keep their kind."""
    if isinstance(node, Pairs):
        return {key: _plain(value) for key, (_, value) in node.pairs.items()}
    if isinstance(node, Items):
        return [_plain(item) for item in node.items]
    if node.plain and node.text in _CONSTANTS:
        return _CONSTANTS[node.text]
    return _number(node.text) if node.plain and NUMBER.fullmatch(node.text) else node.text


def _number(text: str) -> int | float:
    return float(text) if re.search("[.eE]", text) else int(text)
