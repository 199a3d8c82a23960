"""A user's groups are never waited for, and are seen anew in time."""

from __future__ import annotations

import grp
import os
import pwd
import threading
import time

from omnipilot_slurm.daemon.groups import Groups, groups_of

PATIENCE_S = 10.0


def until_known(groups: Groups, user: str | int) -> frozenset[str] | None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := groups.of(user)) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def test_the_groups_of_this_user_are_those_of_the_system() -> None:
    me = pwd.getpwuid(os.getuid())
    expected = frozenset(
        grp.getgrgid(gid).gr_name for gid in os.getgrouplist(me.pw_name, me.pw_gid)
    )
    assert groups_of(me.pw_name) == expected
    assert groups_of(me.pw_uid) == expected


def test_a_user_that_does_not_exist_has_none() -> None:
    assert groups_of("no-such-user-here") is None
    assert groups_of(2**40) is None


def test_nobody_asked_about_is_nobody_looked_up() -> None:
    assert Groups(lookup=lambda _: frozenset({"x"})).of(None) is None


def test_a_user_is_unknown_until_looked_up_and_a_hanging_lookup_holds_nobody_up() -> None:
    may_answer = threading.Event()

    def slow(_user: str | int) -> frozenset[str]:
        may_answer.wait(PATIENCE_S)
        return frozenset({"ml"})

    groups = Groups(lookup=slow)
    assert groups.of("alice") is None
    assert groups.of("alice") is None
    may_answer.set()
    assert until_known(groups, "alice") == {"ml"}


def test_groups_that_are_too_old_are_given_once_more_and_looked_up_again() -> None:
    answers = iter([frozenset({"old"}), frozenset({"new"})])
    groups = Groups(ttl_s=0.0, lookup=lambda _: next(answers, frozenset({"new"})))
    assert until_known(groups, "alice") == {"old"}
    deadline = time.monotonic() + PATIENCE_S
    while groups.of("alice") != {"new"} and time.monotonic() < deadline:
        time.sleep(0.005)
    assert groups.of("alice") == {"new"}


def test_no_more_users_are_kept_than_fit() -> None:
    seen: list[str | int] = []

    def lookup(user: str | int) -> frozenset[str]:
        seen.append(user)
        return frozenset({str(user)})

    groups = Groups(capacity=2, lookup=lookup)
    for user in ("a", "b", "c"):
        until_known(groups, user)
    assert groups.of("a") is None
    assert until_known(groups, "a") == {"a"}
    assert seen == ["a", "b", "c", "a"]
