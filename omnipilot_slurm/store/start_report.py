"""Whether the servers of decided jobs started as was said of them.

In: a connection of database. Out: counts by what was said and how it went. Called by
`omnipilot report decisions`. How jobs went is known from `omnipilot ingest sacct`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.store.database import fetched

if TYPE_CHECKING:
    import sqlite3

#: endings from which nothing follows about a start
_TELLS_NOTHING: Final = ("cancelled", "node_failure")
#: of a job that was moved the place moved to counts, of any other one the place asked for
_SQL: Final = """
SELECT CASE WHEN own.verdict = 'rewrite' THEN 'moved'
       ELSE json_extract(coalesce(own.record, first.record), '$.asked.starts') END AS said,
       outcomes.outcome, count(*)
FROM outcomes
JOIN decisions AS own ON own.id = outcomes.decision_id
LEFT JOIN decisions AS first ON first.id = own.repeats
WHERE own.at >= ? AND said IS NOT NULL
GROUP BY said, outcomes.outcome
"""


@dataclass(slots=True, kw_only=True)
class Starts:
    """How many servers came up, how many did not, and of how many nothing can be told."""

    n_up: int = 0
    n_failed: int = 0
    n_unknown: int = 0


def starts_by_word(connection: sqlite3.Connection, at: float) -> dict[str, Starts]:
    """Count the jobs decided on at a Unix time or later by what was said of their servers' start.

    Keys are `starts`, `unsure`, `fails` of the place asked for, and `moved`. Raises: StoreError.
    """
    found: dict[str, Starts] = {}
    for said, outcome, n in fetched(connection, "outcomes", _SQL, (at,)):
        counts = found.setdefault(said, Starts())
        if outcome == "ok":
            counts.n_up += n
        elif outcome in _TELLS_NOTHING:
            counts.n_unknown += n
        else:
            counts.n_failed += n
    return found
