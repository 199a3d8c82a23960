"""The key-value cache: what a token costs on one GPU and what one request of full length takes.

In: ModelFacts, the split over GPUs, the cache's type. Out: bytes. Called by the memory plan and by
the features of the cost model. Formulas and their versions: docs/fit.md.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from omnipilot_slurm.facts import ModelFacts

#: bytes of one cached element by --kv-cache-dtype; "auto" is the activations' type
CACHE_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_ds_mla": 1.0,
    "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "nvfp4": 0.5625,
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
}
#: bytes of a latent token in the packed layout of sparse-attention models
_FP8_DS_MLA_BYTES = 656.0
#: bytes per head and token of the two 32-bit scales of the per-token-head types
_SCALE_BYTES = 8.0


class KvShape(NamedTuple):
    """What one GPU caches: bytes per token of its full and sliding layers, bytes per sequence.

    `full` and `sliding` sum over the layers that the GPU holds; `state` is what a sequence takes
    whatever its length (recurrent layers). The window is in tokens.
    """

    full: float
    sliding: float
    window: int | None
    state: float


def kv_heads_per_gpu(model: ModelFacts, tensor_parallel: int) -> int:
    """Return the KV heads that one GPU holds: divided by TP, copied once TP exceeds them."""
    return max(1, model.kv_heads // tensor_parallel)


def kv_shape(
    model: ModelFacts,
    *,
    tensor_parallel: int,
    pipeline_parallel: int,
    kv_cache_dtype: str,
    dtype_bytes: float,
    context_parallel: int = 1,
) -> KvShape:
    """Return what the GPU with the most layers caches; context parallelism divides full layers."""
    full, sliding = _bytes_per_token(model, tensor_parallel, kv_cache_dtype, dtype_bytes)
    stage = ceil(model.layers / pipeline_parallel) / model.layers
    n_full = model.layers - model.n_sliding_layers - model.n_state_layers
    return KvShape(
        full=full * n_full * stage / context_parallel,
        sliding=sliding * model.n_sliding_layers * stage,
        window=model.sliding_window,
        state=model.state_bytes_per_layer * model.n_state_layers * stage / tensor_parallel,
    )


def whole_heads(
    model: ModelFacts, *, tensor_parallel: int, pipeline_parallel: int, element: float
) -> float:
    """Return the bytes a token takes for each unit of head_dim where no latent is cached.

    Old versions cache keys and values of all heads of a model with latent attention.
    """
    n_layers = ceil(model.layers / pipeline_parallel)
    return 2 * (model.heads / tensor_parallel) * element * n_layers


def _bytes_per_token(
    model: ModelFacts, tensor_parallel: int, kv_cache_dtype: str, dtype_bytes: float
) -> tuple[float, float]:
    """Return the bytes that a full and a sliding layer cache for one token on one GPU."""
    element = CACHE_BYTES.get(kv_cache_dtype, dtype_bytes)
    if model.mla is not None:
        latent = (model.mla.kv_lora_rank + model.mla.qk_rope_head_dim) * element
        if kv_cache_dtype == "fp8_ds_mla":
            latent = _FP8_DS_MLA_BYTES
        layer = latent + model.extra.get("index_head_dim", 0.0)
        return layer, layer
    scales = _SCALE_BYTES if kv_cache_dtype.endswith("per_token_head") else 0.0
    heads = kv_heads_per_gpu(model, tensor_parallel)
    v_head_dim = model.extra.get("v_head_dim", model.head_dim)
    full = heads * ((model.head_dim + v_head_dim) * element + scales)
    if "sliding_kv_heads" not in model.extra and "sliding_head_dim" not in model.extra:
        return full, full
    sliding_heads = max(1.0, model.extra.get("sliding_kv_heads", model.kv_heads) // tensor_parallel)
    sliding_dim = model.extra.get("sliding_head_dim", model.head_dim)
    return full, sliding_heads * (2 * sliding_dim * element + scales)


def request_bytes(
    shape: KvShape, length: int, *, block_size: int, n_batched_tokens: int, hybrid: bool
) -> float:
    """Return what one request of `length` tokens takes, in whole blocks.

    A sliding layer holds its window and the batch being prefilled, from whichever place in a block
    the window starts; without the hybrid manager (`hybrid` False) it is cached like a full one.
    """
    full_tokens = -(-length // block_size) * block_size
    if not hybrid or shape.window is None:
        return full_tokens * (shape.full + shape.sliding) + shape.state
    held = min(shape.window - 1 + n_batched_tokens, length)
    sliding_tokens = (-(-held // block_size) + 1) * block_size
    return full_tokens * shape.full + sliding_tokens * shape.sliding + shape.state


def longest_request(
    shape: KvShape,
    available: float,
    limit: int,
    *,
    block_size: int,
    n_batched_tokens: int,
    hybrid: bool,
) -> int:
    """Return the longest length <= limit whose request fits `available` bytes, in tokens."""
    whole = request_bytes(
        shape, limit, block_size=block_size, n_batched_tokens=n_batched_tokens, hybrid=hybrid
    )
    if limit <= 0 or whole <= available:
        return max(limit, 0)
    room = available - shape.state
    if not hybrid or shape.window is None:
        return _whole_blocks(room, shape.full + shape.sliding, block_size, limit)
    window = shape.window - 1 + n_batched_tokens
    held = (-(-window // block_size) + 1) * block_size * shape.sliding
    longest = _whole_blocks(room - held, shape.full, block_size, limit)
    if longest >= window:
        return longest
    room -= block_size * shape.sliding
    return min(_whole_blocks(room, shape.full + shape.sliding, block_size, limit), window)


def _whole_blocks(room: float, bytes_per_token: float, block_size: int, limit: int) -> int:
    """Return the tokens of the blocks that fit, fewer than `limit`, which does not."""
    if room < 0:
        return 0
    if bytes_per_token <= 0:
        return limit
    return min(int(room // (bytes_per_token * block_size)) * block_size, limit)
