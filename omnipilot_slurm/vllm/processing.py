"""The largest image and video of a model, as its processor is asked to size them.

In: ModelFacts with a Tower, EngineArgs. Out: Items by the least, the usual and the most that they
may be, and how many a prompt may have. Called by `encoder`. --mm-processor-kwargs sizes those of
Qwen-VL by pixels; what it does to another family's is not known here, nor what sizes beside the
counts of --limit-mm-per-prompt do.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.facts import ModelFacts, Tower
    from omnipilot_slurm.records import EngineArgs

#: pixels have three channels and, in Qwen-VL, two frames; four patches make a token
_VALUES_A_PIXEL = 6
_MERGED = 4
#: of an image, unless a processor is asked for fewer
_LEAST_TOKENS = 4
_NESTED = ("images_kwargs", "videos_kwargs")


class Item(NamedTuple):
    """One image, or one frame of a video: patches, and the tokens that they become."""

    patches: int
    tokens: int


class Items(NamedTuple):
    """The largest image and the largest video frame."""

    image: Item
    video: Item


class Limits(NamedTuple):
    """How many items of each modality a prompt may have; `sized`: their sizes are given as well."""

    counts: Mapping[str, int]
    sized: bool


_NONE = Items(Item(0, 0), Item(0, 0))


def items_of(model: ModelFacts, tower: Tower, engine: EngineArgs) -> tuple[Items, Items, Items]:
    """Return the items that are certain, usual and possible."""
    stated = Items(
        Item(tower.image_patches, tower.image_tokens),
        Item(tower.video_patches, tower.video_tokens),
    )
    sized = limits(engine.mm_limits).sized
    certain = stated if tower.sized and not sized else _NONE
    if engine.mm_processor_kwargs is None:
        return certain, stated, stated
    if not (model.architecture or "").startswith("Qwen"):
        return _NONE, stated, stated
    pixels = _most_pixels(engine.mm_processor_kwargs)
    if pixels is None:
        return certain, stated, stated
    asked = _of_pixels(tower, pixels)
    least = _NONE if sized else Items(min(asked, stated.image), min(asked, stated.video))
    if tower.n_frames > 1:  # its frames are sized like images
        return least, Items(asked, asked), Items(asked, asked)
    half = Item(least.video.patches // 2, least.video.tokens // 2)
    return (
        Items(least.image, min(half, stated.video)),
        Items(asked, stated.video),
        Items(max(asked, stated.image), max(asked, stated.video)),
    )


@lru_cache(maxsize=64)
def limits(text: str | None) -> Limits:
    """Return the JSON of --limit-mm-per-prompt as counts."""
    found: dict[str, Any] = {} if text is None else json.loads(text)
    objects = {name: value for name, value in found.items() if isinstance(value, dict)}
    counts = found | {name: value.get("count") for name, value in objects.items()}
    whole = {name: count for name, count in counts.items() if isinstance(count, int)}
    return Limits(whole, any(set(value) - {"count"} for value in objects.values()))


def _of_pixels(tower: Tower, pixels: int) -> Item:
    tokens = max(pixels * _VALUES_A_PIXEL // (tower.patch_values * _MERGED), _LEAST_TOKENS)
    return Item(tokens * _MERGED, tokens)


@lru_cache(maxsize=64)
def _most_pixels(text: str) -> int | None:
    """Return the most pixels that the JSON of --mm-processor-kwargs asks for, None for no say."""
    found = json.loads(text)
    parts = [found, *(found[name] for name in _NESTED if isinstance(found.get(name), dict))]
    given = [pixels for part in parts for pixels in _given(part)]
    return max(given, default=None)


def _given(part: dict[str, Any]) -> list[int]:
    size = part.get("size")
    edge = size.get("longest_edge") if isinstance(size, dict) else None
    return [pixels for pixels in (part.get("max_pixels"), edge) if isinstance(pixels, int)]
