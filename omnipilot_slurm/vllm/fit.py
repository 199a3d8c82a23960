"""Does it fit: one question about a server, answered with or without a card, a model, a catalog.

In: a `Question`. Out: a LaunchReport. Called by `omnipilot fit`, by the search for smallest
changes and by the benchmark of launches. Where no one card is named, "starts" means that it starts
on every card that the question brings along, "fails" that it fails on each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.card import card_check
from omnipilot_slurm.vllm.checks.outcome import outcome
from omnipilot_slurm.vllm.checks.parallel import heads_check
from omnipilot_slurm.vllm.checks.placement import placement_checks
from omnipilot_slurm.vllm.checks.quantization import method_checks
from omnipilot_slurm.vllm.eras import in_question
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.longest import length_limit, longest_length
from omnipilot_slurm.vllm.planned import memory_of
from omnipilot_slurm.vllm.report import CheckKind, LaunchReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import Check, Place

#: below it vLLM's wheels bring no kernels
_LEAST_CAPABILITY = (7, 0)
_WORST_FIRST = (Starts.FAILS, Starts.UNSURE, Starts.STARTS)
#: below it no cluster's card is
_LEAST_MEM_GIB = 14.0


class Told(NamedTuple):
    """A check made where the command line was read; `option` is better left out ("": none is)."""

    check: Check
    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which server on which card; None: not known.

    `either` are the cards that a name may mean, where it means no one; `cards` are those to choose
    from, `siblings` files of the same model that keep its weights otherwise. `heads` and
    `capability` (80 for 8.0) stand in for a model or card that is not known. `told` is what reading
    the command line found.
    """

    model: ModelFacts | None
    gpu: GpuFacts | None
    engine: EngineArgs
    place: Place
    either: tuple[GpuFacts, ...] = ()
    cards: tuple[GpuFacts, ...] = ()
    siblings: tuple[ModelFacts, ...] = ()
    heads: int | None = None
    capability: int | None = None
    told: tuple[Told, ...] = ()


def weaker(first: GpuFacts, second: GpuFacts) -> GpuFacts:
    """Return what both cards of a mixed pair have: the smaller memory, the lower capability."""
    least = min((first, second), key=lambda card: card.mem_gib)
    known = [card.capability for card in (first, second) if card.capability is not None]
    return replace(
        least,
        name=f"{first.name} + {second.name}",
        capability=min(known) if len(known) == 2 else None,  # noqa: PLR2004 (a pair)
    )


def answer(question: Question, coefficients: StartupCoefficients) -> LaunchReport:
    """Return what `judge` does, with the longest context that certainly fits, not any safe one."""
    report, model, gpu = judge(question, coefficients), question.model, question.gpu
    if model is None or gpu is None:
        return report
    memory = memory_of(model, gpu, question.engine, coefficients)
    limit = length_limit(model, question.engine, report.checks)
    longest = longest_length(model, gpu, question.engine, coefficients, memory=memory, limit=limit)
    return replace(report, max_model_len_that_fits=longest)


def judge(question: Question, coefficients: StartupCoefficients) -> LaunchReport:
    """Return whether the server starts, as far as what is known decides it."""
    report = _judged(question, coefficients)
    if not question.told:
        return report
    told = [found.check for found in question.told]
    states = {report.verdict, *(check.ok for check in told)}
    verdict = next(state for state in _WORST_FIRST if state in states)
    p_starts = (report.p_starts or 1 / 2) if verdict is Starts.UNSURE else None
    checks = (*told, *report.checks)
    return replace(report, verdict=verdict, checks=checks, p_starts=p_starts)


def _judged(question: Question, coefficients: StartupCoefficients) -> LaunchReport:
    if question.model is None:
        return _without_model(question)
    if question.gpu is not None:
        return _assessed(question, question.model, question.gpu, coefficients)
    report = _assessed(question, question.model, None, coefficients)
    if report.verdict is Starts.FAILS:
        return report
    return _on_every_card(question, question.model, report, coefficients)


def _assessed(
    question: Question,
    model: ModelFacts,
    gpu: GpuFacts | None,
    coefficients: StartupCoefficients,
) -> LaunchReport:
    engine, place = question.engine, question.place
    return assess(
        model,
        gpu,
        engine,
        place,
        coefficients,
        capability=question.capability or _shared_capability(question.either),
    )


def _shared_capability(cards: Sequence[GpuFacts]) -> int | None:
    """Return the capability that all of some cards have, as 80 for 8.0."""
    found = {card.capability for card in cards}
    capability = found.pop() if len(found) == 1 else None
    return None if capability is None else 10 * capability[0] + capability[1]


def _on_every_card(
    question: Question, model: ModelFacts, report: LaunchReport, coefficients: StartupCoefficients
) -> LaunchReport:
    """Return a report that holds whichever of the cards it is."""
    cards = question.either or _any_card(question)
    reports = [_assessed(question, model, card, coefficients) for card in cards]
    states = [found.verdict for found in reports]
    verdict = states[0] if len(set(states)) == 1 else Starts.UNSURE
    n_starts = states.count(Starts.STARTS)
    p_starts = n_starts + sum(found.p_starts or 0.0 for found in reports)
    text = f"no card is named: starts on {n_starts} of {len(cards)} from {_LEAST_MEM_GIB:g} GiB on"
    if question.either:
        text = _which(cards, reports)
    card = outcome("card", CheckKind.MEMORY, verdict, text)
    return replace(
        report,
        verdict=verdict,
        checks=(*report.checks, card),
        p_starts=p_starts / len(cards) if verdict is Starts.UNSURE and cards else None,
    )


def _which(cards: Sequence[GpuFacts], reports: Sequence[LaunchReport]) -> str:
    """Return on which of the cards that a name may mean it starts, and what stops it on another."""
    judged = list(zip(cards, reports, strict=True))
    starting = [card.id for card, report in judged if report.verdict is Starts.STARTS]
    text = f"starts on {' and '.join(starting) or 'none of them'}"
    for card, report in judged:
        if report.verdict is not Starts.STARTS:
            (stopping, *_) = [check for check in report.checks if check.ok is report.verdict]
            return f"{text}; on {card.id}: {stopping.detail.text}"
    return text


def _any_card(question: Question) -> tuple[GpuFacts, ...]:
    return tuple(card for card in question.cards if _may_be(card, question.capability))


def _may_be(card: GpuFacts, capability: int | None) -> bool:
    if card.capability is None or card.capability < _LEAST_CAPABILITY:
        return False
    if card.mem_gib < _LEAST_MEM_GIB:
        return False
    return capability is None or 10 * card.capability[0] + card.capability[1] == capability


def _without_model(question: Question) -> LaunchReport:
    """Return what the number of heads, the GPUs held and the card's capability decide alone."""
    engine, capability = question.engine, question.capability
    if question.gpu is not None and question.gpu.capability is not None:
        capability = 10 * question.gpu.capability[0] + question.gpu.capability[1]
    here = in_question(engine.vllm_version, None)
    card = card_check(capability, here)
    checks = [
        *([] if card is None else [card]),
        *([] if question.heads is None else [heads_check(question.heads, engine.tensor_parallel)]),
        *placement_checks(engine, question.place, here),
        *method_checks(engine.quantization, None, capability, here),
    ]
    fails = any(check.ok is Starts.FAILS for check in checks)
    return LaunchReport(
        verdict=Starts.FAILS if fails else Starts.UNSURE,
        checks=tuple(checks),
        memory=None,
        max_model_len_that_fits=None,
        n_full_requests=None,
        p_starts=None if fails else 1 / 2,
    )
