"""The choices table: what users made of what was proposed to them.

In: what a user did, or a connection of database. Out: PreferencePairs, the evidence from which
weights are proposed. Written by the daemon, which follows decided jobs (following.py); read by
`omnipilot tune` and the report on decisions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.store.database import fetched, transaction
from omnipilot_slurm.store.redact import clean_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping


class Did(StrEnum):
    """What became of a proposal; all but the first prefer the user's own choice to it."""

    ACCEPTED = "accepted"
    OVERRIDDEN = "overridden"
    OPTED_OUT = "opted_out"
    CANCELLED_EARLY = "cancelled_early"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A place for a job: its arm by the names on the wire, and the terms of its utility.

    `p_launch` is the probability that its server comes up, `weights` are those of utility.yaml
    under which the terms were computed, by the terms' names.
    """

    arm: Mapping[str, object]
    utility_terms_usd: Mapping[str, float]
    p_launch: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a user did about a decision, at a Unix time (s); `own` is None where it is not known."""

    decision_id: str
    at: float
    did: Did
    proposed: Option
    own: Option | None


class PreferencePair(NamedTuple):
    """That one option was preferred to another, and by which of a user's doings it shows.

    `user_name` is None where the decision is no longer stored.
    """

    decision_id: str
    user_name: str | None
    at: float
    did: Did
    preferred: Option
    other: Option


def record_choices(connection: sqlite3.Connection, choices: Iterable[Choice]) -> int:
    """Write choices in one transaction and return how many are new or say something new.

    Raises: sqlite3.Error; nothing is written then.
    """
    rows = [
        (
            choice.decision_id,
            choice.at,
            choice.did.value,
            _text(choice.proposed),
            None if choice.own is None else _text(choice.own),
        )
        for choice in choices
    ]
    with transaction(connection):
        return connection.executemany(
            "INSERT INTO choices (decision_id, at, did, proposed, own) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (decision_id) DO UPDATE SET (at, did, proposed, own) = "
            "(excluded.at, excluded.did, excluded.proposed, excluded.own) "
            "WHERE (at, did, proposed, own) IS NOT "
            "(excluded.at, excluded.did, excluded.proposed, excluded.own)",
            rows,
        ).rowcount


def preference_pairs(connection: sqlite3.Connection, since: float) -> tuple[PreferencePair, ...]:
    """Return what choices made at a Unix time or later tell, in the order in which they were made.

    A choice against a proposal tells nothing where it is not known what for. Raises: StoreError.
    """
    rows = fetched(
        connection,
        "choices",
        "SELECT c.decision_id, c.at, c.did, c.proposed, c.own, d.user_name "
        "FROM choices AS c LEFT JOIN decisions AS d ON d.id = c.decision_id "
        "WHERE c.at >= ? AND c.own IS NOT NULL ORDER BY c.at, c.decision_id",
        (since,),
    )
    return tuple(
        _pair(PreferencePair(decision_id, user, at, Did(did), _option(own), _option(proposed)))
        for decision_id, at, did, proposed, own, user in rows
    )


def choices_by_kind(connection: sqlite3.Connection, since: float) -> dict[str, int]:
    """Count the choices made at a Unix time or later, by what was done.

    Raises: StoreError.
    """
    sql = "SELECT did, count(*) FROM choices WHERE at >= ? GROUP BY did ORDER BY did"
    return dict(fetched(connection, "choices", sql, (since,)))


def delete_before(connection: sqlite3.Connection, at: float, *, limit: int) -> int:
    """Delete up to `limit` choices made before a Unix time and return how many went."""
    oldest = "SELECT rowid FROM choices WHERE at < ? ORDER BY at LIMIT ?"
    return connection.execute(
        f"DELETE FROM choices WHERE rowid IN ({oldest})",  # noqa: S608 (constants)
        (at, limit),
    ).rowcount


def _pair(own_first: PreferencePair) -> PreferencePair:
    """Return a pair with the proposal first where that was accepted."""
    if own_first.did is not Did.ACCEPTED:
        return own_first
    return own_first._replace(preferred=own_first.other, other=own_first.preferred)


def _text(option: Option) -> str:
    return clean_json(asdict(option))


def _option(text: str) -> Option:
    return Option(**json.loads(text))
