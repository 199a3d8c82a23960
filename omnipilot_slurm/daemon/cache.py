"""What was worked out before: answers to scripts, and arms of questions that are alike.

In: a key that names everything the decision depends on. Out: what was kept under it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Kept = TypeVar("Kept")


class AnswerCache(Generic[Key, Kept]):
    """At most `capacity` entries; the one used longest ago goes first. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Kept] = OrderedDict()

    def get(self, key: Key) -> Kept | None:
        """Return the entry of this key and count it as used, or None."""
        with self._lock:
            kept = self._entries.get(key)
            if kept is not None:
                self._entries.move_to_end(key)
            return kept

    def put(self, key: Key, kept: Kept) -> None:
        """Keep an entry, dropping the one used longest ago when there is no room."""
        with self._lock:
            self._entries[key] = kept
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget every entry."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
