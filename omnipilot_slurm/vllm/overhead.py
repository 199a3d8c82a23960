"""Start-up memory that is neither weights nor cache: activations, CUDA graphs, non-torch.

In: the model's widths, what one profiling step runs (tokens, sequences), the fitted coefficients
of etc/startup.yaml. Out: intervals in GiB. Called by `memory`.

A profiling step allocates three large sets of tensors, one after the other: the vision encoder's,
the forward pass of all batched tokens, and the sampler's, one row of logits a sequence. They do not
overlap, so the peak is the largest of them; the encoder's outputs are held during the other two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm.encoder import NO_ENCODING
from omnipilot_slurm.vllm.patches import encoder_bytes, patch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import Interval
    from omnipilot_slurm.vllm.encoder import Batch, Encoded, Encoding
    from omnipilot_slurm.vllm.patches import Patch

Triple = tuple[float, float, float]
GIB = 2.0**30
_KIB = 1024.0
_NOTHING: Triple = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EraCoefficients:
    """What was fitted for one era; `_gib` are added, the others multiply.

    `activation_frac` multiplies the computed peak (above 1: the allocator's slack), `sampler_bytes`
    is bytes per (sequence x vocabulary entry), `non_torch_parallel_gib` holds for every GPU of a
    group of two that NVLink joins and grows by `non_torch_per_gpu_gib` for each further one,
    `non_torch_pcie_gib` for every GPU of a group without it.
    """

    sampler_bytes: Interval
    activation_frac: Interval
    non_torch_gib: Interval
    non_torch_parallel_gib: Interval
    non_torch_per_gpu_gib: Interval
    non_torch_pcie_gib: Interval
    graphs_gib: Interval
    graphs_per_layer_gib: Interval


@dataclass(frozen=True, kw_only=True)
class StartupCoefficients:
    """What was fitted on public start-up figures (etc/startup.yaml).

    `weights_frac` is loaded over computed weights, `plain_weights_frac` the same of 16-bit models
    without experts, `hidden_copies` the rows of width `hidden` that a forward pass holds per token,
    `encoder_kib` what a tower that is not known holds per token it encodes, `encoder_tokens` how
    many it encodes, `context_gib` the CUDA context, `draft_frac` what a draft model adds to the
    weights at most.
    """

    weights_frac: Interval
    plain_weights_frac: Interval
    hidden_copies: Interval
    encoder_kib: Interval
    encoder_tokens: Interval
    context_gib: Interval
    draft_frac: float
    eras: Mapping[str, EraCoefficients] = field(hash=False)

    @cached_property
    def numbers(self) -> Mapping[str, EraNumbers]:
        """The coefficients of every era as plain numbers, which a verdict reads many times."""
        return {
            name: EraNumbers(
                sampler=_triple(era.sampler_bytes),
                frac=_triple(era.activation_frac),
                copies=_triple(self.hidden_copies),
                encoder=_triple(self.encoder_kib),
                encoded=_triple(self.encoder_tokens),
                alone=_triple(era.non_torch_gib),
                parallel=_triple(era.non_torch_parallel_gib),
                per_gpu=_triple(era.non_torch_per_gpu_gib),
                graphs=_triple(era.graphs_gib),
                per_layer=_triple(era.graphs_per_layer_gib),
            )
            for name, era in self.eras.items()
        }

    @cached_property
    def numbers_over_pcie(self) -> Mapping[str, EraNumbers]:
        """The same of cards that exchange over PCIe."""
        return {
            name: replace(
                numbers, parallel=_triple(self.eras[name].non_torch_pcie_gib), per_gpu=_NOTHING
            )
            for name, numbers in self.numbers.items()
        }


class Step(NamedTuple):
    """What a profiling step runs, by the least and the most that the versions in question do.

    `encoding` is what goes through a tower, None where the model has one that is not known.
    """

    least: Batch
    usual: Batch
    most: Batch
    encoding: Encoding | None = NO_ENCODING


class Widths(NamedTuple):
    """The widths of one GPU's tensors, in elements a token; `tower` what an encoder's patch is."""

    hidden: int
    vocab: int
    layer: float
    parallel: bool
    dtype_bytes: float
    tower: Patch | None = None


def widths(
    model: ModelFacts, tensor_parallel: int, dtype_bytes: float, *, whole_tower: bool = False
) -> Widths:
    """Return the widths that TP leaves on one GPU; `whole_tower`: its tower is not cut."""
    tower = model.tower
    return Widths(
        hidden=model.hidden,
        vocab=model.vocab,
        layer=_layer_width(model, tensor_parallel),
        parallel=tensor_parallel > 1,
        dtype_bytes=dtype_bytes,
        tower=None
        if tower is None
        else patch_of(tower, 1 if whole_tower else tensor_parallel, tensor_parallel, dtype_bytes),
    )


def _layer_width(model: ModelFacts, tensor_parallel: int) -> float:
    """Return the widest layer's elements a token: gate, up and their product, or the experts'."""
    dense = 3.0 * model.intermediate / tensor_parallel
    if model.experts is None:
        return dense
    inner = model.experts.intermediate / tensor_parallel
    routed = model.experts.n_active * (max(2 * inner, model.hidden) + inner)
    return max(dense, routed)


class Overhead(NamedTuple):
    """GiB as (lo, mid, hi) triples: plain numbers, since a verdict sums many of them.

    `off` is what comes off the cache without the graphs, `off_with_graphs` with them: the sum of
    the middles, and the sums of the squared distances of the upper and of the lower bounds.
    """

    activation: Triple
    graphs: Triple
    non_torch: Triple
    off: Triple
    off_with_graphs: Triple


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EraNumbers:
    """An era's coefficients as triples, with the common ones that go with them.

    Compared by identity: it is a part of a key that every verdict hashes.
    """

    sampler: Triple
    frac: Triple
    copies: Triple
    encoder: Triple
    encoded: Triple
    alone: Triple
    parallel: Triple
    per_gpu: Triple
    graphs: Triple
    per_layer: Triple


def _triple(interval: Interval) -> Triple:
    return interval.lo, interval.mid, interval.hi


@lru_cache(maxsize=4096)
def overhead(
    wide: Widths, step: Step, n_gpus: int, n_layers: float | None, era: EraNumbers
) -> Overhead:
    """Return what a server of `n_gpus` holds besides; `n_layers` None: no CUDA graphs."""
    graphs = _NOTHING if n_layers is None else _grown(era.graphs, era.per_layer, n_layers)
    activation, other = _activation(wide, step, era), era.alone
    if n_gpus > 1:
        other = _grown(era.parallel, era.per_gpu, n_gpus - 2.0)
    return Overhead(
        activation=activation,
        graphs=graphs,
        non_torch=other,
        off=_off(activation, other),
        off_with_graphs=_off(activation, other, graphs),
    )


def _off(*parts: Triple) -> Triple:
    """Return the sum of the middles, of the squared spreads above and of those below."""
    return (
        sum(mid for _, mid, _ in parts),
        sum((hi - mid) ** 2 for _, mid, hi in parts),
        sum((mid - lo) ** 2 for lo, mid, _ in parts),
    )


def _grown(base: Triple, each: Triple, n: float) -> Triple:
    return base[0] + n * each[0], base[1] + n * each[1], base[2] + n * each[2]


def _activation(wide: Widths, step: Step, era: EraNumbers) -> Triple:
    """Return the peak of a profiling step: encoder, forward pass or sampler, whichever is most."""
    if step.encoding is None:
        return _with_unknown_tower(wide, step, era)
    encoding = step.encoding
    return (
        min([_peak(wide, encoded, step.least, era, 0) for encoded in encoding.least]),
        _peak(wide, encoding.usual, step.usual, era, 1),
        max([_peak(wide, encoded, step.most, era, 2) for encoded in encoding.most]),
    )


def _peak(wide: Widths, encoded: Encoded, batch: Batch, era: EraNumbers, bound: int) -> float:
    """Return the peak in GiB by the lower bound, the middle or the upper bound of coefficients."""
    tokens, seqs = batch.tokens, batch.seqs
    if encoded.seqs is not None:
        tokens, seqs = max(tokens, encoded.tokens), min(seqs, encoded.seqs)
    text = _language_bytes(wide, tokens, seqs, era, bound)
    if not encoded.patches or wide.tower is None:
        return text * era.frac[bound] / GIB
    seen = encoder_bytes(wide.tower, encoded, bound) + encoded.deep * wide.dtype_bytes
    held = encoded.outputs * wide.dtype_bytes
    return max(held + text, seen) * era.frac[bound] / GIB


def _language_bytes(wide: Widths, tokens: int, seqs: int, era: EraNumbers, bound: int) -> float:
    """Return the larger of the forward pass and the sampler."""
    states = tokens * wide.hidden * wide.dtype_bytes
    rows = era.copies[bound] + (1.0 if wide.parallel else 0.0)
    forward = tokens * wide.dtype_bytes * (wide.layer + rows * wide.hidden)
    return max(forward, min(seqs, tokens) * wide.vocab * era.sampler[bound] + states)


def _with_unknown_tower(wide: Widths, step: Step, era: EraNumbers) -> Triple:
    """Return the peak where a tower's widths are not known: of nothing, of some, of many tokens."""
    batches = enumerate((step.least, step.usual, step.most))
    text = [_language_bytes(wide, b.tokens, b.seqs, era, bound) for bound, b in batches]
    peaks = [text[0]]
    for bound, tokens in ((1, step.usual.tokens), (2, step.most.tokens)):
        held = tokens * wide.hidden * wide.dtype_bytes
        seen = max(era.encoded[bound], tokens) * _KIB * era.encoder[bound]
        peaks.append(held + max(text[bound], seen))
    lo, mid, hi = (peak * frac / GIB for peak, frac in zip(peaks, era.frac, strict=True))
    return lo, mid, hi
