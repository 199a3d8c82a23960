"""From jobs of the accounting to rows of the store, batch by batch.

In: a stream of what sacct's rows are. Out: rows of jobs and demand, and a Tally. Each batch is one
transaction together with how far the source was read, so that a reading that is killed goes on
where the last batch ended. Called by sacct_file and sacct_live.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.ingest.sacct_job import SacctJob
from omnipilot_slurm.ingest.sacct_table import Fault, Skipped
from omnipilot_slurm.ingest.tags import decision_of, is_named_server
from omnipilot_slurm.store.database import transaction
from omnipilot_slurm.store.jobs import AccountedJob, record_jobs
from omnipilot_slurm.store.progress import set_progress

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

    from omnipilot_slurm.ingest.decided import DecidedJobs
    from omnipilot_slurm.store.progress import Progress

#: so many at once: another writer waits for a batch, the daemon at most a second
BATCH_ROWS: Final = 2000
MAX_FAULTS: Final = 20


@dataclass(slots=True)
class Tally:
    """What a reading found: rows by kind, the first faults as texts, and how many rows were new.

    `latest` are the last of the jobs, as many as it has room for.
    """

    n_jobs: int = 0
    n_changed: int = 0
    n_outcomes: int = 0
    n_too_old: int = 0
    n_faults: int = 0
    skipped: Counter[Skipped] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    latest: deque[SacctJob] = field(default_factory=lambda: deque(maxlen=0))

    def fault(self, fault: Fault) -> None:
        """Count a row that cannot be read, and keep the first of them."""
        self.n_faults += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(str(fault))

    def add(self, other: Tally, source: str) -> None:
        """Add what the reading of one source found."""
        for name in ("n_jobs", "n_changed", "n_outcomes", "n_too_old", "n_faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.skipped += other.skipped
        told = [f"{source}:{fault}" for fault in other.faults]
        self.faults += told[: MAX_FAULTS - len(self.faults)]

    def as_json(self) -> dict[str, object]:
        """Return the counts under the names of `ingest sacct --json`."""
        return {
            "jobs": self.n_jobs,
            "new_or_changed": self.n_changed,
            "outcomes": self.n_outcomes,
            "too_old": self.n_too_old,
            "bad_rows": self.n_faults,
            **{f"skipped_{kind.value}": self.skipped[kind] for kind in Skipped},
            "faults": self.faults,
        }

    def shown(self) -> str:
        """Return the counts as a line for people."""
        left_out = {
            "steps": self.skipped[Skipped.STEP],
            "without GPUs": self.skipped[Skipped.NO_GPUS],
            "not started": self.skipped[Skipped.NOT_STARTED],
            "too old": self.n_too_old,
        }
        rest = ", ".join(f"{n} {what}" for what, n in left_out.items() if n)
        return (
            f"{self.n_jobs} jobs with GPUs, {self.n_changed} of them new or changed; "
            f"{self.n_outcomes} outcomes of decided jobs; {self.n_faults} rows cannot be read"
            + (f" (left out: {rest})" if rest else "")
        )


@dataclass(slots=True)
class Recognised:
    """How many scripts were read, how many start a server, how many launches that made."""

    n_scripts: int = 0
    n_servers: int = 0
    n_launches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How jobs are kept: under which user keys, from when on; `at` is now, Unix time in s.

    A job that still runs counts up to `seen_at`. `decided` links jobs to decisions.
    """

    user_key: Callable[[str], str | None]
    oldest: float
    at: float
    seen_at: float
    decided: DecidedJobs | None = None


def keep(
    connection: sqlite3.Connection,
    rows: Iterable[SacctJob | Skipped | Fault],
    keeping: Keeping,
    tally: Tally,
    reached: Callable[[], tuple[str, Progress]],
) -> None:
    """Write what comes, in batches; `reached` says how far the source was read.

    Raises: sqlite3.Error when the database refuses; what was committed before stays.
    """
    rows = iter(rows)
    while batch := list(islice(rows, BATCH_ROWS)):
        jobs = [row for row in batch if isinstance(row, SacctJob)]
        for row in batch:
            if isinstance(row, Skipped):
                tally.skipped[row] += 1
            elif isinstance(row, Fault):
                tally.fault(row)
        wanted = [job for job in jobs if job.submitted_at >= keeping.oldest]
        tally.n_jobs += len(wanted)
        tally.n_too_old += len(jobs) - len(wanted)
        with transaction(connection):
            tally.n_changed += record_jobs(connection, _accounted(wanted, keeping))
            if keeping.decided is not None:
                tally.n_outcomes += keeping.decided.record(connection, wanted)
            set_progress(connection, *reached())
        tally.latest.extend(wanted)


def _accounted(jobs: Iterable[SacctJob], keeping: Keeping) -> Iterator[AccountedJob]:
    for job in jobs:
        ended = job.ended_at
        yield AccountedJob(
            job.job_id,
            job.submitted_at,
            keeping.user_key(job.user),
            job.partition,
            job.gres_type,
            job.n_gpus,
            job.n_nodes,
            job.eligible_at,
            job.started_at,
            ended,
            max(keeping.seen_at, job.started_at or 0.0) if ended is None else ended,
            job.time_limit_min,
            job.state,
            job.exit_code,
            job.signal,
            "name" if is_named_server(job.name) else None,
            decision_of(job.admin_comment),
        )
