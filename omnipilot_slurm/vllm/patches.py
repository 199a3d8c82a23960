"""What a vision tower holds per patch while it runs: a lower bound, the usual, an upper bound.

In: a Tower, the GPUs that share it, what a version encodes. Out: bytes. Called by `overhead`.

The tensors of one block of the tower that live at once, counted in vLLM's vision models; the
smaller ones (position tables, sequence offsets) are within 2 %. The lower bound is what any order
of freeing leaves: the pixels, the residual and the normed hidden states, and either the outputs of
the first MLP matrices with their activation, or queries, keys, values and their attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from omnipilot_slurm.facts import Tower
    from omnipilot_slurm.vllm.encoder import Encoded

_RAW_BYTES = 4.0
#: above the counted tensors: other kernels for norms, copies that other kernels of attention make
_SLACK = 1.05
_COPIED_HEADS = 2
_GATED = 3


class Patch(NamedTuple):
    """Bytes of one patch: its pixels, a row of hidden states, a share of one, of the MLP's width.

    `pixels_raw` are its pixels in 32 bits. `head` is a row of the heads of one GPU, all of them
    where TP does not divide them; the `_lo` ones are with the tower cut over all GPUs, the others
    as it is cut here. `n_inner` counts the rows of MLP width that live at once.
    """

    pixels: float
    pixels_raw: float
    hidden: float
    head_lo: float
    head: float
    inner_lo: float
    inner: float
    n_inner: int
    rotary: bool
    normed: bool
    shared: bool
    masked_bytes: float


def patch_of(tower: Tower, cut: int, tensor_parallel: int, dtype_bytes: float) -> Patch:
    """Return a patch's bytes on one GPU; `cut`: the GPUs that share the tower, as it is run."""
    hidden, inner = tower.hidden * dtype_bytes, tower.intermediate * dtype_bytes
    return Patch(
        pixels=tower.patch_values * dtype_bytes,
        pixels_raw=tower.patch_values * _RAW_BYTES,
        hidden=hidden,
        head_lo=hidden / shares_of_heads(tower, tensor_parallel),
        head=hidden / shares_of_heads(tower, cut),
        inner_lo=inner / tensor_parallel,
        inner=inner / cut,
        n_inner=_GATED if tower.gated else 2,
        rotary=tower.rotary,
        normed=tower.normed,
        shared=cut > 1,
        masked_bytes=dtype_bytes if tower.masked else 0.0,
    )


def shares_of_heads(tower: Tower, n_gpus: int) -> int:
    """Return how many GPUs share the tower's heads: one where they do not divide them."""
    return 1 if tower.heads % n_gpus else n_gpus


def encoder_bytes(patch: Patch, encoded: Encoded, bound: int) -> float:
    """Return what the tower holds at its peak; `bound` 0: at least, 1: usually, 2: at most."""
    pixels = patch.pixels + (patch.pixels_raw if encoded.raw else 0.0)
    if bound == 0:
        return encoded.patches * (pixels + _least(patch, encoded))
    usual = encoded.patches * (pixels + _usual(patch, encoded))
    if bound == 1:
        return usual
    copied = encoded.patches * _COPIED_HEADS * patch.head
    return _SLACK * (usual + copied) + patch.masked_bytes * encoded.patches**2


def _least(patch: Patch, encoded: Encoded) -> float:
    n_heads = 7 if patch.normed else 4
    attention = 2 * patch.hidden + n_heads * patch.head_lo
    if encoded.gathers and patch.shared:
        attention = 8 * patch.hidden + 3 * patch.head_lo
    return max(2 * patch.hidden + patch.n_inner * patch.inner_lo, attention)


def _usual(patch: Patch, encoded: Encoded) -> float:
    """Return the larger of the MLP and of attention, between which a block frees its tensors."""
    n_hidden, n_heads = 3, 5
    if patch.rotary:
        n_hidden, n_heads = (3, 11) if encoded.wide_rotation else (4, 8)
    if patch.normed:
        n_hidden, n_heads = 2, 10
    attention = n_hidden * patch.hidden + n_heads * patch.head
    if encoded.gathers and patch.shared:
        attention = max(attention, 8 * patch.hidden + 3 * patch.head)
    n_rows = 5 if patch.n_inner == _GATED else 4
    return max(n_rows * patch.hidden + patch.n_inner * patch.inner, attention)
