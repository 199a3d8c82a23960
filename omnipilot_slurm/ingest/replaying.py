"""What would have happened: past jobs through decide(), held against how they ended.

In: PastJobs and a Site. Out: a Replay. Nothing is changed, said to users or stored. Called by
`omnipilot replay`; recognition makes decisions of single jobs in the same way.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.decide.decision import decide
from omnipilot_slurm.ingest.job_log import ended_how
from omnipilot_slurm.ingest.past_job import as_submitted
from omnipilot_slurm.records import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.decide.decision import Decision
    from omnipilot_slurm.decide.site import Site
    from omnipilot_slurm.ingest.past_job import PastJob
    from omnipilot_slurm.ingest.sacct_job import SacctJob
    from omnipilot_slurm.records import Submission

_BUDGET_S: Final = 1.0
_S_PER_H: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One job that would have been asked about; `ended` None: its end is not known."""

    id: str
    verdict: str
    code: str
    text: str
    starts: str | None
    record: dict[str, Any]
    ended: str | None = None
    evidence: str | None = None
    gpu_hours: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it under the names of `replay --json`."""
        return {
            "id": self.id,
            "verdict": self.verdict,
            "code": self.code,
            "text": self.text,
            "starts": self.starts,
            "model": (self.record.get("launch") or {}).get("model"),
            "asked": _shape(self.record.get("asked")),
            "chosen": _shape(self.record.get("chosen")),
            "ended": self.ended,
            "evidence": self.evidence,
            "gpu_hours": self.gpu_hours,
        }


@dataclass(slots=True)
class Replay:
    """All that was replayed: servers one by one, other scripts only counted."""

    n_scripts: int = 0
    not_serving: Counter[str] = field(default_factory=Counter)
    jobs: list[Replayed] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it under the names of `replay --json`."""
        return {
            "scripts": self.n_scripts,
            "servers": len(self.jobs),
            "others": dict(self.not_serving),
            "verdicts": dict(Counter(job.verdict for job in self.jobs)),
            "reasons": dict(Counter(job.code for job in self.jobs).most_common()),
            "starts_and_ends": [
                {"starts": starts, "ended": ended, "n": n}
                for (starts, ended), n in sorted(self.ends().items())
            ],
            "jobs": [job.as_json() for job in self.jobs],
        }

    def ends(self) -> Counter[tuple[str, str]]:
        """Count what was foretold of the asked arm against how the job's server ended."""
        return Counter(
            (job.starts, job.ended)
            for job in self.jobs
            if job.starts is not None and job.ended is not None
        )


def replay(past: Iterable[PastJob], site: Site) -> Replay:
    """Decide on past jobs as if everything were allowed, one after the other."""
    allowed = replace(site.policy, mode=Mode.ENFORCE, by_partition={}, by_account={}, by_user={})
    site = replace(site, policy=allowed)
    found = Replay()
    for one in past:
        found.n_scripts += 1
        decision = decided(as_submitted(one), site)
        if decision.launch is None:
            found.not_serving[decision.finding.reason.code] += 1
        else:
            found.jobs.append(_replayed(one, decision))
    return found


def decided(submission: Submission, site: Site) -> Decision:
    """Return the decision on a submission, within a second of processor time."""
    end = time.thread_time() + _BUDGET_S
    return decide(submission, site, expired=lambda: time.thread_time() > end)


def _replayed(past: PastJob, decision: Decision) -> Replayed:
    finding, job = decision.finding, past.accounted
    ended = None if job is None else ended_how(job)
    return Replayed(
        id=past.id,
        verdict=finding.verdict.value,
        code=finding.reason.code,
        text=finding.reason.text,
        starts=None if finding.asked is None else finding.asked.starts.value,
        record=as_json(decision),
        ended=None if ended is None else ended.outcome.value,
        evidence=None if ended is None else ended.evidence,
        gpu_hours=None if job is None else _gpu_hours(job),
    )


def _gpu_hours(job: SacctJob) -> float | None:
    if job.started_at is None or job.ended_at is None:
        return None
    return round(job.n_gpus * (job.ended_at - job.started_at) / _S_PER_H, 3)


def _shape(arm: Any) -> dict[str, Any] | None:
    names = ("partition", "gpu", "n_gpus", "tensor_parallel", "precision")
    return None if arm is None else {name: arm[name] for name in names}
