"""Which Unix groups a user is in, looked up beside the calls and never in them.

In: a user's name or number. Out: the groups' names, or None while they are not known yet: a
directory service may take seconds, a submission may not.
"""

from __future__ import annotations

import grp
import os
import pwd
import queue
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Lookup = Callable[["str | int"], "frozenset[str] | None"]

#: users waiting to be looked up; more than that and later ones ask again
MAX_WAITING = 256


def groups_of(user: str | int) -> frozenset[str] | None:
    """Return the names of a user's groups as the name service knows them; None: no such user."""
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
        numbers = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except (KeyError, OSError, OverflowError, UnicodeError):
        return None
    return frozenset(name for number in numbers if (name := _group_name(number)) is not None)


class Groups:
    """A bounded cache of user -> groups; entries older than `ttl_s` are looked up again."""

    def __init__(
        self, *, capacity: int = 4096, ttl_s: float = 600.0, lookup: Lookup = groups_of
    ) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._lookup = lookup
        self._lock = threading.Lock()
        self._known: OrderedDict[str | int, tuple[float, frozenset[str] | None]] = OrderedDict()
        self._asked: set[str | int] = set()
        self._queue: queue.Queue[str | int] = queue.Queue(MAX_WAITING)
        # a directory service that hangs must not keep the daemon from ending
        threading.Thread(target=self._work, name="groups", daemon=True).start()

    def of(self, user: str | int | None) -> frozenset[str] | None:
        """Return the user's groups as last seen, and see to it that they are seen again in time."""
        if user is None:
            return None
        with self._lock:
            seen_at, groups = self._known.get(user, (float("-inf"), None))
            if seen_at + self._ttl_s < time.monotonic() and user not in self._asked:
                self._ask(user)
        return groups

    def _ask(self, user: str | int) -> None:
        try:
            self._queue.put_nowait(user)
        except queue.Full:
            return
        self._asked.add(user)

    def _work(self) -> None:
        while True:
            user = self._queue.get()
            groups = self._lookup(user)
            with self._lock:
                self._asked.discard(user)
                self._known[user] = (time.monotonic(), groups)
                self._known.move_to_end(user)
                while len(self._known) > self._capacity:
                    self._known.popitem(last=False)


def _group_name(number: int) -> str | None:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return None
