"""config.json to a vision tower: widths, and the largest image and video, by hand."""

from __future__ import annotations

import pytest

from omnipilot_slurm.catalog.config_fields import Fields
from omnipilot_slurm.catalog.config_vision import read_tower
from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.facts import Tower

SIGLIP = {
    "num_hidden_layers": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "image_size": 896,
    "patch_size": 14,
}
INTERN_VIT = {
    "num_hidden_layers": 45,
    "hidden_size": 3200,
    "intermediate_size": 12800,
    "num_attention_heads": 25,
    "qk_normalization": True,
}
QWEN_VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420}


def tower(model_type, vision, **more):
    return read_tower(Fields({"model_type": model_type, "vision_config": vision} | more))


def test_qwen2_5_vl_gates_and_takes_16384_tokens_an_image_and_a_frame_pair():
    assert tower("qwen2_5_vl", QWEN_VISION) == Tower(
        hidden=1280,
        intermediate=3420,
        layers=32,
        patch_values=2 * 3 * 14 * 14,
        image_patches=65536,
        image_tokens=16384,
        video_patches=65536,
        video_tokens=16384,
        n_frames=8,
        gated=True,
        rotary=True,
    )


def test_qwen2_vl_states_its_mlp_as_a_multiple():
    found = tower("qwen2_vl", {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4})
    assert (found.hidden, found.intermediate, found.gated) == (1280, 5120, False)


def test_qwen3_vl_passes_on_the_outputs_of_inner_layers():
    found = tower("qwen3_vl", QWEN_VISION | {"deepstack_visual_indexes": [8, 16, 24]})
    assert found.n_outputs == 4
    assert (found.video_patches, found.video_tokens) == (49152, 12288)


def test_gemma_3_makes_256_tokens_of_4096_patches():
    found = tower("gemma3", SIGLIP, mm_tokens_per_image=256)
    assert (found.image_patches, found.image_tokens, found.sized) == (64 * 64, 256, True)
    assert found.patch_values == 3 * 14 * 14


def test_gemma_4_pools_nine_patches_and_takes_32_frames():
    found = tower("gemma4", SIGLIP | {"default_output_length": 280, "pooling_kernel_size": 3})
    assert (found.image_patches, found.image_tokens) == (2520, 280)
    assert (found.video_patches, found.video_tokens) == (630, 32 * 78)
    assert found.one_by_one


def test_internvl_takes_its_tiles_and_their_thumbnail():
    found = tower("internvl_chat", INTERN_VIT, max_dynamic_patch=12)
    assert (found.image_patches, found.image_tokens) == (13 * 1025, 13 * 256)
    assert (found.video_patches, found.sized) == (0, True)
    assert (found.heads, found.normed) == (25, True)
    alone = tower("internvl_chat", INTERN_VIT, max_dynamic_patch=12, use_thumbnail=False)
    assert alone.image_tokens == 12 * 256


@pytest.mark.parametrize(("language", "frames"), [("qwen2", 1025), ("internlm2", 0)])
def test_internvl_takes_videos_where_its_language_model_has_a_token_for_them(language, frames):
    found = tower("internvl_chat", INTERN_VIT, llm_config={"model_type": language})
    assert found.video_patches == frames


def test_internvl_that_leaves_out_its_tiles_is_not_sized():
    assert not tower("internvl_chat", INTERN_VIT).sized


def test_llama_4_takes_sixteen_tiles_and_one_more():
    vision = SIGLIP | {"image_size": 336, "pixel_shuffle_ratio": 0.5}
    found = tower("llama4", vision)
    assert (found.image_patches, found.image_tokens) == (17 * 577, 17 * 144)


def test_mistral_3_ends_each_row_of_tokens():
    found = tower("mistral3", SIGLIP | {"image_size": 1540}, spatial_merge_size=2)
    assert (found.image_patches, found.image_tokens) == (110 * 110, 55 * 56)


def test_llava_has_a_token_for_each_patch():
    found = tower("llava", SIGLIP | {"image_size": 336})
    assert (found.image_patches, found.image_tokens) == (577, 576)


@pytest.mark.parametrize("name", sorted(QWEN_VISION))
def test_a_tower_without_a_width_is_not_guessed(name):
    assert tower("qwen2_5_vl", {k: v for k, v in QWEN_VISION.items() if k != name}) is None


def test_a_family_that_is_not_known_has_no_tower():
    assert tower("phi4mm", SIGLIP) is None
    assert read_tower(Fields({"model_type": "gemma3"})) is None


def test_a_checkpoints_config_brings_its_tower_along():
    config = {
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "vision_config": QWEN_VISION,
    }
    facts = facts_from_config(config, model_id="x/y", source="test")
    assert facts.tower == tower("qwen2_5_vl", QWEN_VISION)


@pytest.mark.parametrize(
    ("name", "hidden", "sized"),
    [
        ("Qwen/Qwen2.5-VL-72B-Instruct", 1280, True),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", 1152, True),
        ("google/gemma-3-27b-it", 1152, True),
        ("OpenGVLab/InternVL3-78B", 3200, True),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 1408, True),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 1024, True),
    ],
)
def test_the_catalog_knows_the_towers_of_what_is_served_most(name, hidden, sized):
    found = Catalog.load(site=None).model(name).facts.tower
    assert found is not None
    assert (found.hidden, found.sized) == (hidden, sized)


def test_a_fine_tune_may_be_set_to_smaller_images():
    assert not Catalog.load(site=None).model("microsoft/GUI-Actor-7B-Qwen2.5-VL").facts.tower.sized
