"""The smallest changes that make a server start, each verified by the verdict it changes.

In: a Question and its report. Out: Changes, the least intrusive first: shorter context, memory
share, step sizes, types, another split, other weights, another card. Called by `omnipilot fit`.

A change of one thing may need a shorter context or a smaller share beside it; then its line says
both. Where no card is named, memory is not judged: a change is offered when it removes what fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.parallel import divisors
from omnipilot_slurm.vllm.fit import judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.vllm.fit import Question
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import LaunchReport

#: shares to try: a little more than the default, and where too much is asked a little less
_MORE = (0.92, 0.95)
_LESS = (0.95, 0.9)
_SEQS = 128
_TOKENS = 2048
#: a context is offered in multiples of it, where it is longer than that
_ROUND = 1024
#: the shortest context worth an offer, alone and beside another change
_SHORTEST = 512
_SHORTEST_BESIDE = 4096
_N_HALVINGS = 6
_MOST_GPUS = 8
_N_CARDS = 2
_N_SIBLINGS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: the option or thing it sets, its value, and the line that says so.

    `starts` is what the server does after it: starts, or unsure where memory cannot be judged.
    """

    sets: str
    value: str
    text: str
    starts: Starts


def smallest_changes(
    question: Question, report: LaunchReport, coefficients: StartupCoefficients
) -> tuple[Change, ...]:
    """Return the changes after which the server starts; nothing where it does already."""
    if report.verdict is Starts.STARTS:
        return ()
    search = _Search(question, report, coefficients)
    if question.model is None:
        return (*search.more_gpus(), *search.splits())
    return (
        *search.shorter_contexts(),
        *search.shares(),
        *search.smaller_steps(),
        *search.types(),
        *search.more_gpus(),
        *search.splits(),
        *search.other_weights(),
        *search.other_cards(),
    )


class _Search:
    """One search: the question, what its report found at fault, and the verdict to ask."""

    def __init__(
        self, question: Question, report: LaunchReport, coefficients: StartupCoefficients
    ) -> None:
        self.question = question
        self.report = report
        self.coefficients = coefficients
        self.faults = _faults(report)
        self.relaxed, self.beside = question, ""
        if self.faults & {"headroom", "free_memory"}:
            share = min(question.engine.gpu_memory_utilization or _LESS[0], _LESS[0])
            self.relaxed = _with(question, gpu_memory_utilization=share)
            self.beside = f" --gpu-memory-utilization {share:g}"

    def shorter_contexts(self) -> Iterator[Change]:
        """Yield the longest context that certainly starts, no longer than the model's own."""
        question, longest = self.question, self.report.max_model_len_that_fits
        limits = []
        if "kv_cache" in self.faults:
            limits.append(longest or 0)
        if "max_model_len" in self.faults and question.model is not None:
            limits.append(question.model.max_model_len or 0)
        if not limits:
            return
        length = self._longest_starting(question, min(limits), _SHORTEST)
        if length is not None:
            yield self._change(_with(question, max_model_len=length), "max_model_len", length)

    def _longest_starting(self, question: Question, limit: int, shortest: int) -> int | None:
        """Return the longest rounded context up to a limit that starts; old engines profile it."""
        low, high = 0, _rounded(limit)
        length = high
        for _ in range(_N_HALVINGS):
            if length < shortest:
                break
            if self._answers(_with(question, max_model_len=length)):
                low = length
                if length == high:
                    break
            else:
                high = length
            length = _rounded((low + high) // 2)
        return low or None

    def shares(self) -> Iterator[Change]:
        """Yield another share of memory: more for the cache, less where nothing stays outside."""
        asked = self.question.engine.gpu_memory_utilization
        tried: Sequence[float] = ()
        if self.faults & {"headroom", "free_memory"}:
            tried = [share for share in _LESS if asked is None or share < asked]
        elif "kv_cache" in self.faults:
            tried = [share for share in _MORE if share > (asked or 0.0)]
        for share in tried:
            changed = _with(self.question, gpu_memory_utilization=share)
            if self._answers(changed):
                yield self._change(changed, "gpu_memory_utilization", f"{share:g}")
                return

    def smaller_steps(self) -> Iterator[Change]:
        """Yield smaller profiling steps, which leave more for the cache."""
        if not self.faults & {"kv_cache", "batched_seqs", "batched_tokens"}:
            return
        seqs = min(self.question.engine.max_num_seqs or _SEQS, _SEQS)
        changed = _with(self.question, max_num_seqs=seqs, max_num_batched_tokens=_TOKENS)
        if self._answers(changed):
            beside = f" --max-num-batched-tokens {_TOKENS}"
            yield self._change(changed, "max_num_seqs", seqs, beside)

    def types(self) -> Iterator[Change]:
        """Yield types that the card computes in."""
        for fault, sets, value in (
            ("dtype", "dtype", "half"),
            ("kv_cache_dtype", "kv_cache_dtype", "auto"),
        ):
            changed = _with(self.question, **{sets: value})
            if fault in self.faults and self._answers(changed):
                yield self._change(changed, sets, value)

    def more_gpus(self) -> Iterator[Change]:
        """Yield the GPUs that the split asks for, where a node may hold them."""
        engine, place = self.relaxed.engine, self.relaxed.place
        world = engine.tensor_parallel * engine.pipeline_parallel * engine.data_parallel
        per_node = -(-world // place.n_nodes)
        if "world_size" not in self.faults or per_node > _MOST_GPUS:
            return
        held = replace(place, n_gpus=per_node, gpus_per_node=per_node)
        changed = replace(self.relaxed, place=held)
        if self._answers(changed):
            yield self._change(changed, "gpus", world, self.beside)

    def splits(self) -> Iterator[Change]:
        """Yield whole experts, then the nearest TP within the GPUs held and beyond them."""
        question = self.relaxed
        model, engine = question.model, question.engine
        if model is not None and model.experts is not None and "quantization_block" in self.faults:
            changed = _with(question, expert_parallel=True)
            if self._answers(changed):
                yield self._change(changed, "enable_expert_parallel", "", self.beside)
        heads = question.heads if model is None else model.heads
        visible = question.place.n_gpus or question.place.gpus_per_node or _MOST_GPUS
        degrees = [
            d for d in divisors(heads or 1) if d <= _MOST_GPUS and d != engine.tensor_parallel
        ]
        held = sorted((d for d in degrees if d <= visible), key=self._distance)
        yield from self._first_degree(held)
        yield from self._first_degree([d for d in degrees if d > visible])

    def _distance(self, degree: int) -> tuple[int, int]:
        return abs(degree - self.question.engine.tensor_parallel), -degree

    def _first_degree(self, degrees: Sequence[int]) -> Iterator[Change]:
        for degree in degrees:
            changed = _with(self.relaxed, tensor_parallel=degree)
            visible = self.relaxed.place.n_gpus
            beyond = ""
            if visible is not None and degree > visible:
                place = replace(self.relaxed.place, n_gpus=degree, gpus_per_node=degree)
                changed, beyond = replace(changed, place=place), f" on {degree} GPUs"
            offer = self._offer(changed, "tensor_parallel_size", degree, beyond)
            if offer is not None:
                yield offer
                return

    def other_weights(self) -> Iterator[Change]:
        """Yield files of the same model whose weights are stored otherwise."""
        found = 0
        for sibling in self.question.siblings:
            changed = replace(_with(self.relaxed, quantization=None), model=sibling)
            offer = self._offer(changed, "model", sibling.id)
            if offer is not None:
                yield offer
                found += 1
            if found == _N_SIBLINGS:
                return

    def other_cards(self) -> Iterator[Change]:
        """Yield the smallest cards on which the same command starts."""
        gpu, found = self.question.gpu, 0
        if gpu is None:
            return
        larger = self.faults <= {"weights", "kv_cache", "headroom", "free_memory"}
        offered = {(gpu.mem_gib, gpu.capability), (gpu.mem_gib, None)}
        for card in sorted(self.question.cards, key=_memory):
            alike = (card.mem_gib, card.capability)
            if alike in offered or card.capability is None:
                continue
            if larger and card.mem_gib <= gpu.mem_gib:
                continue
            changed = replace(self.relaxed, gpu=card)
            if self._answers(changed):
                yield self._change(changed, "gpu", card.id, self.beside)
                offered.add(alike)
                found += 1
            if found == _N_CARDS:
                return

    def _offer(
        self, changed: Question, sets: str, value: object, beyond: str = ""
    ) -> Change | None:
        """Return a change that starts, if need be with a shorter context beside it."""
        if self._answers(changed):
            return self._change(changed, sets, value, self.beside + beyond)
        answer = judge(changed, self.coefficients)
        longest = answer.max_model_len_that_fits or 0
        if _faults(answer) != {"kv_cache"} or longest < _SHORTEST_BESIDE:
            return None
        length = self._longest_starting(changed, longest, _SHORTEST_BESIDE)
        if length is None:
            return None
        beside = f" --max-model-len {length}{self.beside}{beyond}"
        return self._change(_with(changed, max_model_len=length), sets, value, beside)

    def _answers(self, changed: Question) -> bool:
        return self._state(changed) is not None

    def _state(self, changed: Question) -> Starts | None:
        """Return starts, unsure where only memory could not be judged, None for anything else."""
        answer = judge(changed, self.coefficients)
        if answer.verdict is Starts.STARTS:
            return Starts.STARTS
        blind = answer.verdict is Starts.UNSURE and None in {changed.gpu, changed.model}
        return Starts.UNSURE if blind and _faults(answer) <= {"card"} else None

    def _change(self, changed: Question, sets: str, value: object, beside: str = "") -> Change:
        option = f"--{sets.replace('_', '-')} "
        said = {"model": "the model ", "gpu": "the card ", "gpus": "GPUs of the job: "}
        return Change(
            sets=sets,
            value=str(value),
            text=f"{said.get(sets, option)}{value}".rstrip() + beside,
            starts=self._state(changed) or Starts.UNSURE,
        )


def _with(question: Question, **options: object) -> Question:
    return replace(question, engine=replace(question.engine, **options))  # type: ignore[arg-type]


def _faults(report: LaunchReport) -> set[str]:
    return {check.id for check in report.checks if check.ok is not Starts.STARTS}


def _rounded(length: int) -> int:
    return length // _ROUND * _ROUND if length > _ROUND else length


def _memory(card: GpuFacts) -> tuple[float, str]:
    return card.mem_gib, card.id
