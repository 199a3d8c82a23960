"""How the C library keeps memory that is free: one heap for all threads, and back to the system.

Reading files and unpacking the cost model takes several MiB for a moment, and a heap for each
thread would keep its own share of what was once in use. Called by main and by the loading thread;
elsewhere than on glibc it does nothing.
"""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)
#: glibc's malloc.h
_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Have all threads that are yet to start take memory from one heap."""
    if hasattr(_LIBRARY, "mallopt"):
        _LIBRARY.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory of this process to the system."""
    if hasattr(_LIBRARY, "malloc_trim"):
        _LIBRARY.malloc_trim(0)
