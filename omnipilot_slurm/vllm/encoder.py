"""What a profiling step puts through a multimodal model's tower, by version of vLLM.

In: ModelFacts, EngineArgs, the versions in question, what a step takes. Out: an Encoding, from the
least to the most that those versions do. Called by `effective`; by hand: docs/fit.md.

Read in profile_run, MultiModalBudget, encoder_cache_manager.py, multimodal/profiling.py and each
family's processing. V1 takes the largest item of one modality, as often as its budget of batched
tokens holds it; V0 takes every item that a prompt may have, images in one pass, videos in another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from omnipilot_slurm.vllm.grammar import before, since
from omnipilot_slurm.vllm.options import VERSIONS
from omnipilot_slurm.vllm.processing import Item, items_of, limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnipilot_slurm.facts import ModelFacts, Tower
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.processing import Items

#: the largest item is made for the batched tokens, for its own tokens, for the whole context
_MADE_FOR_TOKENS = before("0.10.0") | (since("0.10.1") & before("0.11.0"))
_MADE_FOR_ITEM = since("0.10.0") & before("0.10.1")
#: a video leaves room for an image: Qwen2-VL up to here, InternVL always
_ROOM_FOR_IMAGE = before("0.10.2")
#: frame pairs of a Qwen2-VL video from then on
_FEWER_PAIRS, _N_FEWER = since("0.11.0"), 7
#: a budget is filled up with one more item
_ROUNDS_UP = before("0.10.0")
#: each output is laid into a cache as large as the budget
_SPREADS = since("0.11.0") & before("0.12.0")
#: Qwen3-VL's budget counts a video's time stamps: 12.5 tokens for one
_STAMPED, _STAMPS = since("0.11.0") & before("0.13.0"), 12.5
#: pixels reach the GPU in 32 bits and are copied there
_RAW_PIXELS = before("0.9.0")
#: Qwen-VL's tower gathers queries, keys and values of all GPUs; rotates them in 32 bits
_GATHERS = {
    "Qwen2VLForConditionalGeneration": before("0.11.1") | since("0.13.0"),
    "Qwen2_5_VLForConditionalGeneration": before("0.11.1"),
}
_WIDE_ROTATION = before("0.11.1")
_INTERN = "InternVLChatModel"
#: a model's class takes images only
_IMAGES_ONLY = {None: before("0.6.6.post1"), _INTERN: before("0.9.0")}
#: V0 leaves items out that do not fit, once a model's class has a processor
_LEAVES_OUT = {
    None: since("0.6.6.post1") & before("0.8.3"),
    _INTERN: since("0.7.2") & before("0.8.3"),
}
_ONE_EACH, _MANY = before("0.8.5"), 999
#: a prompt holds no more items than its context has room for
_WITHIN_CONTEXT = since("0.10.1")
#: every set of versions above: those in the same ones encode alike
_CHANGED = (
    *(_MADE_FOR_TOKENS, _MADE_FOR_ITEM, _ROOM_FOR_IMAGE, _FEWER_PAIRS, _ROUNDS_UP, _SPREADS),
    *(_STAMPED, _RAW_PIXELS, *_GATHERS.values(), _WIDE_ROTATION, _ONE_EACH, _WITHIN_CONTEXT),
    *(*_IMAGES_ONLY.values(), *_LEAVES_OUT.values()),
)
#: what stands around an item's tokens, at most
_AROUND = 32
_QWEN2_PAIRS = 8
_STAMPING = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")


class Encoded(NamedTuple):
    """What one version encodes; `outputs` are values held while the language model runs.

    `deep` are outputs of inner layers, held while the tower still runs. V0 runs at least `tokens`
    and samples for `seqs` (None: as many as without items). The rest says how the tower runs.
    """

    patches: int = 0
    outputs: float = 0.0
    deep: float = 0.0
    tokens: int = 0
    seqs: int | None = None
    raw: bool = False
    gathers: bool = False
    wide_rotation: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Encoding:
    """What the versions in question encode: with the least items, as usual, with the most.

    Compared by identity: it is a part of a key that every verdict hashes.
    """

    least: tuple[Encoded, ...]
    usual: Encoded
    most: tuple[Encoded, ...]


class Batch(NamedTuple):
    """What one step takes: batched tokens, sequences, the context's length (0: not known)."""

    tokens: int
    seqs: int
    length: int


_NOTHING = Encoded()
NO_ENCODING = Encoding(least=(_NOTHING,), usual=_NOTHING, most=(_NOTHING,))


@lru_cache(maxsize=1024)
def encoding(
    model: ModelFacts, engine: EngineArgs, versions: int, batches: tuple[Batch, ...], *, v1: bool
) -> Encoding | None:
    """Return what is encoded in the least, the usual, the largest of batches.

    None where the tower is not known and not off either.
    """
    if model.kind != "multimodal" or is_off(engine):
        return NO_ENCODING
    if model.tower is None:
        return None
    stage = _Stage(model, model.tower, engine, v1)
    unlike = _unlike(versions)
    least, usual, most = items_of(model, model.tower, engine)
    if engine.pipeline_parallel > 1:  # the stage that encodes need not be the fullest
        fewest: tuple[Encoded, ...] = (Encoded(seqs=None if v1 else 1),)
    elif least == usual:
        fewest = stage.encoded(unlike, least, batches[0], _AROUND)
    else:  # which is the larger is not known
        fewest = (stage.one(least),)
    (newest,) = stage.encoded(unlike[-1:], usual, batches[1])
    highest = stage.encoded(unlike, most, batches[2])
    if most != usual:  # many small items may hold more than few large ones
        highest += stage.encoded(unlike, usual, batches[2])
    return Encoding(least=fewest, usual=newest, most=highest)


def is_off(engine: EngineArgs) -> bool:
    """Return whether nothing is encoded: by an option of that name, or by limits of 0 for all."""
    if engine.language_model_only or engine.skip_mm_profiling:
        return True
    counts = limits(engine.mm_limits).counts
    return all(counts.get(modality) == 0 for modality in ("image", "video", "audio"))


@lru_cache(maxsize=256)
def _unlike(versions: int) -> tuple[int, ...]:
    """Return one version of each that encode alike, in a step like the newest's last."""
    found: dict[tuple[int, ...], int] = {}
    for bit in (1 << i for i in range(len(VERSIONS)) if versions >> i & 1):
        alike = tuple(bit & changed and 1 for changed in _CHANGED)
        found.pop(alike, None)
        found[alike] = bit
    return tuple(found.values())


class _Stage(NamedTuple):
    """The model and what it is told, the same for every version."""

    model: ModelFacts
    tower: Tower
    engine: EngineArgs
    is_v1: bool

    def encoded(
        self, versions: Sequence[int], items: Items, batch: Batch, around: int = 0
    ) -> tuple[Encoded, ...]:
        """Return what is encoded by each version, what two of them do alike once."""
        steps = [_Step(self.model, self.tower, self.engine, bit, batch) for bit in versions]
        run = (step.v1(items, around) if self.is_v1 else step.v0(items) for step in steps)
        return tuple(dict.fromkeys(run))

    def one(self, items: Items) -> Encoded:
        """Return a single item, the smaller of image and video frame; of V0, which may skip it."""
        if not self.is_v1:
            return Encoded(seqs=1)
        counts = limits(self.engine.mm_limits).counts
        allowed = [item for name, item in items._asdict().items() if counts.get(name) != 0]
        item = min(allowed, default=Item(0, 0))
        return Encoded(patches=item.patches, outputs=float(item.tokens * self.model.hidden))


class _Step(NamedTuple):
    """One version's profiling step, before its items are known."""

    model: ModelFacts
    tower: Tower
    engine: EngineArgs
    bit: int
    batch: Batch

    def v1(self, items: Items, around: int = 0) -> Encoded:
        """Return the largest item of one modality, as often as the budget holds it."""
        tower, batch, bit = self.tower, self.batch, self.bit
        image = items.image.tokens if self.limit("image") else 0
        video = self.video_budget(items, image)
        if not image and not video:
            return _NOTHING
        item, modality = (image, "image") if image >= video else (video, "video")
        item += around
        n_frames = self.n_frames(items, self.made_for(item)) if modality == "video" else 1
        one = items.video if modality == "video" else items.image
        budget = max(batch.tokens, item)
        n_items = self.n_items(modality, item, budget)
        real = n_frames * one.tokens
        rows = budget if bit & _SPREADS and real < budget else real
        width = self.model.hidden
        return self.how()._replace(
            patches=n_frames * one.patches * (1 if tower.one_by_one else n_items),
            outputs=float(n_items * rows * width * tower.n_outputs),
            deep=float(n_items * real * width * (tower.n_outputs - 1)),
        )

    def v0(self, items: Items) -> Encoded:
        """Return all items that a prompt may have, images in one pass, videos in another."""
        batch = self.batch
        n_images = self.limit("image", most=1) if items.image.tokens else 0
        n_videos = self.limit("video", most=1) if self.takes_videos(items) else 0
        images = n_images * items.image.tokens
        n_frames = self.n_frames(items, batch.tokens - images) if n_videos else 0
        tokens = images + n_videos * n_frames * items.video.tokens
        if not tokens:
            return Encoded(seqs=1)
        seqs = max(min(batch.seqs, batch.tokens // tokens), 1)
        if self.is_in(_LEAVES_OUT) and tokens > batch.tokens // seqs:
            return Encoded(seqs=seqs)
        patches = max(n_images * items.image.patches, n_videos * n_frames * items.video.patches)
        return self.how()._replace(
            patches=patches * (1 if self.tower.one_by_one else seqs),
            outputs=float(seqs * tokens * self.model.hidden * self.tower.n_outputs),
            tokens=seqs * tokens,
            seqs=seqs,
        )

    def how(self) -> Encoded:
        """Return how the tower runs, nothing encoded."""
        return Encoded(
            raw=bool(self.bit & _RAW_PIXELS),
            gathers=bool(self.bit & _GATHERS.get(self.model.architecture or "", 0)),
            wide_rotation=self.tower.rotary and bool(self.bit & _WIDE_ROTATION),
        )

    def limit(self, modality: str, most: int | None = None) -> int:
        """Return how many items of a modality a prompt may have."""
        default = most if most is not None else 1 if self.bit & _ONE_EACH else _MANY
        return limits(self.engine.mm_limits).counts.get(modality, default)

    def is_in(self, versions: Mapping[str | None, int]) -> bool:
        """Return whether the version is one of those of the model's class, or of all others."""
        return bool(self.bit & versions.get(self.model.architecture, versions[None]))

    def takes_videos(self, items: Items) -> bool:
        """Return whether the model takes videos, and its class in this version as well."""
        return bool(items.video.tokens) and not self.is_in(_IMAGES_ONLY)

    def video_budget(self, items: Items, image: int) -> int:
        """Return the tokens that a version counts for its longest video, 0 for none."""
        if not self.takes_videos(items) or not self.limit("video"):
            return 0
        room = self.batch.length
        if self.model.architecture == _INTERN or self.bit & _ROOM_FOR_IMAGE:
            room -= image
        tokens = self.n_frames(items, room) * items.video.tokens
        if self.bit & _STAMPED and self.model.architecture in _STAMPING:
            tokens = int(tokens * _STAMPS)
        return tokens

    def n_frames(self, items: Items, room: int) -> int:
        """Return how many frames of a video fit `room` tokens, at least one."""
        most = self.tower.n_frames
        if most == _QWEN2_PAIRS and self.bit & _FEWER_PAIRS:
            most = _N_FEWER
        return max(min(room // max(items.video.tokens, 1), most), 1)

    def made_for(self, item: int) -> int:
        """Return the length that a version makes its dummy video for."""
        if self.bit & _MADE_FOR_TOKENS:
            return self.batch.tokens
        return item if self.bit & _MADE_FOR_ITEM else self.batch.length

    def n_items(self, modality: str, item: int, budget: int) -> int:
        """Return how many items of `item` tokens one step encodes."""
        held = -(-budget // item) if self.bit & _ROUNDS_UP else budget // item
        a_prompt = self.limit(modality)
        if self.bit & _WITHIN_CONTEXT:
            a_prompt = max(min(a_prompt, self.batch.length // item), 1)
        return max(min(held, self.batch.seqs * a_prompt), 1)
