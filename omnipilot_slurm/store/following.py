"""What users made of what was proposed to them, told by what they submitted next and how jobs ran.

In: a connection of database. Out: Choices. Called by the daemon, once an hour, never in a call.

A proposal is a decision that the user was told of and that names a place worth more or less than
their own. What it came to, the first of these that holds within a day of it:
1. the same user submits a job of the same name with `off`: opted out;
2. they submit the same model under the same name to the place that was advised: accepted; to a
   third one: overridden. To the same place again tells nothing, since scripts are run again unread;
3. a job that was moved is cancelled within EARLY_S of its start, or of its submission where it
   never started: cancelled early (by whom, accounting does not keep). A job that was only advised
   on says nothing by that: it may be cancelled to follow the advice;
4. a job that was moved has run for EARLY_S: accepted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnipilot_slurm.store.choices import Choice, Did, Option
from omnipilot_slurm.store.database import fetched

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: how long after a proposal a submission still answers it
WINDOW_S: Final = 86_400.0
#: a job that is cancelled sooner was not wanted, one that runs longer was
EARLY_S: Final = 600.0
_ARM: Final = (
    "partition", "gpu", "n_gpus", "n_nodes", "tensor_parallel", "pipeline_parallel",
    "data_parallel", "precision",
)  # fmt: skip
_TERMS: Final = ("utility_terms_usd", "p_launch")
#: where the fields of _Followed stand in a record
_PATHS: Final = (
    "launch.model",
    "weights",
    *(f"{which}.{name}" for which in ("asked", "chosen") for name in (*_ARM, *_TERMS)),
)


class _Followed(NamedTuple):
    """One decision; `asked` and `chosen` are None where there is no such arm."""

    id: str
    at: float
    verdict: str
    code: str | None
    user: str
    job_name: str
    model: str | None
    weights: Mapping[str, Any]
    asked: Mapping[str, Any] | None
    chosen: Mapping[str, Any] | None


class _Job(NamedTuple):
    """How a decided job ran; Unix times, `until` is its end or when it was last seen."""

    submitted_at: float
    started_at: float | None
    until: float
    was_cancelled: bool


def choices_since(connection: sqlite3.Connection, at: float) -> list[Choice]:
    """Return what was made of the proposals answered at a Unix time or later, as far as it shows.

    Raises: StoreError.
    """
    by_name: dict[tuple[str, str], list[_Followed]] = defaultdict(list)
    for decision in _decisions(connection, at):
        by_name[decision.user, decision.job_name].append(decision)
    jobs = _jobs(connection, at)
    made = (
        _made_of(proposal, decisions[place + 1 :], jobs.get(proposal.id))
        for decisions in by_name.values()
        for place, proposal in enumerate(decisions)
        if _is_proposal(proposal)
    )
    return [choice for choice in made if choice is not None]


def _decisions(connection: sqlite3.Connection, at: float) -> Iterator[_Followed]:
    """Yield the decisions on jobs with a user and a name, in the order in which they were made."""
    paths = ", ".join(f"'$.{path}'" for path in _PATHS)
    rows = fetched(
        connection,
        "decisions",
        "SELECT own.id, own.at, own.verdict, own.code, own.user_name, own.job_name, "  # noqa: S608 (constants)
        f"json_extract(coalesce(own.record, first.record, '{{}}'), {paths}) "
        "FROM decisions AS own LEFT JOIN decisions AS first ON first.id = own.repeats "
        "WHERE own.at >= ? AND own.user_name IS NOT NULL AND own.job_name IS NOT NULL "
        "ORDER BY own.seq",
        (at,),
    )
    for *columns, values in rows:
        model, weights, *arms = json.loads(values)
        half = len(arms) // 2
        read = (model, weights or {}, _arm(arms[:half]), _arm(arms[half:]))
        yield _Followed._make((*columns, *read))


def _arm(values: Sequence[Any]) -> Mapping[str, Any] | None:
    found = dict(zip((*_ARM, *_TERMS), values, strict=True))
    return None if found["gpu"] is None else found


def _jobs(connection: sqlite3.Connection, at: float) -> dict[str, _Job]:
    rows = fetched(
        connection,
        "jobs",
        "SELECT decision_id, submitted_at, started_at, coalesce(ended_at, seen_at), state "
        "FROM jobs WHERE decision_id IS NOT NULL AND submitted_at >= ? ORDER BY submitted_at",
        (at,),
    )
    return {
        decision_id: _Job(submitted_at, started_at, until, state.startswith("CANCELLED"))
        for decision_id, submitted_at, started_at, until, state in rows
    }


def _is_proposal(decision: _Followed) -> bool:
    """Return whether the user was told of a place of known worth that is not their own."""
    asked, chosen = decision.asked, decision.chosen
    return (
        decision.verdict in ("advise", "rewrite")
        and chosen is not None
        and chosen["utility_terms_usd"] is not None
        and (asked is None or not _same_place(asked, chosen))
    )


def _made_of(proposal: _Followed, later: Iterable[_Followed], job: _Job | None) -> Choice | None:
    answer = _answered(proposal, later)
    if answer is not None:
        return answer
    if proposal.verdict != "rewrite" or job is None:
        return None
    since = job.submitted_at if job.started_at is None else job.started_at
    if job.until - since < EARLY_S:
        return _choice(proposal, job.until, Did.CANCELLED_EARLY) if job.was_cancelled else None
    if job.started_at is None:
        return None
    return _choice(proposal, job.started_at + EARLY_S, Did.ACCEPTED)


def _answered(proposal: _Followed, later: Iterable[_Followed]) -> Choice | None:
    """Return what the first of the next submissions says that says anything."""
    asked, chosen = proposal.asked, proposal.chosen
    for decision in later:
        if decision.at > proposal.at + WINDOW_S:
            return None
        if decision.code == "opted_out":
            return _choice(proposal, decision.at, Did.OPTED_OUT)
        there = decision.asked
        if there is None or decision.model != proposal.model:
            continue
        if chosen is not None and _same_place(there, chosen):
            return _choice(proposal, decision.at, Did.ACCEPTED)
        if asked is None or not _same_place(there, asked):
            return _choice(proposal, decision.at, Did.OVERRIDDEN, own=_option(decision, there))
    return None


def _same_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = ("partition", "gpu", "n_gpus", "tensor_parallel")
    return all(one[name] == other[name] for name in names)


def _choice(proposal: _Followed, at: float, did: Did, own: Option | None = None) -> Choice:
    proposed = _option(proposal, proposal.chosen)
    assert proposed is not None
    if did is not Did.OVERRIDDEN:
        own = _option(proposal, proposal.asked)
    return Choice(decision_id=proposal.id, at=at, did=did, proposed=proposed, own=own)


def _option(decision: _Followed, arm: Mapping[str, Any] | None) -> Option | None:
    """Return an arm with its worth; None where that is not known: it fails, or nothing tells."""
    if arm is None or arm["utility_terms_usd"] is None:
        return None
    return Option(
        arm={name: arm[name] for name in _ARM},
        utility_terms_usd=arm["utility_terms_usd"],
        p_launch=1.0 if arm["p_launch"] is None else arm["p_launch"],
        weights=decision.weights,
    )
