"""Names of users as keys: a hash under a secret of the site, so that rows say who is the same.

In: the path of the site's key, which is made when it is not there. Out: a function from names to
keys. Called by ingest. Whoever has the database but not the key cannot try out names.
"""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 8


def key_path(store: Path) -> Path:
    """Return where the key of a database lies: beside it."""
    return store.with_name(store.name + ".key")


def load_key(path: Path) -> bytes:
    """Return the site's key, made now if there is none.

    Raises: StoreError when it can neither be read nor made.
    """
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path}: the key that user names are hashed with cannot be read: {error.strerror}",
            hint="run this as the daemon's user, or say --user-names keep",
        ) from error
    if len(key) != _KEY_BYTES:
        raise StoreError(
            f"{path}: must hold {_KEY_BYTES} bytes, has {len(key)}",
            hint="bring it back from a backup; with a new one, users of old rows are strangers",
        )
    return key


def user_keys(key: bytes) -> Callable[[str], str | None]:
    """Return what turns user names into keys; "" has none."""

    @lru_cache(maxsize=65_536)
    def user_key(name: str) -> str | None:
        if not name:
            return None
        data = name.encode("utf-8", "surrogateescape")
        return blake2b(data, key=key, digest_size=_DIGEST_BYTES).hexdigest()

    return user_key


def _make(path: Path) -> None:
    """Write a new key whole or not at all; another process's key is left alone."""
    own = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(secrets.token_bytes(_KEY_BYTES))
        if os.geteuid() == 0:
            # the folder's owner is who reads it the next time
            folder = path.parent.stat()
            os.fchown(stream.fileno(), folder.st_uid, folder.st_gid)
        stream.flush()
        os.fsync(stream.fileno())
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()
