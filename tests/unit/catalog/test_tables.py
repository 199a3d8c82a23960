"""gpus.yaml and models.yaml: what ships holds together, and a site's file lies over it."""

from __future__ import annotations

import pytest

from omnipilot_slurm.catalog.check import check_catalogs, check_gpus, check_models
from omnipilot_slurm.catalog.gpu_table import load_gpus
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.catalog.model_table import load_models
from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.facts import Tower
from omnipilot_slurm.resources import etc_layers
from omnipilot_slurm.strict_yaml import Layer

SHAPE = """\
schema: 1
sources: {}
quantizations: {}
shapes:
  small: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16,
    intermediate: 128, vocab: 1000, params: 202000}
models:
  lab/Small: {shape: small, source: ours}
"""
TOWER = "hidden: 8, intermediate: 8, layers: 1, patch_values: 3"
GPU = """\
schema: 1
ambiguous: {}
gpus:
  x1: {name: X1, vendor: nvidia, mem_gib: 8, mem_is_measured: false, bandwidth_gb_s: 100,
    peak_tflops: {fp16: 10}, link_gb_s: 16, tdp_w: 100, capability: [8, 0],
    price_usd_per_gpu_hour: null, aliases: [X-1], source: ours}
"""


def models(text: str):
    return load_models([Layer(file="m.yaml", data=text.encode())])


def gpus(text: str):
    return load_gpus([Layer(file="g.yaml", data=text.encode())])


def faults(load, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return [str(fault) for fault in caught.value.faults]


def test_what_ships_has_no_fault():
    assert check_catalogs(site=None) == []


def test_the_catalog_is_as_large_as_it_must_be():
    table, _ = load_models(etc_layers("models.yaml", site=None))
    assert len(table.models) >= 900
    assert len(table.shapes) >= 300
    assert all(row["source"] for row in table.models.values())


def test_a_model_that_generates_is_no_pooling_model_whatever_its_class_is_called():
    table, _ = load_models(etc_layers("models.yaml", site=None))
    found = {
        i: table.facts(i) for i in table.ids() if "LMHead" in (table.facts(i).architecture or "")
    }
    assert {"Qwen/Qwen-7B-Chat", "Qwen/Qwen-72B-Chat"} <= set(found)
    assert {facts.kind for facts in found.values()} == {"text"}


def test_small_examples_hold_together():
    assert check_models(*models(SHAPE)) == []
    assert check_gpus(*gpus(GPU)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "params: 202000",
            "params: 102000",
            "6:45: shapes.small.params: must be within 2 % of the 2.02e+05 that the fields imply",
        ),
        ("kv_heads: 2", "kv_heads: 3", "kv_heads: must divide heads (4), was 3"),
        ("vocab: 1000", "vocab: 100", "vocab: must be at least 256, was 100"),
        ("intermediate: 128", "intermediate: 0", "intermediate: must be above 0 for the 2 dense"),
        ("vocab:", "n_sliding_layers: 1, vocab:", "sliding_window: must be there exactly where"),
        ("vocab:", "n_state_layers: 3, vocab:", "layers: must be at least n_sliding_layers + n"),
        ("vocab:", "tower_params: 5, vocab:", "tower_params: must be absent where kind is text"),
        (
            "vocab:",
            "experts: {n_experts: 4, n_active: 5, intermediate: 8}, vocab:",
            "experts: n_active must be at most n_experts (4)",
        ),
        ("vocab:", f"tower: {{{TOWER}}}, vocab:", "tower: must be absent where tower_params is"),
        (
            "vocab:",
            f"tower: {{{TOWER}, image_patches: 9}}, vocab:",
            "tower: image_tokens must be there exactly where image_patches is",
        ),
        (
            "vocab:",
            f"tower: {{{TOWER}, video_tokens: 9}}, vocab:",
            "tower: video_tokens must be there exactly where video_patches is",
        ),
    ],
)
def test_fields_that_do_not_hold_together_are_faults(old, new, message):
    found = [str(fault) for fault in check_models(*models(SHAPE.replace(old, new)))]
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[8, 0]",
            "null",
            (
                "g.yaml:5:69: gpus.x1.capability: must be [major, minor] for nvidia and null else, "
                "was None"
            ),
        ),
        ("fp16: 10", "int8: 10", "gpus.x1.peak_tflops: must have fp16"),
        (
            "fp16: 10",
            "fp16: 10, fp8: 20",
            "gpus.x1.peak_tflops: must not have fp8 below capability 8.9; leave it out",
        ),
    ],
)
def test_a_gpu_that_does_not_hold_together_is_a_fault(old, new, message):
    found = [str(fault) for fault in check_gpus(*gpus(GPU.replace(old, new)))]
    assert any(message in fault for fault in found), found


def test_a_model_of_an_undefined_shape_names_the_near_one():
    assert faults(models, SHAPE.replace("shape: small,", "shape: smal,")) == [
        (
            "m.yaml:8:22: models.lab/Small.shape: 'smal' is not defined under shapes; "
            "did you mean 'small'"
        )
    ]
    assert faults(models, SHAPE.replace("source: ours", "quantization: awq, source: ours")) == [
        "m.yaml:8:43: models.lab/Small.quantization: 'awq' is not defined under quantizations"
    ]


def test_two_cards_cannot_share_a_name():
    second = GPU.split("gpus:\n")[1].replace("x1:", "x2:").replace("[X-1]", "[X1]")
    assert faults(gpus, GPU + second) == ["g.yaml:9:44: gpus.x2.aliases: 'X1' already means x1"]


def test_an_ambiguous_name_lists_cards_that_exist():
    assert faults(gpus, GPU.replace("ambiguous: {}", "ambiguous: {X: [x1, x9]}")) == [
        "g.yaml:2:16: ambiguous.X: no gpu 'x9'"
    ]


def test_a_site_adds_models_and_sets_prices(tmp_path):
    (tmp_path / "gpus.yaml").write_text("schema: 1\ngpus: {h100: {price_usd_per_gpu_hour: 2.25}}\n")
    (tmp_path / "models.yaml").write_text(
        "schema: 1\n"
        "models:\n"
        "  our-lab/Our-8B: {shape: meta-llama/Llama-3.1-8B, max_model_len: 16384, source: ours}\n"
        "  Qwen/Qwen3-32B: {max_model_len: 131072}\n"
    )
    catalog = Catalog.load(site=tmp_path)
    assert catalog.gpu("H100").price_usd_per_gpu_hour == 2.25
    assert catalog.gpu("H100").mem_gib == 79.18
    ours = catalog.model("our-8b")
    assert (ours.facts.layers, ours.facts.max_model_len) == (32, 16384)
    assert catalog.model("Qwen/Qwen3-32B").facts.max_model_len == 131072
    assert check_catalogs(site=tmp_path) == []


def test_faults_of_both_files_come_together(tmp_path):
    (tmp_path / "gpus.yaml").write_text("schema: 1\ngpus: {h100: {price: 2}}\n")
    (tmp_path / "models.yaml").write_text("schema: 1\nmodels: {a/b: {shape: nothing}}\n")
    found = [str(fault).removeprefix(f"{tmp_path}/") for fault in check_catalogs(site=tmp_path)]
    assert found == [
        (
            "gpus.yaml:2:15: gpus.h100: unknown key 'price': did you mean "
            "'price_usd_per_gpu_hour'; a key carries its unit"
        ),
        "models.yaml:2:15: models.a/b.source: is missing; it must be a name",
    ]


def test_a_tower_is_read_as_the_table_says_it():
    shape = SHAPE.replace(
        "vocab:", f"kind: multimodal, tower_params: 9, tower: {{{TOWER}, n_frames: 8}}, vocab:"
    )
    table, _ = models(shape)
    assert table.facts("lab/Small").tower == Tower(
        hidden=8, intermediate=8, layers=1, patch_values=3, n_frames=8
    )
