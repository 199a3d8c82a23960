"""Read what a folder of a checkpoint says of its model, and nothing else on the disk.

In: a path and what may be read. Out: ModelFacts, or a FolderRefused that says why. Runs in the
worker process alone (folder_worker): a path can lie on a mount that hangs.

Every step is opened from the one before it, without following links; a link is read and
walked anew, and only while it stays below a root. A file must be regular and small. The one file
that may be a link is that of a hub cache, whose snapshots point into the blobs beside them.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts

MAX_CONFIG_BYTES = 2**20
#: where an index of weights states their size
_INDEX_HEAD_BYTES = 4096
_MAX_PATH = 4096
_MAX_LINKS = 8
_REVISION_BYTES = 200
_BLOB = re.compile(r"\.\./\.\./blobs/(?P<blob>[0-9a-f]{20,128})")
_SNAPSHOT = re.compile(r"(?P<cache>.*/models--[^/]+)/snapshots/[^/]+")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderRefused(Exception):  # noqa: N818 - a refusal is this reader's answer, not a failure
    """Why a folder was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may be read: only below `roots`; with `public_only`, only what everybody may read."""

    roots: tuple[str, ...]
    public_only: bool

    def root_of(self, path: str) -> str:
        """Return the root that a path lies below."""
        for root in self.roots:
            whole = posixpath.normpath(root)
            if path == whole or path.startswith(whole.rstrip("/") + "/"):
                return whole
        raise FolderRefused("is outside the folders that may be read")

    def require(self, found: os.stat_result, bit: int) -> None:
        """Refuse what not everybody may read, where that is asked."""
        if self.public_only and not found.st_mode & bit:
            raise FolderRefused("is not readable by everybody")


def read_folder(path: str, allowed: Allowed) -> ModelFacts:
    """Return the facts that a folder's config.json states.

    Raises: OSError and FolderRefused for what cannot or may not be read, CatalogError for what is
    no model that is known.
    """
    with _opened(path, allowed) as folder:
        config = folder.json_file("config.json")
        if config is None:
            raise FolderRefused("has no config.json")
        quantized = folder.json_file("hf_quant_config.json")
        if quantized is not None:
            config.setdefault("quantization_config", quantized)
        n_bytes = folder.weight_bytes()
    return _facts(config, path, n_bytes)


def _facts(config: dict[str, Any], path: str, n_bytes: int | None) -> ModelFacts:
    """Read the config; the size of unquantised weights is their count, which must agree."""
    source = f"{path}/config.json"
    facts = facts_from_config(config, model_id=path, source=source)
    if n_bytes is None:
        return facts
    if facts.quantization is None:
        count = n_bytes / (4 if facts.dtype == "float32" else 2)
        facts = facts_from_config(config, model_id=path, source=source, stated_params=count)
    return replace(facts, extra=dict(facts.extra) | {"weight_bytes": float(n_bytes)})


@contextmanager
def _opened(path: str, allowed: Allowed) -> Iterator[_Folder]:
    """Open the folder that holds config.json; a hub cache folder becomes its main snapshot."""
    if not path.startswith("/") or "\0" in path or len(path) > _MAX_PATH:
        raise FolderRefused("must be an absolute path")
    folder = _walk(posixpath.normpath(path), allowed)
    try:
        if posixpath.basename(folder.path).startswith("models--"):
            snapshot = f"{folder.path}/snapshots/{folder.revision()}"
            os.close(folder.opened)
            folder = _walk(snapshot, allowed)
        yield folder
    finally:
        os.close(folder.opened)


def _walk(path: str, allowed: Allowed) -> _Folder:
    """Open a folder step by step from the root above it; a link starts the walk anew."""
    for _ in range(_MAX_LINKS):
        found = _steps(path, allowed)
        if isinstance(found, _Folder):
            return found
        path = found
    raise FolderRefused(f"has more than {_MAX_LINKS} links on its way")


def _steps(path: str, allowed: Allowed) -> _Folder | str:
    """Return the folder, or the path to go on with where a step of it is a link."""
    root = allowed.root_of(path)
    steps = [step for step in path[len(root) :].split("/") if step]
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    done = root.rstrip("/")
    try:
        for position, step in enumerate(steps):
            link = _link_target(step, opened)
            if link is not None:
                rest = steps[position + 1 :]
                return posixpath.normpath(posixpath.join(done or "/", link, *rest))
            inner = os.open(step, _DIRECTORY, dir_fd=opened)
            os.close(opened)
            opened, done = inner, f"{done}/{step}"
            allowed.require(os.fstat(opened), stat.S_IXOTH)
        kept, opened = opened, -1
        return _Folder(opened=kept, path=done or "/", allowed=allowed)
    finally:
        if opened >= 0:
            os.close(opened)


def _link_target(name: str, folder: int) -> str | None:
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return os.readlink(name, dir_fd=folder)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """An open folder, its path without links, and what may be read."""

    opened: int
    path: str
    allowed: Allowed

    def json_file(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file; None where there is no such file."""
        text = self.head(name, MAX_CONFIG_BYTES + 1)
        if text is None:
            return None
        if len(text) > MAX_CONFIG_BYTES:
            raise FolderRefused(f"holds a {name} of more than {MAX_CONFIG_BYTES} bytes")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FolderRefused(f"holds a {name} that is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise FolderRefused(f"holds a {name} that is no JSON object")
        return value

    def weight_bytes(self) -> int | None:
        """Return the size of all weights as the index of a sharded checkpoint states it."""
        head = self.head("model.safetensors.index.json", _INDEX_HEAD_BYTES) or b""
        stated = re.search(rb'"total_size"\s*:\s*(\d{1,18})', head)
        return None if stated is None else int(stated[1])

    def revision(self) -> str:
        """Return the revision that a hub cache folder calls main."""
        refs = os.open("refs", _DIRECTORY, dir_fd=self.opened)
        try:
            text = replace(self, opened=refs).head("main", _REVISION_BYTES) or b""
        finally:
            os.close(refs)
        revision = text.decode("ascii", "replace").strip()
        if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}", revision):
            raise FolderRefused(f"names no revision in refs/main, was {revision[:40]!r}")
        return revision

    def head(self, name: str, limit: int) -> bytes | None:
        """Return the first bytes of a regular file; None where there is none of that name."""
        opened = self._open(name)
        if opened is None:
            return None
        with open(opened, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                raise FolderRefused(f"holds a {name} that is not a regular file")
            self.allowed.require(found, stat.S_IROTH)
            return stream.read(limit)

    def _open(self, name: str) -> int | None:
        """Open a file, or the blob that a hub cache's link of that name points to."""
        try:
            link = _link_target(name, self.opened)
        except FileNotFoundError:
            return None
        if link is None:
            return os.open(name, _FILE, dir_fd=self.opened)
        blob = _BLOB.fullmatch(link)
        cache = _SNAPSHOT.fullmatch(self.path)
        if blob is None or cache is None:
            raise FolderRefused(f"holds a {name} that is a link; name the folder of the file")
        blobs = _walk(f"{cache['cache']}/blobs", self.allowed)
        try:
            return os.open(blob["blob"], _FILE, dir_fd=blobs.opened)
        finally:
            os.close(blobs.opened)


def refusal(path: str, error: Exception) -> str:
    """Return one sentence for what went wrong with a folder."""
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error.strerror}"
    if isinstance(error, CatalogError):
        return f"{path}: {error}"
    return f"{path} {error}"
