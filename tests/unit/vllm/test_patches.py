"""What a vision tower holds per patch, by hand."""

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.vllm.encoder import Encoded
from omnipilot_slurm.vllm.patches import encoder_bytes, patch_of

CATALOG = Catalog.load(site=None)
QWEN2_5 = CATALOG.model("Qwen/Qwen2.5-VL-7B-Instruct").facts.tower
GEMMA = CATALOG.model("google/gemma-3-27b-it").facts.tower
INTERN_VIT = CATALOG.model("OpenGVLab/InternVL3-78B").facts.tower
PIXTRAL = CATALOG.model("mistralai/Mistral-Small-3.1-24B-Instruct-2503").facts.tower


def held(tower, bound, cut=1, tensor_parallel=1, **encoded):
    patch = patch_of(tower, cut, tensor_parallel, 2.0)
    return encoder_bytes(patch, Encoded(patches=1000, **encoded), bound)


def test_an_ungated_mlp_is_the_peak_of_a_siglip_tower():
    # pixels; four rows of hidden states; the MLP's first matrix and its activation
    assert held(GEMMA, 1) == 1000 * 2 * (588 + 4 * 1152 + 2 * 4304)
    assert held(GEMMA, 0) == 1000 * 2 * (588 + 2 * 1152 + 2 * 4304)


def test_a_gated_mlp_holds_gate_up_and_their_product():
    assert held(QWEN2_5, 1) == 1000 * 2 * (1176 + 5 * 1280 + 3 * 3420)


def test_a_rotation_in_32_bits_can_be_more():
    wide = held(QWEN2_5, 1, wide_rotation=True)
    assert wide == 1000 * 2 * (1176 + 14 * 1280)


def test_tp_divides_heads_and_mlp_and_not_the_hidden_states():
    assert held(GEMMA, 1, cut=4, tensor_parallel=4) == 1000 * 2 * (588 + 4 * 1152 + 2 * 4304 / 4)


def test_gathering_queries_keys_and_values_undoes_what_tp_divides():
    gathered = held(QWEN2_5, 1, cut=4, tensor_parallel=4, gathers=True)
    assert gathered == 1000 * 2 * (1176 + 8 * 1280 + 3 * 1280 / 4)
    assert held(QWEN2_5, 1, gathers=True) == held(QWEN2_5, 1)


def test_a_whole_tower_on_each_gpu_is_certain_to_hold_a_share_only():
    assert held(GEMMA, 0, cut=1, tensor_parallel=4) == held(GEMMA, 0, cut=4, tensor_parallel=4)
    assert held(GEMMA, 1, cut=1, tensor_parallel=4) == held(GEMMA, 1)


def test_heads_that_tp_does_not_divide_are_whole_on_each_gpu():
    # norming queries and keys in 32 bits is the peak of an InternViT-6B
    whole = 1000 * 2 * (588 + 2 * 3200 + 10 * 3200)
    assert held(INTERN_VIT, 1, cut=8, tensor_parallel=8) == whole
    assert held(INTERN_VIT, 0, cut=8, tensor_parallel=8) == 1000 * 2 * (588 + 9 * 3200)
    assert held(INTERN_VIT, 1, cut=5, tensor_parallel=5) < whole


def test_pixels_in_32_bits_are_held_beside_their_copy():
    assert held(GEMMA, 0, raw=True) - held(GEMMA, 0) == 1000 * 588 * 4


def test_a_mask_may_be_held_at_most():
    plain = 1.05 * (held(PIXTRAL, 1) + 1000 * 2 * 2 * 1024)
    assert held(PIXTRAL, 2) == pytest.approx(plain + 2 * 1000**2)
