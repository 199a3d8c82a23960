"""A search for changes: what is at fault, what may stay in doubt, and whether a change starts.

In: a Question and its report. Out: Change, one at a time. Called by `changes`, which tries them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.fit import answer, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.vllm.fit import Question
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import LaunchReport

#: the share tried where too little stays outside the budget
ENOUGH_OUTSIDE = 0.95
#: a context is offered in multiples of it, where it is longer than that
_ROUND = 1024
#: the shortest context worth an offer beside another change
_SHORTEST_BESIDE = 4096
_N_HALVINGS = 6
MEMORY = frozenset({"weights", "kv_cache", "headroom", "free_memory", "utilization"})
#: what another share cures
SHARE = frozenset({"headroom", "free_memory", "utilization"})
#: how a change is said that is no option of vLLM
_NAMED = {
    "model": "the model ",
    "gpu": "the card ",
    "gpus": "GPUs of the job: ",
    "leave_out": "leave out ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: the option or thing it sets, its value, and the line that says so.

    `starts` is what the server does after it: starts, or unsure where something stays in doubt.
    """

    sets: str
    value: str
    text: str
    starts: Starts
    p_starts: float | None


class Search:
    """One search: the question, what its report found at fault, and the verdict to ask.

    `relaxed` is the question with a share that leaves enough outside the budget, `beside` how that
    is said. Where no card is named, changes are tried on the largest of each kind.
    """

    def __init__(
        self, question: Question, report: LaunchReport, coefficients: StartupCoefficients
    ) -> None:
        self._cards = question.cards
        if question.gpu is None:
            question = replace(question, cards=_largest(question.cards))
        self.question = question
        self.report = report
        self.coefficients = coefficients
        self.faults = faults_of(report)
        self.doubts = _doubts(question, report)
        self._or_cache = self.doubts | {"kv_cache"}
        self.relaxed, self.beside = question, ""
        if self.faults & SHARE:
            asked = question.engine.gpu_memory_utilization or ENOUGH_OUTSIDE
            share = min(asked, ENOUGH_OUTSIDE) if asked > 0 else ENOUGH_OUTSIDE
            self.relaxed = with_options(question, gpu_memory_utilization=share)
            self.beside = f" --gpu-memory-utilization {share:g}"

    def starts(self, changed: Question) -> bool:
        """Return whether a change starts, or leaves only doubts that it was not to cure."""
        report = judge(changed, self.coefficients)
        left, told = faults_of(report), self.faults - {"card"}
        cures = left - {"card"} < told
        return report.verdict is not Starts.FAILS and left <= self.doubts and cures

    def offer(self, changed: Question, sets: str, value: object, beyond: str = "") -> Change | None:
        """Return a change that starts, if need be with a shorter context beside it."""
        if self.starts(changed):
            return self.change(changed, sets, value, self.beside + beyond)
        if not {"kv_cache"} <= faults_of(judge(changed, self.coefficients)) <= self._or_cache:
            return None
        longest = answer(changed, self.coefficients).max_model_len_that_fits or 0
        length = self.longest_starting(changed, longest, _SHORTEST_BESIDE)
        if length is None:
            return None
        beside = f" --max-model-len {length}{self.beside}{beyond}"
        return self.change(with_options(changed, max_model_len=length), sets, value, beside)

    def longest_starting(self, question: Question, limit: int, shortest: int) -> int | None:
        """Return the longest rounded context up to a limit that starts; old engines profile it."""
        low, high = 0, rounded(limit)
        length = high
        for _ in range(_N_HALVINGS):
            if length < shortest:
                break
            if self.starts(with_options(question, max_model_len=length)):
                low = length
                if length == high:
                    break
            else:
                high = length
            length = rounded((low + high) // 2)
        return low or None

    def change(self, changed: Question, sets: str, value: object, beside: str = "") -> Change:
        """Return a change in words, with the verdict after it."""
        named = _NAMED.get(sets, f"--{sets.replace('_', '-')} ")
        report = judge(replace(changed, cards=self._cards), self.coefficients)
        return Change(
            sets=sets,
            value=str(value),
            text=f"{named}{value}".rstrip() + beside,
            starts=report.verdict,
            p_starts=report.p_starts,
        )


def _largest(cards: Sequence[GpuFacts]) -> tuple[GpuFacts, ...]:
    """Return the largest card of each capability: where none of them starts, none does."""
    found = {card.capability: card for card in sorted(cards, key=lambda card: card.mem_gib)}
    return tuple(found.values())


def with_options(question: Question, **options: object) -> Question:
    """Return a question with other engine arguments."""
    return replace(question, engine=replace(question.engine, **options))  # type: ignore[arg-type]


def faults_of(report: LaunchReport) -> set[str]:
    """Return the ids of the checks that fail or are unsure."""
    return {check.id for check in report.checks if check.ok is not Starts.STARTS}


def _doubts(question: Question, report: LaunchReport) -> set[str]:
    """Return what may stay in doubt: what only a card would tell, and what was, but for memory."""
    unsure = {check.id for check in report.checks if check.ok is Starts.UNSURE} - MEMORY
    return unsure | {"card"} if question.gpu is None else unsure


def rounded(length: int) -> int:
    """Return a length as it is offered."""
    return length // _ROUND * _ROUND if length > _ROUND else length
