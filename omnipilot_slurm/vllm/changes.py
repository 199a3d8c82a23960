"""The smallest changes that make a server start, each verified by the verdict it changes.

In: a Question and its report. Out: Changes, the least intrusive first: shorter context, no videos,
memory share, step sizes, types, another split, other weights, another card. Called by
`omnipilot fit`.

A change of one thing may need a shorter context or a smaller share beside it; then its line says
both. Where no card is named, memory is not judged: a change is offered when it removes what fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.parallel import divisors
from omnipilot_slurm.vllm.eras import in_question
from omnipilot_slurm.vllm.fit import judge
from omnipilot_slurm.vllm.grammar import before
from omnipilot_slurm.vllm.longest import length_limit, likely_length
from omnipilot_slurm.vllm.planned import memory_of
from omnipilot_slurm.vllm.search import (
    ENOUGH_OUTSIDE,
    MEMORY,
    SHARE,
    Search,
    faults_of,
    rounded,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnipilot_slurm.facts import GpuFacts, ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.fit import Question
    from omnipilot_slurm.vllm.overhead import StartupCoefficients
    from omnipilot_slurm.vllm.report import LaunchReport
    from omnipilot_slurm.vllm.search import Change

#: shares to try: a little more than the default, and where too much is asked a little less
_MORE = (0.92, 0.95)
_LESS = (ENOUGH_OUTSIDE, 0.9)
_SEQS = 128
_TOKENS = 2048
#: the shortest context worth an offer
_SHORTEST = 512
_MOST_GPUS = 8
_N_CARDS = 2
_NO_VIDEO = '{"video": 0}'
_NO_JSON = before("0.8.5")
_N_SIBLINGS = 2
#: what no shorter context cures
_BEYOND_LENGTH = MEMORY - {"kv_cache"}


def smallest_changes(
    question: Question, report: LaunchReport, coefficients: StartupCoefficients
) -> tuple[Change, ...]:
    """Return the changes after which the server starts; nothing where it does already."""
    if not faults_of(report):
        return ()
    search = Search(question, report, coefficients)
    if search.faults == {"card"}:
        return tuple(_which_card(search))
    if question.model is None:
        return (*_fewer_options(search), *_more_gpus(search), *_splits(search))
    return (
        *_fewer_options(search),
        *_shorter_contexts(search),
        *_no_videos(search),
        *_shares(search),
        *_smaller_steps(search),
        *_types(search),
        *_more_gpus(search),
        *_splits(search),
        *_other_weights(search),
        *_other_cards(search),
    )


def _fewer_options(search: Search) -> Iterator[Change]:
    """Yield the options that the version in use does not take, to be left out."""
    wrong = [told for told in search.question.told if told.check.ok is not Starts.STARTS]
    names = sorted({told.option for told in wrong if told.option})
    kept = tuple(told for told in search.question.told if not told.option)
    changed = replace(search.question, told=kept)
    if names and search.starts(changed):
        yield search.change(changed, "leave_out", " ".join(names))
    if "quantization_config" in search.faults:
        changed = with_options(search.relaxed, quantization=None)
        offer = search.offer(changed, "leave_out", "--quantization")
        if offer is not None:
            yield offer


def _shorter_contexts(search: Search) -> Iterator[Change]:
    """Yield the longest context that certainly starts, no longer than the model's own."""
    question, longest = search.question, search.report.max_model_len_that_fits
    limits = []
    if "kv_cache" in search.faults:
        limits.append(longest or 0)
    if "max_model_len" in search.faults and question.model is not None:
        limits.append(question.model.max_model_len or 0)
    if not limits:
        return
    length = search.longest_starting(question, min(limits), _SHORTEST) or _likely(search)
    if length is not None:
        yield search.change(with_options(question, max_model_len=length), "max_model_len", length)


def _likely(search: Search) -> int | None:
    """Return a context that probably starts, for want of one that does for certain."""
    question = search.question
    if question.model is None or question.gpu is None or search.faults & _BEYOND_LENGTH:
        return None
    memory = memory_of(question.model, question.gpu, question.engine, search.coefficients)
    limit = length_limit(question.model, question.engine, search.report.checks)
    length = likely_length(
        question.model,
        question.gpu,
        question.engine,
        search.coefficients,
        memory=memory,
        limit=limit,
    )
    changed = with_options(question, max_model_len=rounded(length))
    if length < _SHORTEST or judge(changed, search.coefficients).verdict is Starts.FAILS:
        return None
    return rounded(length)


def _no_videos(search: Search) -> Iterator[Change]:
    """Yield images only, where the longest video leaves too little for the cache."""
    model, engine = search.question.model, search.question.engine
    if "kv_cache" not in search.faults or engine.mm_limits is not None:
        return
    if model is None or model.tower is None or not _reads_json(model, engine):
        return
    changed = with_options(search.question, mm_limits=_NO_VIDEO)
    offer = search.offer(changed, "limit_mm_per_prompt", f"'{_NO_VIDEO}'")
    if offer is not None:
        yield offer


def _reads_json(model: ModelFacts, engine: EngineArgs) -> bool:
    """Return whether all versions in question take limits of items as JSON."""
    return not in_question(engine.vllm_version, model.architecture) & _NO_JSON


def _shares(search: Search) -> Iterator[Change]:
    """Yield another share of memory: more for the cache, less where nothing stays outside."""
    asked = search.question.engine.gpu_memory_utilization
    tried: Sequence[float] = ()
    if search.faults & SHARE:
        tried = [share for share in _LESS if asked is None or asked <= 0 or share < asked]
    elif "kv_cache" in search.faults:
        tried = [share for share in _MORE if share > (asked or 0.0)]
    for share in tried:
        changed = with_options(search.question, gpu_memory_utilization=share)
        if search.starts(changed):
            yield search.change(changed, "gpu_memory_utilization", f"{share:g}")
            return


def _smaller_steps(search: Search) -> Iterator[Change]:
    """Yield smaller profiling steps, which leave more for the cache."""
    if not search.faults & {"kv_cache", "batched_seqs", "batched_tokens"}:
        return
    seqs = min(search.question.engine.max_num_seqs or _SEQS, _SEQS)
    changed = with_options(search.question, max_num_seqs=seqs, max_num_batched_tokens=_TOKENS)
    if search.starts(changed):
        beside = f" --max-num-batched-tokens {_TOKENS}"
        yield search.change(changed, "max_num_seqs", seqs, beside)


def _types(search: Search) -> Iterator[Change]:
    """Yield types that the card computes in."""
    for fault, sets, value in (
        ("dtype", "dtype", "half"),
        ("kv_cache_dtype", "kv_cache_dtype", "auto"),
    ):
        if fault not in search.faults:
            continue
        offer = search.offer(with_options(search.relaxed, **{sets: value}), sets, value)
        if offer is not None:
            yield offer


def _more_gpus(search: Search) -> Iterator[Change]:
    """Yield the GPUs that the split asks for, where a node may hold them."""
    engine, place = search.relaxed.engine, search.relaxed.place
    world = engine.tensor_parallel * engine.pipeline_parallel * engine.data_parallel
    per_node = -(-world // place.n_nodes)
    if "world_size" not in search.faults or per_node > _MOST_GPUS:
        return
    held = replace(place, n_gpus=per_node, gpus_per_node=per_node)
    changed = replace(search.relaxed, place=held)
    if search.starts(changed):
        yield search.change(changed, "gpus", world, search.beside)


def _splits(search: Search) -> Iterator[Change]:
    """Yield whole experts, then the nearest TP within the GPUs held and beyond them."""
    question = search.relaxed
    model, engine = question.model, question.engine
    if model is not None and model.experts is not None and "quantization_block" in search.faults:
        changed = with_options(question, expert_parallel=True)
        if search.starts(changed):
            yield search.change(changed, "enable_expert_parallel", "", search.beside)
    heads = question.heads if model is None else model.heads
    visible = question.place.n_gpus or question.place.gpus_per_node or _MOST_GPUS
    degrees = [d for d in divisors(heads or 1) if d <= _MOST_GPUS and d != engine.tensor_parallel]
    near = sorted(degrees, key=lambda degree: (abs(degree - engine.tensor_parallel), -degree))
    held = [degree for degree in near if degree <= visible]
    yield from _first_degree(search, held)
    yield from _first_degree(search, [d for d in degrees if d > visible])


def _first_degree(search: Search, degrees: Sequence[int]) -> Iterator[Change]:
    """Yield the first degree that starts, on as many GPUs as it needs."""
    for degree in degrees:
        changed = with_options(search.relaxed, tensor_parallel=degree)
        visible = search.relaxed.place.n_gpus
        beyond = ""
        if visible is not None and degree > visible:
            place = replace(search.relaxed.place, n_gpus=degree, gpus_per_node=degree)
            changed, beyond = replace(changed, place=place), f" on {degree} GPUs"
        offer = search.offer(changed, "tensor_parallel_size", degree, beyond)
        if offer is not None:
            yield offer
            return


def _other_weights(search: Search) -> Iterator[Change]:
    """Yield files of the same model whose weights are stored otherwise."""
    found = 0
    for sibling in search.question.siblings:
        changed = replace(with_options(search.relaxed, quantization=None), model=sibling)
        offer = search.offer(changed, "model", sibling.id)
        if offer is not None:
            yield offer
            found += 1
        if found == _N_SIBLINGS:
            return


def _other_cards(search: Search) -> Iterator[Change]:
    """Yield the smallest cards on which the same command starts."""
    gpu, found = search.question.gpu, 0
    if gpu is None:
        yield from _which_card(search)
        return
    larger = search.faults <= MEMORY
    offered = {(gpu.mem_gib, gpu.capability), (gpu.mem_gib, None)}
    for card in sorted(search.question.cards, key=_memory):
        alike = (card.mem_gib, card.capability)
        if alike in offered or card.capability is None:
            continue
        if larger and card.mem_gib <= gpu.mem_gib:
            continue
        changed = replace(search.relaxed, gpu=card)
        if search.starts(changed):
            yield search.change(changed, "gpu", card.id, search.beside)
            offered.add(alike)
            found += 1
        if found == _N_CARDS:
            return


def _which_card(search: Search) -> Iterator[Change]:
    """Yield the smallest of the cards that a name may mean on which the server starts."""
    for card in sorted(search.question.either, key=_memory):
        changed = replace(search.question, gpu=card, either=())
        if judge(changed, search.coefficients).verdict is Starts.STARTS:
            yield search.change(changed, "gpu", card.id)
            return


def _memory(card: GpuFacts) -> tuple[float, str]:
    return card.mem_gib, card.id
