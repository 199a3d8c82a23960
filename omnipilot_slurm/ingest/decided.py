"""Jobs that were decided on: found in the accounting, with how each ended.

In: jobs of the accounting, decisions of the store. Out: rows of outcomes and, where the decision
named an arm, of launches, which the launch prior counts. Called by accounting, in its transaction.

A job is linked by the tag in its AdminComment; one that was let through has none, and is linked by
user, job name and second of submission where exactly one decision fits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnipilot_slurm.ingest.job_log import ended_how, read_log
from omnipilot_slurm.ingest.tags import decision_of
from omnipilot_slurm.records import Verdict
from omnipilot_slurm.store.outcomes import JobOutcome, LinkedBy, record_outcomes
from omnipilot_slurm.store.site_tables import FinishedLaunch, record_launches

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from omnipilot_slurm.ingest.ending import Ending
    from omnipilot_slurm.ingest.sacct_job import SacctJob

#: Slurm notes the second in which it took the job: that of the answer, or one soon after
_AFTER_S: Final = 5
_STARTS: Final = frozenset(("starts", "unsure"))


class _Decision(NamedTuple):
    id: str
    verdict: str
    record: dict[str, Any] | None


class _Linked(NamedTuple):
    job: SacctJob
    decision: _Decision
    by: LinkedBy


class DecidedJobs:
    """Writes how decided jobs ended; `read` returns a log's text, "" where there is none."""

    def __init__(self, read: Callable[[SacctJob], str] = read_log) -> None:
        self._read = read

    def record(self, connection: sqlite3.Connection, jobs: Sequence[SacctJob]) -> int:
        """Write the outcomes of those jobs that have ended and were decided on.

        Returns how many are new or say something new.
        """
        outcomes: list[JobOutcome] = []
        launches: list[FinishedLaunch] = []
        for linked in _linked(connection, [job for job in jobs if job.ended_at is not None]):
            ended = ended_how(linked.job, self._read)
            if ended is not None:
                outcomes.append(_outcome(linked, ended))
                launches += _launch(linked, ended)
        record_launches(connection, launches)
        return record_outcomes(connection, outcomes)


def _linked(connection: sqlite3.Connection, jobs: Sequence[SacctJob]) -> Iterator[_Linked]:
    """Yield the jobs that have a decision, each with it."""
    untagged = []
    for job in jobs:
        tag = decision_of(job.admin_comment)
        if tag is None:
            untagged.append(job)
            continue
        decision = _by_id(connection, tag)
        if decision is not None:
            yield _Linked(job, decision, LinkedBy.TAG)
    if untagged:
        yield from _by_submission(connection, untagged)


def _by_submission(connection: sqlite3.Connection, jobs: Sequence[SacctJob]) -> Iterator[_Linked]:
    """Link jobs to the one decision on a job of that name and user when they were submitted.

    Tasks of one array were one submission; two submissions in the same seconds link to none.
    """
    submitted = [job.submitted_at for job in jobs]
    rows = connection.execute(
        "SELECT id, at, user_name, job_name FROM decisions WHERE at BETWEEN ? AND ?",
        (min(submitted) - _AFTER_S, max(submitted) + 1.0),
    ).fetchall()
    if not rows:
        return
    decided: defaultdict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for decision_id, at, user, name in rows:
        decided[user or "", name or ""].append((decision_id, at))
    arrays: defaultdict[str, set[str]] = defaultdict(set)
    found = []
    for job in jobs:
        fitting = [
            decision_id
            for decision_id, at in decided.get((job.user, job.name), ())
            if 0 <= job.submitted_at - int(at) <= _AFTER_S
        ]
        if len(fitting) == 1:
            found.append((job, fitting[0]))
            arrays[fitting[0]].add(job.job_id.partition("_")[0])
    for job, decision_id in found:
        decision = _by_id(connection, decision_id)
        if decision is not None and len(arrays[decision_id]) == 1:
            yield _Linked(job, decision, LinkedBy.SUBMISSION)


def _by_id(connection: sqlite3.Connection, decision_id: str) -> _Decision | None:
    row = connection.execute(
        "SELECT own.id, own.verdict, coalesce(own.record, first.record) "
        "FROM decisions AS own LEFT JOIN decisions AS first ON first.id = own.repeats "
        "WHERE own.id = ?",
        (decision_id,),
    ).fetchone()
    if row is None:
        return None
    return _Decision(row[0], row[1], json.loads(row[2]) if row[2] else None)


def _outcome(linked: _Linked, ended: Ending) -> JobOutcome:
    job = linked.job
    assert job.ended_at is not None
    return JobOutcome(
        job_id=job.job_id,
        submitted_at=job.submitted_at,
        decision_id=linked.decision.id,
        linked_by=linked.by,
        started_at=job.started_at,
        ended_at=job.ended_at,
        state=job.state,
        outcome=ended.outcome,
        evidence=ended.evidence,
    )


def _launch(linked: _Linked, ended: Ending) -> Iterator[FinishedLaunch]:
    """Yield the launch, where the decision says on which arm the server was started."""
    record = linked.decision.record or {}
    was_changed = linked.decision.verdict == Verdict.REWRITE
    arm, launch = record.get("chosen" if was_changed else "asked"), record.get("launch")
    if not arm or not launch:
        return
    yield FinishedLaunch(
        job_id=linked.job.job_id,
        submitted_at=linked.job.submitted_at,
        decision_id=linked.decision.id,
        gpu=arm["gpu"],
        n_gpus=arm["n_gpus"],
        tensor_parallel=arm["tensor_parallel"],
        precision=arm["precision"],
        engine_version=ended.version or launch["vllm_version"],
        outcome=ended.outcome,
        checked=arm["starts"] in _STARTS,
    )
