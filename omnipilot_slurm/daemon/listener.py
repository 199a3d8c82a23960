"""The listening Unix socket: created private, owned by one daemon at a time, removed at the end.

In: a path, a group. Out: a Listener. Called by main at start and stop.
"""

from __future__ import annotations

import fcntl
import grp
import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

#: sun_path holds 108 bytes, the last one a NUL
MAX_PATH_BYTES = 107
#: connections that wait for a worker; slurmctld itself sends one at a time
BACKLOG = 64
PROBE_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket that listens, and the lock that makes its path this daemon's."""

    socket: socket.socket
    path: Path
    lock: int
    inode: int

    def close(self) -> None:
        """Remove the socket's file, unless somebody has put another one there, and let go."""
        if _inode(self.path) == self.inode:
            self.path.unlink()
        self.socket.close()
        os.close(self.lock)


def listen(path: Path, *, group: str | None = None) -> Listener:
    """Return a socket that listens at `path` with mode 0660, replacing what a dead daemon left.

    Raises: UsageError when the path is in use, is not a socket, or cannot be created.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise UsageError(
            f"socket {str(path)!r}: must be at most {MAX_PATH_BYTES} bytes",
            hint="choose a shorter daemon.socket",
        )
    gid = None if group is None else _gid(group)
    try:
        lock = _lock(path)
    except OSError as error:
        raise UsageError(
            f"socket {str(path)!r}: cannot be created: {error.strerror}",
            hint=f"create {str(path.parent)!r}, writable for the daemon's user",
        ) from error
    try:
        return _bind(path, gid, lock)
    except BaseException:
        os.close(lock)
        raise


def _gid(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise UsageError(
            f"socket group {group!r}: there is no such group", hint="create it or set daemon.group"
        ) from error


def _lock(path: Path) -> int:
    """Take the path for this process until it ends, however it ends."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise _in_use(path) from error
    return lock


def _bind(path: Path, gid: int | None, lock: int) -> Listener:
    _clear(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # the file must never be open to others, not even between bind and chmod
        before = os.umask(0o117)
        try:
            server.bind(str(path))
        finally:
            os.umask(before)
        if gid is not None:
            os.chown(path, -1, gid)
        server.listen(BACKLOG)
    except OSError as error:
        server.close()
        raise UsageError(
            f"socket {str(path)!r}: cannot be created: {error.strerror}",
            hint="check the folder's owner, and that the daemon's user is in daemon.group",
        ) from error
    return Listener(server, path, lock, _inode(path))


def _clear(path: Path) -> None:
    """Remove a socket that nobody listens on any more."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(
            f"socket {str(path)!r}: must be a socket or absent, was another kind of file",
            hint="remove it or choose another daemon.socket",
        )
    if _answers(path):
        raise _in_use(path)
    path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # a full backlog or a missing permission: somebody is there
            return True
    return True


def _in_use(path: Path) -> UsageError:
    return UsageError(
        f"socket {str(path)!r}: another daemon listens there",
        hint="stop it first, or give this one another daemon.socket",
    )


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return -1
