"""Whether weights, cache and the rest fit: the plans of all eras in question, as checks.

In: the MemoryPlan over all eras in question, what each leaves. Out: Checks. Called by `launch`. A
failure is certain where every era fails by its most favourable value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import by_version, outcome
from omnipilot_slurm.vllm.eras import VERSIONS_OF
from omnipilot_slurm.vllm.grammar import since
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.facts import GpuFacts
    from omnipilot_slurm.records import Interval
    from omnipilot_slurm.vllm.memory import Left
    from omnipilot_slurm.vllm.report import Check, MemoryPlan

#: from this share on CUDA graphs and NCCL may lack the room outside the budget
_LITTLE_HEADROOM = 0.98
#: below it what is outside the budget held the graphs in every public report
_LOOK_AT_HEADROOM = 0.955
#: how sure an interval can be of either outcome
_SUREST = 0.98
_FITTED_ON = "nvidia"
_COMPARES_FREE_MEMORY = since("0.9.1")


def weights_check(plan: MemoryPlan, load_peak_gib: float) -> Check:
    """Return whether the weights alone fit the card; `load_peak_gib`: the most while they load."""
    weights, total = plan.weights, plan.total
    text = f"the weights take {weights.mid:.1f} GiB per GPU, the card has {total.mid:.1f}"
    if weights.lo > total.hi:
        state = Starts.FAILS
    elif load_peak_gib > total.lo:
        state = Starts.UNSURE
    else:
        state = Starts.STARTS if weights.hi <= total.lo else Starts.UNSURE
    return outcome("weights", CheckKind.MEMORY, state, text)


def cache_check(plan: MemoryPlan, eras: Sequence[Left], length: int) -> Check:
    """Return whether one request of full length fits what is left for the cache."""
    states = [cache_state(left) for left in eras]
    state = states[0] if len(set(states)) == 1 else Starts.UNSURE
    need = "the context is what fits"
    if length:
        need = f"one request of {length} tokens needs {plan.kv_need.mid:.2f} GiB"
    text = (
        f"of {plan.budget.mid:.1f} GiB per GPU, {plan.weights.mid:.1f} of weights,"
        f" {plan.activation.mid:.1f} of activations and {plan.non_torch.mid:.1f} of the rest"
        f" leave {_room(plan.kv)} for the cache; {need}"
    )
    refused_in = _failing(eras, states) if state is Starts.UNSURE else 0
    return outcome("kv_cache", CheckKind.MEMORY, state, text, refused_in)


def _failing(eras: Sequence[Left], states: Sequence[Starts]) -> int:
    """Return the bits of the versions in which every era that they may belong to fails."""
    failing = passing = 0
    for left, state in zip(eras, states, strict=True):
        if state is Starts.FAILS:
            failing |= VERSIONS_OF[left.engine.era]
        else:
            passing |= VERSIONS_OF[left.engine.era]
    return failing & ~passing


def _room(kv: Interval) -> str:
    """Return what is left, in words; less than nothing is nothing."""
    if kv.hi <= 0:
        return "nothing"
    return f"{kv.lo:.1f} to {kv.hi:.1f} GiB" if kv.lo > 0 else f"at most {kv.hi:.1f} GiB"


def cache_state(left: Left) -> Starts:
    """Return what one era says: fails and starts leave no doubt within the interval."""
    low, _, high = left.kv
    if high <= 0 or high < left.need:
        return Starts.FAILS
    return Starts.STARTS if low > 0 and low >= left.need else Starts.UNSURE


def p_cache(eras: Sequence[Left]) -> float:
    """Return the mean over eras of the share of the interval in which one request fits."""
    shares = []
    for left in eras:
        low, mid, high = left.kv
        need = max(left.need, 0.0)
        share = (high - need) / (high - low) if high > low else float(mid >= need)
        shares.append(min(max(share, 1 - _SUREST), _SUREST))
    return sum(shares) / len(shares)


def headroom_check(plan: MemoryPlan, utilization: float, context: Interval) -> Check | None:
    """Return whether what is outside the budget holds the CUDA context and the graphs."""
    if utilization < _LOOK_AT_HEADROOM:
        return None
    outside, graphs = plan.free.mid, plan.cuda_graphs.hi
    text = (
        f"utilization {utilization:g} leaves {outside:.2f} GiB for the CUDA context"
        f" ({context.lo:.1f} to {context.hi:.1f}) and up to {graphs:.1f} of graphs"
    )
    tight = utilization >= _LITTLE_HEADROOM or context.hi + graphs > outside
    return outcome("headroom", CheckKind.MEMORY, Starts.UNSURE if tight else Starts.STARTS, text)


def share_check(utilization: float | None) -> Check | None:
    """Return whether the share is one, None where it is left to vLLM or in order."""
    if utilization is None or 0 < utilization <= 1:
        return None
    text = f"gpu_memory_utilization must be above 0 and at most 1, was {utilization:g}"
    return outcome("utilization", CheckKind.MEMORY, Starts.FAILS, text)


def free_memory_check(
    plan: MemoryPlan, utilization: float, context: Interval, here: int
) -> Check | None:
    """Return whether the share asked for is free once the CUDA context exists."""
    total = plan.total
    if total.mid * (1 - utilization) > context.hi:
        return None
    text = (
        f"utilization {utilization:g} asks for {total.mid * utilization:.2f} GiB,"
        f" {total.mid - context.mid:.2f} of {total.mid:.2f} are free beside the CUDA context"
    )
    refused = _COMPARES_FREE_MEMORY & here
    if total.mid * (1 - utilization) >= context.lo:
        state = Starts.UNSURE if refused else Starts.STARTS
        return outcome("free_memory", CheckKind.MEMORY, state, text)
    return by_version("free_memory", CheckKind.MEMORY, refused, here, text)


def vendor_check(gpu: GpuFacts) -> Check | None:
    """Return a doubt about cards whose start-up memory no figure was fitted on."""
    if gpu.vendor == _FITTED_ON:
        return None
    text = f"start-up memory is fitted on {_FITTED_ON} cards, {gpu.name} is by {gpu.vendor}"
    return outcome("vendor", CheckKind.MEMORY, Starts.UNSURE, text)


def shared_check(utilization: float) -> Check:
    """Return whether another server on the same GPUs leaves the share asked for."""
    text = f"another server of the job runs on the same GPUs, each may take {utilization:g}"
    state = Starts.UNSURE if utilization > 1 / 2 else Starts.STARTS
    return outcome("free_memory", CheckKind.MEMORY, state, text)
