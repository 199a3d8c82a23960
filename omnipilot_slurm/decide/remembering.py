"""What was worked out before, for questions that only the text of their scripts tells apart.

Another port, job name or log file changes no arm. In: a Question and the arm asked. Out: a key of
all that the worth of its arms rests on. Called by choosing; what is kept under a key lasts as long
as the Site.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from omnipilot_slurm.records import Submission

if TYPE_CHECKING:
    from collections.abc import Hashable

    from omnipilot_slurm.decide.arms import Question, RatedArm
    from omnipilot_slurm.decide.finding import Finding
    from omnipilot_slurm.facts import ModelFacts

#: what of a submission no arm depends on, once its script is read
_READ: Final = frozenset({"script", "args", "environment", "name", "comment", "array"})
_SUBMITTED: Final = attrgetter(*(f.name for f in fields(Submission) if f.name not in _READ))
_WANTED: Final = attrgetter(
    *("isl", "osl", "concurrency", "requests_per_s", "slo_ttft_ms", "slo_tpot_ms", "hours"),
    *("plausible_concurrency", "n_jobs"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """The asked arm and all others with what they are worth, for one model.

    `advice` is what there is to say while the job stays as it is.
    """

    model: ModelFacts
    asked: RatedArm
    others: tuple[RatedArm, ...]
    advice: Finding | None


class Remembered(Protocol):
    """Keeps some of what was rated; safe for several threads."""

    def get(self, key: Hashable, /) -> Rated | None:
        """Return what is kept under a key."""

    def put(self, key: Hashable, kept: Rated, /) -> None:
        """Keep it under a key."""


def key_of(question: Question, asked: RatedArm) -> Hashable:
    """Return what the worth of a question's arms rests on, besides the site and the model."""
    launch, load = question.launch, question.workload
    return (
        _SUBMITTED(question.submission),
        question.request,
        launch.engine,
        launch.tp,
        tuple(sorted(launch.environment.items())),
        asked.arm,
        _WANTED(load),
        tuple(sorted(load.source.items())),
    )
