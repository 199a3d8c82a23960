"""Servers among the jobs just read, by their scripts: which they are, and how their starts ended.

In: jobs of the accounting and a Site. Out: jobs.serves, and rows of launches for servers that
nobody was asked about, on the arm on which they ran. Called by `omnipilot ingest sacct` after the
jobs are stored; scripts are asked for in batches and forgotten at once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from omnipilot_slurm.ingest.accounting import Recognised
from omnipilot_slurm.ingest.batch_scripts import BATCH_IDS, batch_scripts
from omnipilot_slurm.ingest.job_log import ended_how
from omnipilot_slurm.ingest.past_job import PastJob, as_run
from omnipilot_slurm.ingest.replaying import decided
from omnipilot_slurm.records import Starts
from omnipilot_slurm.store.database import transaction
from omnipilot_slurm.store.jobs import looked_at, set_serves
from omnipilot_slurm.store.outcomes import has_outcome
from omnipilot_slurm.store.site_tables import FinishedLaunch, record_launches

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.ingest.sacct_job import SacctJob

_WORD: Final = b"vllm"


class _Look(NamedTuple):
    """The jobs of one script, and the decision on it where it may start a server."""

    jobs: Sequence[SacctJob]
    decision: Decision | None

    @property
    def is_server(self) -> bool:
        return self.decision is not None and self.decision.launch is not None


def recognise(
    connection: sqlite3.Connection,
    jobs: Iterable[SacctJob],
    site: Site,
    *,
    again: bool = False,
    scripts: Callable[[Sequence[str]], Iterable[tuple[str, bytes]]] = batch_scripts,
) -> Recognised:
    """Look at the scripts of ended jobs; where the first batch has none, none are kept here.

    Tasks of an array have one script. One that was read before is left, unless it is to be read
    `again`. Each batch is one transaction.
    Raises: SlurmError when sacct fails, sqlite3.Error when the database refuses.
    """
    found = Recognised()
    by_script = _by_script(connection, jobs, again=again)
    for ids in _batches(by_script):
        looks = [_look(by_script[job_id], script, site) for job_id, script in scripts(ids)]
        if not looks:
            break
        found.n_scripts += len(looks)
        found.n_servers += sum(look.is_server for look in looks)
        with transaction(connection):
            for look in looks:
                keys = [(job.job_id, job.submitted_at) for job in look.jobs]
                set_serves(connection, keys, is_server=look.is_server)
                launches = list(_launches(connection, look))
                found.n_launches += len(launches)
                record_launches(connection, launches)
    return found


def _by_script(
    connection: sqlite3.Connection, jobs: Iterable[SacctJob], *, again: bool
) -> dict[str, list[SacctJob]]:
    """Group ended jobs by the one whose script is asked for; parts of heterogeneous jobs are left.

    A requeued job has one script for all its times.
    """
    first: dict[str, str] = {}
    groups: dict[str, list[SacctJob]] = {}
    for job in jobs:
        if job.ended_at is None or not job.job_id.replace("_", "").isdecimal():
            continue
        if not again and looked_at(connection, job.job_id, job.submitted_at):
            continue
        asked = first.setdefault(job.job_id.partition("_")[0], job.job_id)
        groups.setdefault(asked, []).append(job)
    return groups


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(ids)
    while batch := list(islice(rest, BATCH_IDS)):
        yield batch


def _look(jobs: Sequence[SacctJob], script: bytes, site: Site) -> _Look:
    if _WORD not in script.lower():
        return _Look(jobs, None)
    past = PastJob(id=jobs[0].job_id, script=script)
    return _Look(jobs, decided(as_run(past, jobs[0]), site))


def _launches(connection: sqlite3.Connection, look: _Look) -> Iterator[FinishedLaunch]:
    """Yield the launches of jobs without a decision of their own, on the arm on which they ran."""
    decision = look.decision
    rated = None if decision is None else decision.finding.asked
    if decision is None or decision.launch is None or rated is None:
        return
    for job in look.jobs:
        ended = ended_how(job)
        if ended is None or has_outcome(connection, job.job_id, job.submitted_at):
            continue
        yield FinishedLaunch(
            job_id=job.job_id,
            submitted_at=job.submitted_at,
            decision_id=None,
            gpu=rated.arm.gpu,
            n_gpus=rated.arm.n_gpus,
            tensor_parallel=rated.arm.tensor_parallel,
            precision=rated.arm.precision,
            engine_version=ended.version or decision.launch.engine.vllm_version,
            outcome=ended.outcome,
            checked=rated.starts is not Starts.FAILS,
        )
