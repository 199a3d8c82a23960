"""Free TCP ports for a sandbox, held until its daemons listen on them.

In: how many, and where to look first. Out: the first port of a free block. Called by Sandbox.up.
While a sandbox comes up it holds an abstract Unix socket for each of its ports. Two that come up at
the same time so never choose the same ones, and after a crash nothing is left to clean up.
"""

from __future__ import annotations

import socket
import zlib
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: below the ports that Linux hands out by itself (32768 and up)
_FIRST, _LAST, _BLOCK = 20_000, 32_000, 16


@contextmanager
def free_ports(folder: Path, n_ports: int, *, wanted: int | None, fixed: bool) -> Iterator[int]:
    """Hold `n_ports` consecutive ports and give the first.

    `wanted` is tried first; `fixed` allows no other. Raises: SandboxError when none is free.
    """
    with ExitStack() as held:
        for base in [wanted] if wanted and fixed else _candidates(folder, n_ports, wanted):
            sockets = _hold(base, n_ports)
            if sockets:
                for bound in sockets:
                    held.enter_context(bound)
                yield base
                return
        raise SandboxError(
            f"port_base must be the first of {n_ports} free ports, was {wanted!r}"
            if fixed
            else f"no {n_ports} consecutive free ports between {_FIRST} and {_LAST}",
            hint="stop other sandboxes with `omnipilot sandbox down`, or choose other ports",
        )


def _candidates(folder: Path, n_ports: int, wanted: int | None) -> Iterator[int]:
    """Give where to look: what was used before, then every block, from one that the path picks."""
    if wanted:
        yield wanted
    step = max(n_ports, _BLOCK)
    n_blocks = (_LAST - _FIRST) // step
    start = zlib.crc32(str(folder).encode()) % n_blocks
    for index in range(n_blocks):
        yield _FIRST + (start + index) % n_blocks * step


def _hold(base: int, n_ports: int) -> list[socket.socket]:
    """Take every port of a block, or none."""
    held: list[socket.socket] = []
    try:
        for port in range(base, base + n_ports):
            name = socket.socket(socket.AF_UNIX)
            held.append(name)
            name.bind(f"\0omnipilot-sandbox-port-{port}")
            _check_free(port)
    except OSError:
        for name in held:
            name.close()
        return []
    return held


def _check_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as Slurm does: connections that have just ended must not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
