"""Start-up memory that is neither weights nor cache: activations, CUDA graphs, non-torch.

In: the model's widths, what one profiling step runs (tokens and sequences), the fitted
coefficients of etc/startup.yaml. Out: intervals in GiB. Called by `memory`.

The profiling step allocates its largest tensors twice: in the forward pass of all batched tokens
and in the sampler, which sorts one row of logits per sequence. They do not overlap, so the peak is
the larger of the two (docs/fit.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Interval

if TYPE_CHECKING:
    from omnipilot_slurm.facts import ModelFacts

GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupCoefficients:
    """What was fitted on public start-up figures; intervals are multipliers unless named _gib.

    `sampler_bytes` are bytes per (sequence x vocabulary entry) at the sampler's peak,
    `hidden_copies` how many rows of width `hidden` the forward pass holds per token.
    """

    weights_frac: Interval
    sampler_bytes: Interval
    hidden_copies: Interval
    activation_gib: Interval
    tower_activation_gib: Interval
    graphs_gib: Interval
    graphs_per_layer_gib: Interval
    non_torch_gib: Interval
    non_torch_parallel_gib: Interval
    context_gib: Interval


def sampler_gib(model: ModelFacts, n_seqs: int, coefficients: StartupCoefficients) -> Interval:
    """Return the sampler's peak: every sequence's logits with their sort and softmax copies."""
    return coefficients.sampler_bytes.scaled(n_seqs * model.vocab / GIB)


def forward_gib(
    model: ModelFacts,
    n_tokens: int,
    tensor_parallel: int,
    dtype_bytes: float,
    coefficients: StartupCoefficients,
) -> Interval:
    """Return the forward pass's peak: the widest layer's tensors for all tokens of a step."""
    width = 3.0 * _mlp_width(model, tensor_parallel)
    per_token = n_tokens * dtype_bytes / GIB
    copies = coefficients.hidden_copies
    return Interval(
        lo=per_token * (width + copies.lo * model.hidden),
        mid=per_token * (width + copies.mid * model.hidden),
        hi=per_token * (width + copies.hi * model.hidden),
    )


def _mlp_width(model: ModelFacts, tensor_parallel: int) -> float:
    dense = model.intermediate / tensor_parallel
    if model.experts is None:
        return dense
    return max(dense, model.experts.n_active * model.experts.intermediate / tensor_parallel)


def larger(first: Interval, second: Interval) -> Interval:
    """Return the interval of the larger of two values."""
    return Interval(
        lo=max(first.lo, second.lo), mid=max(first.mid, second.mid), hi=max(first.hi, second.hi)
    )
