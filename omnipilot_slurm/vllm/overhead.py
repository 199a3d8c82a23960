"""Start-up memory that is neither weights nor cache: activations, CUDA graphs, non-torch.

In: the model's widths, what one profiling step runs (tokens, sequences), the fitted coefficients
of etc/startup.yaml. Out: intervals in GiB. Called by `memory`.

A profiling step allocates three large sets of tensors, one after the other: the vision or audio
encoder's, the forward pass of all batched tokens, and the sampler's, one row of logits a sequence.
They do not overlap, so the peak is the largest of them (docs/fit.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.facts import ModelFacts

GIB = 2.0**30
ZERO = Interval(lo=0.0, mid=0.0, hi=0.0)
_KIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EraCoefficients:
    """What was fitted for one era; `_gib` are added, the others multiply.

    `activation_frac` multiplies the computed peak (above 1: the allocator's slack), `sampler_bytes`
    is bytes per (sequence x vocabulary entry), `non_torch_parallel_gib` holds for every GPU of a
    group of two and grows by `non_torch_per_gpu_gib` for each further one.
    """

    sampler_bytes: Interval
    activation_frac: Interval
    non_torch_gib: Interval
    non_torch_parallel_gib: Interval
    non_torch_per_gpu_gib: Interval
    graphs_gib: Interval
    graphs_per_layer_gib: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupCoefficients:
    """What was fitted on public start-up figures (etc/startup.yaml).

    `weights_frac` is loaded over computed weights, `hidden_copies` the rows of width `hidden` that
    a forward pass holds per token, `encoder_kib` what a tower holds per token it encodes,
    `encoder_tokens` how many it encodes at most, `context_gib` the CUDA context, `draft_frac` what
    a draft model adds to the weights at most.
    """

    weights_frac: Interval
    hidden_copies: Interval
    encoder_kib: Interval
    encoder_tokens: Interval
    context_gib: Interval
    draft_frac: float
    eras: Mapping[str, EraCoefficients]


class Step(NamedTuple):
    """What a profiling step runs, by the least and the most that the versions in question do.

    `encoded` is the tokens whose encoder output is held meanwhile, `encoded_width` its width.
    """

    tokens: int
    tokens_lo: int
    tokens_hi: int
    seqs: int
    seqs_lo: int
    seqs_hi: int
    encoded: int = 0
    encoded_width: int = 0


class Widths(NamedTuple):
    """The widths of one GPU's tensors, in elements a token; `tower` whether there is an encoder."""

    hidden: int
    vocab: int
    layer: float
    parallel: bool
    tower: bool
    dtype_bytes: float


def widths(model: ModelFacts, tensor_parallel: int, dtype_bytes: float) -> Widths:
    """Return the widths that TP leaves on one GPU."""
    return Widths(
        hidden=model.hidden,
        vocab=model.vocab,
        layer=_layer_width(model, tensor_parallel),
        parallel=tensor_parallel > 1,
        tower=model.tower_params > 0,
        dtype_bytes=dtype_bytes,
    )


def _layer_width(model: ModelFacts, tensor_parallel: int) -> float:
    """Return the widest layer's elements a token: gate, up and their product, or the experts'."""
    dense = 3.0 * model.intermediate / tensor_parallel
    if model.experts is None:
        return dense
    inner = model.experts.intermediate / tensor_parallel
    routed = model.experts.n_active * (max(2 * inner, model.hidden) + inner)
    return max(dense, routed)


@lru_cache(maxsize=4096)
def _activation(
    wide: Widths,
    step: Step,
    bounds: tuple[tuple[float, float, float], ...],
) -> tuple[float, float, float]:
    sampler, frac, copies, encoder, encoded = bounds
    peaks = []
    for i, (tokens, seqs) in enumerate(
        ((step.tokens_lo, step.seqs_lo), (step.tokens, step.seqs), (step.tokens_hi, step.seqs_hi))
    ):
        held = step.encoded * step.encoded_width * wide.dtype_bytes if i else 0.0
        states = tokens * wide.hidden * wide.dtype_bytes
        rows = copies[i] + (1.0 if wide.parallel else 0.0)
        forward = tokens * wide.dtype_bytes * (wide.layer + rows * wide.hidden)
        sampled = min(seqs, tokens) * wide.vocab * sampler[i] + states
        seen = max(encoded[i], tokens if i else 0.0) * _KIB * encoder[i] if wide.tower else 0.0
        peaks.append((held + max(forward, sampled, seen)) * frac[i] / GIB)
    return peaks[0], peaks[1], peaks[2]


def activation_gib(
    wide: Widths, step: Step, era: EraCoefficients, coefficients: StartupCoefficients
) -> Interval:
    """Return the peak of a profiling step beside weights and cache."""
    bounds = (
        era.sampler_bytes,
        era.activation_frac,
        coefficients.hidden_copies,
        coefficients.encoder_kib,
        coefficients.encoder_tokens,
    )
    lo, mid, hi = _activation(wide, step, tuple((b.lo, b.mid, b.hi) for b in bounds))
    return Interval(lo=lo, mid=mid, hi=hi)


def graphs_gib(n_layers: float, era: EraCoefficients) -> Interval:
    """Return what the CUDA graphs of `n_layers` layers take."""
    return era.graphs_gib + era.graphs_per_layer_gib.scaled(n_layers)


def non_torch_gib(n_gpus: int, era: EraCoefficients) -> Interval:
    """Return what is not torch's on each of `n_gpus` that run one engine: NCCL, workspaces."""
    if n_gpus == 1:
        return era.non_torch_gib
    return era.non_torch_parallel_gib + era.non_torch_per_gpu_gib.scaled(n_gpus - 2.0)
