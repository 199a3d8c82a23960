"""config.json to facts: every family's own way to say what decides memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.catalog.hf_config import facts_from_config
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import Experts, LatentAttention, Quantization
from omnipilot_slurm.vllm.weights import parameter_count

DENSE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def facts(config, **changes):
    return facts_from_config(config | changes, model_id="x/y", source="test")


def test_a_dense_model_is_read_field_by_field():
    found = facts(DENSE)
    assert (found.layers, found.hidden, found.heads, found.kv_heads) == (32, 4096, 32, 8)
    assert (found.head_dim, found.intermediate, found.vocab) == (128, 14336, 128256)
    assert (found.family, found.kind, found.dtype) == ("llama3", "text", "bfloat16")
    assert found.params == pytest.approx(8.03e9, rel=0.001)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 131072),
        (
            {"max_position_embeddings": 16384, "rope_scaling": {"type": "linear", "factor": 4.0}},
            65536,
        ),
        (
            {"max_position_embeddings": 8192, "rope_scaling": {"type": "dynamic", "factor": 2}},
            16384,
        ),
        (
            {
                "max_position_embeddings": 40960,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"rope_scaling": {"type": "longrope", "factor": 32}}, 131072),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 131072),
        ({"rope_scaling": {"rope_type": "linear", "factor": None}}, 131072),
        ({"rope_scaling": None}, 131072),
        ({"max_position_embeddings": 8192, "model_max_length": 4096}, 4096),
        ({"max_position_embeddings": None, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_the_longest_context_follows_vllms_rule(changes, longest):
    assert facts(DENSE, **changes).max_model_len == longest


def test_gemma_3_states_its_context_already_scaled():
    found = facts(DENSE, model_type="gemma3_text", rope_scaling={"type": "linear", "factor": 8.0})
    assert found.max_model_len == 131072


def test_command_r_keeps_the_longer_context_that_newer_versions_accept():
    found = facts(DENSE, model_type="cohere", max_position_embeddings=8192, model_max_length=131072)
    assert found.max_model_len == 8192
    assert found.extra["model_max_length"] == 131072


def test_longrope_keeps_the_shorter_default_of_newer_versions():
    found = facts(
        DENSE,
        model_type="phi3",
        original_max_position_embeddings=4096,
        rope_scaling={"type": "longrope", "long_factor": [1.0]},
    )
    assert found.max_model_len == 131072
    assert found.extra["default_max_model_len"] == 4096


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sliding_window": 4096}, (4096, 32)),
        ({"sliding_window": 4096, "use_sliding_window": False}, (None, 0)),
        ({"sliding_window": None}, (None, 0)),
        ({"sliding_window": 131072}, (None, 0)),
        ({"model_type": "gemma2", "num_hidden_layers": 42, "sliding_window": 4096}, (4096, 21)),
        (
            {"model_type": "gemma3_text", "num_hidden_layers": 62, "sliding_window": 1024},
            (1024, 52),
        ),
        (
            {"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 4},
            (512, 24),
        ),
        ({"model_type": "cohere2", "sliding_window": 4096}, (4096, 24)),
        (
            {"model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": "LLLG"},
            (4096, 24),
        ),
        (
            {
                "sliding_window": 128,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            (128, 16),
        ),
    ],
)
def test_which_layers_slide(changes, expected):
    found = facts(DENSE, **changes)
    assert (found.sliding_window, found.n_sliding_layers) == expected


def test_llama_4_attends_to_chunks_in_three_layers_of_four():
    found = facts(
        DENSE,
        model_type="llama4_text",
        num_hidden_layers=48,
        hidden_size=5120,
        num_attention_heads=40,
        head_dim=128,
        intermediate_size=8192,
        intermediate_size_mlp=16384,
        num_local_experts=128,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=8192,
        vocab_size=202048,
        max_position_embeddings=1048576,
    )
    assert (found.n_sliding_layers, found.sliding_window) == (36, 8192)
    assert found.experts == Experts(
        n_experts=128, n_active=1, intermediate=8192, shared_intermediate=8192, every_n_layers=2
    )
    assert found.intermediate == 16384
    assert parameter_count(found).total == pytest.approx(400.7e9, rel=0.001)


def test_deepseek_has_latent_attention_and_dense_first_layers():
    found = facts(
        DENSE,
        model_type="deepseek_v3",
        num_hidden_layers=61,
        hidden_size=7168,
        intermediate_size=18432,
        num_attention_heads=128,
        num_key_value_heads=128,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        vocab_size=129280,
    )
    assert found.mla == LatentAttention(
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    assert found.experts is not None
    assert (found.experts.shared_intermediate, found.experts.n_dense_layers) == (2048, 3)
    assert parameter_count(found).total == pytest.approx(671.03e9, rel=0.001)


def test_a_moe_without_dense_layers_states_an_experts_width():
    found = facts(
        DENSE,
        model_type="qwen3_moe",
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        intermediate_size=6144,
    )
    assert found.intermediate == 768


def test_a_hybrid_keeps_states_of_constant_size():
    found = facts(
        DENSE,
        model_type="qwen3_next",
        num_hidden_layers=48,
        hidden_size=2048,
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=256,
        full_attention_interval=4,
        linear_num_key_heads=16,
        linear_key_head_dim=128,
        linear_num_value_heads=32,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    assert found.n_state_layers == 36
    assert found.extra["attention_gate"] == 1
    # convolution: 3 positions x (2 x 2048 + 4096) x 2 bytes; state: 32 heads x 128 x 128 x 2 bytes
    assert found.state_bytes_per_layer == 3 * 8192 * 2 + 32 * 128 * 128 * 2


def test_falcon_h1_attends_and_keeps_a_state_in_every_layer():
    found = facts(
        DENSE,
        model_type="falcon_h1",
        mamba_n_heads=32,
        mamba_d_head=128,
        mamba_d_state=256,
        mamba_n_groups=2,
    )
    assert found.n_state_layers == 0
    assert found.extra["parallel_state_layers"] == 32
    assert found.state_bytes_per_layer == (3 * (4096 + 2 * 2 * 256) + 4096 * 256) * 2


def test_nemotron_h_spells_its_layers():
    found = facts(
        DENSE,
        model_type="nemotron_h",
        num_hidden_layers=6,
        hybrid_override_pattern="M-M*-E",
        mamba_num_heads=64,
        mamba_head_dim=64,
        ssm_state_size=128,
        n_groups=8,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=1024,
    )
    assert (found.layers, found.n_state_layers) == (6, 5)
    assert (found.extra["n_mlp_layers"], found.extra["n_moe_layers"]) == (3, 1)
    assert found.extra["mlp_matrices"] == 2


def test_jamba_has_mamba_layers_and_experts_in_every_other_one():
    found = facts(
        DENSE,
        model_type="jamba",
        vocab_size=65536,
        num_experts=16,
        num_experts_per_tok=2,
        expert_layer_period=2,
        mamba_dt_rank=256,
    )
    assert found.n_state_layers == 28
    assert found.experts is not None
    assert found.experts.every_n_layers == 2
    assert found.state_bytes_per_layer == (3 * 8192 + 8192 * 16) * 2
    assert parameter_count(found).total == pytest.approx(51.57e9, rel=0.001)


def test_granite_4_names_its_mamba_layers():
    config = {"mamba_n_heads": 128, "mamba_d_state": 128, "mamba_n_groups": 1}
    kinds = ["mamba"] * 28 + ["attention"] * 4
    found = facts(DENSE, model_type="granitemoehybrid", layer_types=kinds, **config)
    assert found.n_state_layers == 28
    assert found.state_bytes_per_layer == (3 * (8192 + 256) + 8192 * 128) * 2
    dense = facts(DENSE, model_type="granitemoehybrid", layer_types=["attention"] * 32)
    assert dense.n_state_layers == 0


def test_lfm2_has_short_convolutions():
    kinds = ["conv", "full_attention"] * 16
    found = facts(DENSE, model_type="lfm2", layer_types=kinds, conv_L_cache=3)
    assert (found.n_state_layers, found.state_bytes_per_layer) == (16, 4096 * 2 * 2)


def test_minimax_text_has_lightning_attention_in_seven_layers_of_eight():
    found = facts(DENSE, model_type="minimax_text_01", num_local_experts=4, num_experts_per_tok=2)
    assert found.n_state_layers == 28
    assert found.state_bytes_per_layer == 32 * 128 * 128 * 4
    listed = facts(DENSE, model_type="minimax_text_01", attn_type_list=[0, 0, 0, 1] * 8)
    assert listed.n_state_layers == 24


def test_gemma_4_has_other_heads_where_it_slides():
    found = facts(
        DENSE,
        model_type="gemma4_text",
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        sliding_window=1024,
        layer_types=["sliding_attention"] * 26 + ["full_attention"] * 6,
        num_experts=16,
        top_k_experts=2,
        moe_intermediate_size=704,
    )
    assert (found.head_dim, found.kv_heads) == (512, 2)
    assert found.extra == {"sliding_head_dim": 256, "sliding_kv_heads": 8, "k_is_v": 1}
    assert found.experts is not None
    assert found.experts.shared_intermediate == 14336


def test_mimo_v2_has_narrow_values_and_spells_its_layers_in_numbers():
    found = facts(
        DENSE,
        model_type="mimo_v2_flash",
        head_dim=192,
        v_head_dim=128,
        num_key_value_heads=4,
        swa_num_key_value_heads=8,
        sliding_window=128,
        hybrid_layer_pattern=[0, 1, 1, 1] * 8,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=2048,
        moe_layer_freq=[0] + [1] * 31,
    )
    assert found.extra == {"v_head_dim": 128, "sliding_kv_heads": 8}
    assert found.n_sliding_layers == 24
    assert found.experts is not None
    assert found.experts.n_dense_layers == 1


def test_llama_nemotron_leaves_attention_out_of_layers_and_narrows_mlps():
    whole = {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}}
    without = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}}
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}
    found = facts(
        DENSE,
        model_type="nemotron-nas",
        num_key_value_heads=None,
        intermediate_size=None,
        block_configs=[whole] * 24 + [without] * 6 + [linear] * 2,
    )
    assert (found.kv_heads, found.n_state_layers, found.intermediate) == (4, 8, 14336)
    assert found.extra["n_mlp_layers"] == 24 + 6 * 0.5
    assert found.extra["mixer_params"] == 2 * 4096**2 / 8


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quant_method": "magic"}, "quant_method 'magic' is not known; it must be one of"),
        ({"quant_method": "gptq"}, "has no bits, which the formulas need"),
        ({"quant_method": "compressed-tensors"}, "config_groups has no weights to read"),
        (
            {"producer": {}, "quantization": {"quant_algo": "MIXED_PRECISION"}},
            "quant_algo 'MIXED_PRECISION' must be FP8 or NVFP4",
        ),
    ],
)
def test_weights_that_are_stored_in_an_unknown_way_are_not_guessed(config, said):
    with pytest.raises(CatalogError) as caught:
        facts(DENSE, quantization_config=config)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"use_sliding_window": 3, "sliding_window": 5},
            "use_sliding_window must be true or false",
        ),
        ({"layer_types": [1]}, "layer_types must be a list of words"),
        ({"num_attention_heads": 33}, "has no head_dim and 33 heads do not divide 4096"),
        ({"model_type": 7}, "config.json: model_type must be text, was 7"),
        ({"block_configs": [1]}, "block_configs must be a list of objects"),
        ({"rope_scaling": {"type": "linear", "factor": "4"}}, "factor must be a number, was '4'"),
        ({"rope_scaling": {"type": "linear", "factor": 1e12}}, "factor must be a number up to"),
    ],
)
def test_a_field_of_the_wrong_kind_says_which(changes, said):
    with pytest.raises(CatalogError) as caught:
        facts(DENSE | {"sliding_window": 4096}, **changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kv_heads"),
    [
        ({}, 8),
        ({"num_key_value_heads": None}, 32),
        ({"model_type": "falcon", "multi_query": True}, 1),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1),
        (
            {
                "model_type": "chatglm",
                "multi_query_attention": True,
                "num_key_value_heads": None,
                "multi_query_group_num": 2,
            },
            2,
        ),
        ({"model_type": "deci", "num_key_value_heads_per_layer": [4, 2, 1]}, 4),
        ({"model_type": "mpt", "num_key_value_heads": None, "attn_config": {"kv_n_heads": 4}}, 4),
    ],
)
def test_kv_heads_are_said_in_many_ways(changes, kv_heads):
    assert facts(DENSE, **changes).kv_heads == kv_heads


ALL = ("attention", "mlp", "experts", "mixer")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            Quantization(method="awq", bits=4, scheme="w4a16", group_size=128),
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1, "lm_head": True},
            Quantization(method="gptq", bits=8, scheme="w8a16", group_size=-1, quantizes_head=True),
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            Quantization(method="fp8", bits=8, scheme="w8a8-fp8", block=(128, 128)),
        ),
        (
            {
                "quant_method": "fp8",
                "modules_to_not_convert": [
                    f"model.layers.{n}.self_attn.kv_a_layernorm" for n in range(60)
                ],
            },
            Quantization(method="fp8", bits=8, scheme="w8a8-fp8"),
        ),
        (
            {
                "quant_method": "fbgemm_fp8",
                "modules_to_not_convert": [
                    f"model.layers.{n}.self_attn.o_proj" for n in range(126)
                ],
            },
            Quantization(
                method="fbgemm_fp8",
                bits=8,
                scheme="w8a8-fp8",
                quantizes=("mlp", "experts", "mixer"),
            ),
        ),
        (
            {
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
            },
            Quantization(
                method="mxfp4",
                bits=4,
                scheme="mxfp4",
                group_size=32,
                quantizes=("mlp", "experts", "mixer"),
            ),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {
                            "num_bits": 4,
                            "type": "int",
                            "strategy": "group",
                            "group_size": 32,
                        },
                        "input_activations": None,
                    }
                },
                "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
            },
            Quantization(
                method="compressed-tensors",
                bits=4,
                scheme="w4a16",
                group_size=32,
                quantizes=("experts", "mixer"),
            ),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
            },
            Quantization(method="compressed-tensors", bits=8, scheme="w8a8-fp8", group_size=-1),
        ),
        (
            {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "NVFP4", "group_size": 16},
            },
            Quantization(method="modelopt_fp4", bits=4, scheme="nvfp4", group_size=16),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            Quantization(method="bitsandbytes", bits=4, scheme="nf4", group_size=64),
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 128},
            Quantization(method="auto-round", bits=4, scheme="w4a16", group_size=128),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            Quantization(method="bitsandbytes", bits=8, scheme="int8"),
        ),
        (
            {"quant_algo": "FP8", "ignore": ["lm_head"]},
            Quantization(method="modelopt", bits=8, scheme="w8a8-fp8"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}
                },
            },
            Quantization(method="compressed-tensors", bits=4, scheme="mxfp4", group_size=32),
        ),
        ({}, None),
    ],
)
def test_how_weights_are_stored(config, expected):
    assert facts(DENSE, quantization_config=config).quantization == expected


def test_a_multimodal_model_counts_its_towers():
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "text_config": DENSE,
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420},
    }
    found = facts_from_config(config, model_id="x/y", source="test", stated_params=8.7e9)
    assert found.kind == "multimodal"
    assert found.tower_params == pytest.approx(0.67e9, rel=0.01)
    estimated = facts_from_config(config, model_id="x/y", source="test")
    assert 0.2e9 < estimated.tower_params < 0.8e9


def test_fields_that_imply_another_size_than_the_checkpoint_has_are_refused():
    with pytest.raises(CatalogError) as caught:
        facts_from_config(DENSE, model_id="x/y", source="test", stated_params=7.0e9)
    assert str(caught.value) == (
        "config.json implies 8.03 billion parameters, the checkpoint has 7.00"
    )
    assert caught.value.hint == "its architecture differs from what is known here"


def test_an_unknown_architecture_is_read_by_the_general_rule_only_if_the_size_bears_it_out():
    martian = DENSE | {"model_type": "martian", "architectures": ["MartianForCausalLM"]}
    with pytest.raises(CatalogError) as caught:
        facts_from_config(martian, model_id="x/y", source="test")
    assert str(caught.value) == (
        "config.json is of the architecture 'MartianForCausalLM', which is not known here"
    )
    found = facts_from_config(martian, model_id="x/y", source="test", stated_params=8.03e9)
    assert (found.family, found.layers) == ("martian", 32)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
SMALL = (
    st.integers(-1, 4)
    | st.lists(st.integers(0, 2), max_size=3)
    | st.text(alphabet="M*-EL", max_size=4)
    | st.dictionaries(
        st.sampled_from(["type", "factor", "kv_n_heads", "depth", "hidden_size", "ffn_mult"]),
        st.integers(0, 3),
        max_size=3,
    )
    | st.lists(
        st.dictionaries(
            st.sampled_from(["ffn", "attention"]),
            st.dictionaries(
                st.sampled_from(["ffn_mult", "no_op", "n_heads_in_group"]), st.integers(0, 2)
            ),
        ),
        max_size=3,
    )
)
KEYS = st.sampled_from(
    [*DENSE, "rope_scaling", "quantization_config", "text_config", "vision_config", "layer_types",
     "num_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window", "head_dim",
     "kv_lora_rank", "block_configs", "moe_layer_freq", "mlp_only_layers", "ffn_config",
     "hybrid_override_pattern", "mamba_n_heads", "mamba_d_head", "mamba_d_state",
     "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "linear_num_key_heads",
     "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim", "attn_config",
     "full_attention_interval", "decoder_sparse_step", "intermediate_size_mlp", "v_head_dim"]
)  # fmt: skip
KINDS = st.sampled_from(
    ["llama", "falcon", "mpt", "deepseek_v3", "nemotron_h", "nemotron-nas", "qwen3_next", "jamba",
     "gemma3", "gemma4", "falcon_h1", "granitemoehybrid", "lfm2", "minimax_m1", "mimo_v2_flash"]
)  # fmt: skip


@given(st.dictionaries(KEYS, SMALL | JSON, max_size=8), KINDS)
def test_whatever_a_config_holds_facts_or_a_catalog_error_come_out(changes, kind):
    assert outcome(DENSE | {"model_type": kind} | changes) in {"facts", "error"}


def outcome(config) -> str:
    try:
        found = facts_from_config(config, model_id="x/y", source="test")
    except CatalogError:
        return "error"
    return "facts" if found.layers > 0 else "nonsense"
