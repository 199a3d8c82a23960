"""The process that reads model folders: one JSON line in, one JSON line out.

In: {"path", "roots", "public_only"}. Out: {"facts"} or {"failure"}. It is started and, when a
mount hangs, killed by catalog.local; it holds no state. Run as `python -m`.
"""

from __future__ import annotations

import json
import resource
import sys

from omnipilot_slurm.catalog.facts_json import facts_to_json
from omnipilot_slurm.catalog.folder_reader import Allowed, FolderRefused, read_folder, refusal
from omnipilot_slurm.errors import CatalogError

_MAX_MEMORY_BYTES = 2**29


def main() -> None:
    """Answer requests until standard input closes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def answer(request: dict[str, object]) -> dict[str, object]:
    """Read one folder."""
    path, roots = str(request["path"]), request["roots"]
    assert isinstance(roots, list)
    allowed = Allowed(roots=tuple(roots), public_only=bool(request["public_only"]))
    try:
        facts = read_folder(path, allowed)
    except (OSError, CatalogError, FolderRefused, MemoryError) as error:
        return {"failure": refusal(path, error)}
    return {"facts": facts_to_json(facts)}


if __name__ == "__main__":
    main()
