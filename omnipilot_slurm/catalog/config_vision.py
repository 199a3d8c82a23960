"""The vision tower that a config.json describes, and the largest image and video it encodes.

In: the Fields of a config.json. Out: a Tower, None for a family that is not known here or a file
that leaves out a width. Called by hf_config; pure.

The sizes follow each family's processing in vLLM's model_executor/models. Where they stand in a
preprocessor's own file instead, they are those that the family's makers publish: not `sized`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.facts import Tower

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnipilot_slurm.catalog.config_fields import Fields

_CHANNELS = 3
#: Qwen-VL: tokens of the largest image; frame pairs of a video, or the tokens of all of them
_QWEN_IMAGE_TOKENS = 16384
_QWEN2_PAIRS = 8
_QWEN3_VIDEO_TOKENS = 12288
_MERGED = 4
#: Gemma 4: soft tokens of a video's frame, its frames and what each of them takes besides
_GEMMA4_FRAME_TOKENS = 70
_GEMMA4_FRAMES = 32
_GEMMA4_STAMP_TOKENS = 8
#: Llama 4: tiles of the largest image
_LLAMA4_TILES = 16
#: InternVL takes as many frames as the context holds
_UNBOUNDED = 10**6
_VIDEO_LANGUAGES = frozenset({"qwen2", "qwen3", "qwen3_moe", "gpt_oss"})


def read_tower(root: Fields) -> Tower | None:
    """Return the tower of a multimodal config.json."""
    vision = root.inner("vision_config")
    kind = root.word("model_type") or next(iter(root.words("architectures")), "")
    reader = _READERS.get(kind)
    if vision is None or reader is None:
        return None
    try:
        return reader(root, vision)
    except _MissingError:
        return None


class _MissingError(Exception):
    """A field that a tower's arithmetic needs is not there."""


def _need(fields: Fields, *names: str) -> int:
    value = fields.count(*names)
    if not value:
        raise _MissingError
    return value


def _or(fields: Fields, name: str, default: int) -> int:
    return fields.count(name) or default


def _qwen2(_root: Fields, vision: Fields) -> Tower:
    width = _need(vision, "embed_dim")
    return _qwen2_tower(vision, width, int((vision.number("mlp_ratio") or 4) * width), gated=False)


def _qwen2_5(_root: Fields, vision: Fields) -> Tower:
    width, inner = _need(vision, "hidden_size"), _need(vision, "intermediate_size")
    return _qwen2_tower(vision, width, inner, gated=True)


def _qwen2_tower(vision: Fields, width: int, inner: int, *, gated: bool) -> Tower:
    return Tower(
        hidden=width,
        intermediate=inner,
        layers=_need(vision, "depth"),
        patch_values=2 * _CHANNELS * _or(vision, "patch_size", 14) ** 2,
        image_patches=_MERGED * _QWEN_IMAGE_TOKENS,
        image_tokens=_QWEN_IMAGE_TOKENS,
        video_patches=_MERGED * _QWEN_IMAGE_TOKENS,
        video_tokens=_QWEN_IMAGE_TOKENS,
        n_frames=_QWEN2_PAIRS,
        heads=_or(vision, "num_heads", 0),
        gated=gated,
        rotary=True,
    )


def _qwen3(_root: Fields, vision: Fields) -> Tower:
    return Tower(
        hidden=_need(vision, "hidden_size"),
        intermediate=_need(vision, "intermediate_size"),
        layers=_need(vision, "depth"),
        patch_values=2 * _CHANNELS * _or(vision, "patch_size", 16) ** 2,
        image_patches=_MERGED * _QWEN_IMAGE_TOKENS,
        image_tokens=_QWEN_IMAGE_TOKENS,
        video_patches=_MERGED * _QWEN3_VIDEO_TOKENS,
        video_tokens=_QWEN3_VIDEO_TOKENS,
        n_outputs=1 + len(vision.counts("deepstack_visual_indexes")),
        heads=_or(vision, "num_heads", 0),
        rotary=True,
    )


def _gemma3(root: Fields, vision: Fields) -> Tower:
    return replace(
        _encoder(vision),
        image_patches=_grid(vision),
        image_tokens=_or(root, "mm_tokens_per_image", 256),
        sized=True,
    )


def _gemma4(_root: Fields, vision: Fields) -> Tower:
    pooled = _or(vision, "pooling_kernel_size", 3) ** 2
    tokens = _need(vision, "default_output_length")
    return replace(
        _encoder(vision),
        image_patches=tokens * pooled,
        image_tokens=tokens,
        video_patches=_GEMMA4_FRAME_TOKENS * pooled,
        video_tokens=_GEMMA4_FRAMES * (_GEMMA4_FRAME_TOKENS + _GEMMA4_STAMP_TOKENS),
        rotary=True,
        one_by_one=True,
        sized=True,
    )


def _internvl(root: Fields, vision: Fields) -> Tower:
    side = _or(root, "force_image_size", _or(vision, "image_size", 448))
    grid = (side // _or(vision, "patch_size", 14)) ** 2
    tokens = int(grid * (root.number("downsample_ratio") or 0.5) ** 2)
    tiles = _or(root, "max_dynamic_patch", 12)
    tiles += 1 if tiles > 1 and root.flag("use_thumbnail", default=True) else 0
    language = root.inner("llm_config", "text_config")
    frames = language is not None and language.word("model_type") in _VIDEO_LANGUAGES
    return replace(
        _encoder(vision),
        image_patches=tiles * (grid + 1),
        image_tokens=tiles * tokens,
        video_patches=grid + 1 if frames else 0,
        video_tokens=tokens if frames else 0,
        n_frames=_UNBOUNDED if frames else 1,
        normed=vision.flag("qk_normalization", default=False),
        sized=root.has("max_dynamic_patch"),
    )


def _llama4(_root: Fields, vision: Fields) -> Tower:
    grid, tiles = _grid(vision), _LLAMA4_TILES + 1
    return replace(
        _encoder(vision),
        image_patches=tiles * (grid + 1),
        image_tokens=int(tiles * grid * (vision.number("pixel_shuffle_ratio") or 0.5) ** 2),
        rotary=True,
    )


def _mistral3(root: Fields, vision: Fields) -> Tower:
    side = _need(vision, "image_size") // _need(vision, "patch_size")
    merged = side // _or(root, "spatial_merge_size", 2)
    return replace(
        _encoder(vision),
        image_patches=side**2,
        image_tokens=merged * (merged + 1),
        gated=True,
        rotary=True,
        masked=True,
        sized=True,
    )


def _llava(_root: Fields, vision: Fields) -> Tower:
    grid = _grid(vision)
    return replace(_encoder(vision), image_patches=grid + 1, image_tokens=grid, sized=True)


def _encoder(vision: Fields) -> Tower:
    """Return an encoder's widths, which most configurations name alike, without any items."""
    return Tower(
        hidden=_need(vision, "hidden_size"),
        intermediate=_need(vision, "intermediate_size"),
        layers=_need(vision, "num_hidden_layers"),
        patch_values=_CHANNELS * _or(vision, "patch_size", 14) ** 2,
        heads=_or(vision, "num_attention_heads", 0),
    )


def _grid(vision: Fields) -> int:
    return int((_need(vision, "image_size") // _need(vision, "patch_size")) ** 2)


_READERS: dict[str, Callable[[Fields, Fields], Tower]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "internvl_chat": _internvl,
    "InternVLChatModel": _internvl,
    "llama4": _llama4,
    "mistral3": _mistral3,
    "Mistral3ForConditionalGeneration": _mistral3,
    "llava": _llava,
}
