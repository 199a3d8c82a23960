"""The largest image and video, as the command line sizes and counts them."""

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.vllm.processing import Item, Items, items_of, limits

CATALOG = Catalog.load(site=None)
QWEN2_5 = CATALOG.model("Qwen/Qwen2.5-VL-7B-Instruct").facts
QWEN3 = CATALOG.model("Qwen/Qwen3-VL-30B-A3B-Instruct").facts
GEMMA = CATALOG.model("google/gemma-3-27b-it").facts
FINE_TUNE = CATALOG.model("microsoft/GUI-Actor-7B-Qwen2.5-VL").facts
NOTHING = Items(Item(0, 0), Item(0, 0))
#: a million pixels are 1000000 / (14 x 14) patches, four of which are a token
MILLION = '{"max_pixels": 1000000}'
ASKED = Item(1275 * 4, 1275)


def items(model, **options):
    return items_of(model, model.tower, EngineArgs(**options))


def test_a_makers_checkpoint_takes_items_of_the_published_size():
    stated = Items(Item(65536, 16384), Item(65536, 16384))
    assert items(QWEN2_5) == (stated, stated, stated)


def test_of_a_fine_tune_no_size_is_certain():
    least, usual, most = items(FINE_TUNE)
    assert (least, usual) == (NOTHING, most)


def test_pixels_asked_for_size_images_and_frames_alike():
    asked = Items(ASKED, ASKED)
    assert items(QWEN2_5, mm_processor_kwargs=MILLION) == (asked, asked, asked)


@pytest.mark.parametrize(
    "text",
    [
        '{"images_kwargs": {"max_pixels": 1000000}}',
        '{"size": {"shortest_edge": 3136, "longest_edge": 1000000}}',
    ],
)
def test_pixels_are_read_wherever_a_processor_takes_them(text):
    assert items(QWEN2_5, mm_processor_kwargs=text)[1].image == ASKED


def test_more_pixels_than_published_are_not_certain():
    least, usual, _ = items(QWEN2_5, mm_processor_kwargs='{"max_pixels": 100000000}')
    assert least.image == Item(65536, 16384)
    assert usual.image.tokens > 16384


def test_a_qwen3_video_is_not_sized_by_an_images_pixels():
    # patches of 16 x 16 pixels
    asked = Item(976 * 4, 976)
    least, usual, most = items(QWEN3, mm_processor_kwargs=MILLION)
    assert (least.image, usual.image) == (asked, asked)
    assert (least.video, usual.video) == (Item(976 * 2, 488), Item(49152, 12288))
    assert most == Items(Item(65536, 16384), Item(49152, 12288))


def test_what_does_not_name_pixels_sizes_nothing():
    assert items(QWEN2_5, mm_processor_kwargs='{"fps": 2}') == items(QWEN2_5)


def test_arguments_of_another_familys_processor_leave_nothing_certain():
    least, usual, most = items(GEMMA, mm_processor_kwargs='{"do_pan_and_scan": true}')
    assert least == NOTHING
    assert usual == most == items(GEMMA)[1]


def test_sizes_beside_the_counts_leave_nothing_certain():
    least, usual, _ = items(QWEN2_5, mm_limits='{"image": {"count": 1, "width": 64}}')
    assert least == NOTHING
    assert usual.image == Item(65536, 16384)


@pytest.mark.parametrize(
    ("text", "counts", "sized"),
    [
        (None, {}, False),
        ('{"image": 4, "video": 0}', {"image": 4, "video": 0}, False),
        ('{"image": {"count": 2}}', {"image": 2}, False),
        ('{"video": {"count": 1, "num_frames": 8}}', {"video": 1}, True),
        ('{"image": null, "video": {"width": 8}}', {}, True),
    ],
)
def test_limits_are_counts_or_objects_with_a_count(text, counts, sized):
    assert limits(text) == (counts, sized)
