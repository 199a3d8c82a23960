"""Names of models and GPUs: every spelling of one meets, and no two different ones do."""

from __future__ import annotations

import itertools

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import Quantization

CATALOG = Catalog.load(site=None)

#: one checkpoint each, under several spellings
SPELLINGS = [
    ("meta-llama/Llama-3.1-8B-Instruct", "exact"),
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", "alias"),
    ("meta-llama/llama-3.1-8b-instruct", "near"),
    ("Meta-Llama-3.1-8B-Instruct", "near"),
    ("Llama-3.1-8B-Instruct", "near"),
    ("llama_3.1_8b_instruct", "near"),
    ("llama3.1-8b-instruct", "near"),
    ("somebody/Llama-3.1-8B-Instruct", "near"),
    ("meta-llama/Llama-3.1-8B-Instruct/", "near"),
    ("/models/Llama-3.1-8B-Instruct", "folder"),
    ("./Llama-3.1-8B-Instruct/", "folder"),
    ("/scratch/me/meta-llama/Llama-3.1-8B-Instruct", "folder"),
    ("/hf/hub/models--meta-llama--Llama-3.1-8B-Instruct", "folder"),
    ("/hf/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a1", "folder"),
]


@pytest.mark.parametrize(("name", "how"), SPELLINGS)
def test_every_spelling_of_a_model_finds_it(name, how):
    match = CATALOG.model(name)
    assert match.facts.id == "meta-llama/Llama-3.1-8B-Instruct"
    assert match.how == how


def test_a_match_that_is_not_the_id_says_what_it_was_read_as():
    assert CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").said == ""
    assert CATALOG.model("/data/models/gemma-2-27b-it").said == (
        "/data/models/gemma-2-27b-it is read as google/gemma-2-27b-it"
    )
    assert CATALOG.model("/shared/models/llama-3.3-70b").said == (
        "/shared/models/llama-3.3-70b is read as a sibling of meta-llama/Llama-3.3-70B-Instruct"
    )
    assert CATALOG.model("meta-llama/Llama-2-13b").said == (
        "meta-llama/Llama-2-13b is another name of meta-llama/Llama-2-13b-hf"
    )


#: names of which no two may ever be taken for each other
DIFFERENT = [
    [
        "meta-llama/Llama-2-7b-hf", "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-2-13b-hf",
        "meta-llama/Meta-Llama-3-70B", "meta-llama/Llama-3.1-70B", "meta-llama/Llama-2-70b-hf",
        "meta-llama/Llama-3.2-11B-Vision", "meta-llama/Llama-3.1-405B", "huggyllama/llama-7b",
        "meta-llama/Llama-4-Scout-17B-16E", "meta-llama/Llama-4-Maverick-17B-128E",
    ],
    [
        "Qwen/Qwen2-7B", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B", "Qwen/Qwen1.5-7B",
        "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-Coder-7B", "Qwen/Qwen2.5-Math-7B",
        "Qwen/Qwen2.5-72B", "Qwen/Qwen2-72B", "Qwen/Qwen2.5-VL-72B-Instruct", "Qwen/Qwen3-0.6B",
        "Qwen/Qwen2.5-7B-Instruct-1M", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen/Qwen3-Omni-30B-A3B-Instruct",
    ],
    [
        "mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.2",
        "mistralai/Mistral-7B-v0.3", "mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x22B-v0.1",
    ],
    [
        "google/gemma-2b", "google/gemma-2-2b", "google/gemma-7b", "google/gemma-2-9b",
        "google/gemma-3-1b-it", "google/gemma-3-4b-it", "google/gemma-3-27b-it",
        "google/gemma-2-27b",
    ],
    [
        "deepseek-ai/DeepSeek-V2", "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V3",
        "deepseek-ai/DeepSeek-V2.5", "deepseek-ai/DeepSeek-Coder-V2-Lite-Base",
        "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    ],
]  # fmt: skip
PAIRS = [pair for group in DIFFERENT for pair in itertools.permutations(group, 2)]


def test_there_are_enough_near_misses():
    assert len(PAIRS) >= 200


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_models_are_never_taken_for_each_other(one, other):
    spelled = one.split("/")[1].casefold()
    assert CATALOG.model(spelled).facts.id.casefold() != other.casefold()
    assert CATALOG.model(f"/models/{spelled}").facts.id.casefold() != other.casefold()


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-8B-Instruct", "Qwen/Qwen2.6-7B-Instruct", "Qwen/Qwen-VL2.5-7B-Instruct",
        "meta-llama/Llama-3", "Llama-3-Instruct", "Llama-3.1", "meta-llama/Llama-3.4-70B-Instruct",
        "meta-llama/Llama-3.3-8B-Instruct", "meta-llama/Llama-3.1-8B-Vision", "llama-8b",
        "meta-llama/Llama-3.1-8B-Instruct-128k", "mistralai/Mistral-7B", "mistral-7b-instruct",
        "mistralai/Mistral-7B-v0.4", "mixtral-8x7b", "google/gemma-9b", "google/gemma-2-27b-vl",
        "google/gemma-4-27b-it", "deepseek-ai/DeepSeek", "deepseek-ai/DeepSeek-V4-Lite",
        "deepseek-ai/DeepSeek-Coder-R1", "Qwen/Qwen3-30B", "Qwen/Qwen3-A3B", "Qwen/Qwen3",
        "Qwen/Qwen3-235B-A3B", "Qwen/Qwen3-8B-Coder", "Qwen/Qwen3-32B-Instruct-2507",
        "70B Llama-class model", "/models/latest", "/models/70b", "$MODEL", "", "/", "7b",
        "instruct", "fp8", "Qwen/Qwen2.5-7B-Instruct-GGUF", "gpt-oss-21b", "openai/gpt-oss",
        "microsoft/phi-5", "THUDM/glm-4-9b-chat-1m-v2", "CohereForAI/command-r",
    ],
)  # fmt: skip
def test_a_name_with_a_word_too_many_or_too_few_is_unknown(name):
    with pytest.raises(CatalogError):
        CATALOG.model(name)


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(CatalogError) as caught:
        CATALOG.model("meta-llama/Llama-3")
    assert str(caught.value) == (
        "model 'meta-llama/Llama-3' is not known; near names: meta-llama/Meta-Llama-3-70B, "
        "meta-llama/Meta-Llama-3-8B, arcee-ai/Llama-3-SEC-Base"
    )
    assert caught.value.hint == "add it to models.yaml in /etc/omnipilot"
    with pytest.raises(CatalogError) as caught:
        CATALOG.model("/models/latest")
    assert str(caught.value) == "model '/models/latest' is not known"
    assert caught.value.hint == (
        "name the folder after the model, or let the daemon read its config.json"
    )


def test_a_name_that_two_publishers_use_differently_is_not_guessed():
    models = {name: CATALOG.model(name).facts for name in ("Qwen/Qwen3-8B", "Qwen/Qwen3-14B")}
    table = CATALOG._models
    twins = Catalog(
        type(table)(
            table.shapes,
            {
                "a/Twin-8B": table.models["Qwen/Qwen3-8B"],
                "b/Twin-8B": table.models["Qwen/Qwen3-14B"],
            },
            table.quantizations,
        ),
        CATALOG._gpus,
    )
    with pytest.raises(CatalogError) as caught:
        twins.model("twin-8b")
    assert str(caught.value) == "model 'twin-8b' may be a/Twin-8B or b/Twin-8B"
    assert caught.value.hint == "write the publisher before the name"
    assert twins.model("b/twin-8b").facts.layers == models["Qwen/Qwen3-14B"].layers


FP8_BLOCK = Quantization(method="fp8", bits=8, scheme="w8a8-fp8", block=(128, 128))
AWQ = Quantization(method="awq", bits=4, scheme="w4a16", group_size=None)


@pytest.mark.parametrize(
    ("name", "base", "quantization"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-FP8", "Qwen/Qwen2.5-7B-Instruct", FP8_BLOCK),
        (
            "somebody/Qwen2.5-14B-GPTQ-Int8",
            "Qwen/Qwen2.5-14B",
            Quantization(method="gptq", bits=8, scheme="w8a16", group_size=None),
        ),
        ("casperhansen/Qwen2.5-72B-Instruct-AWQ", "Qwen/Qwen2.5-72B-Instruct", AWQ),
        (
            "somebody/Qwen2.5-72B-Instruct-AWQ",
            "Qwen/Qwen2.5-72B-Instruct",
            AWQ,
        ),
        (
            "RedHatAI/gemma-2-27b-it-quantized.w8a8",
            "google/gemma-2-27b-it",
            Quantization(
                method="compressed-tensors", bits=8, scheme="w8a8-int8", group_size=-1
            ),
        ),
        (
            "unsloth/c4ai-command-r-v01-bnb-4bit",
            "CohereForAI/c4ai-command-r-v01",
            Quantization(method="bitsandbytes", bits=4, scheme="nf4", group_size=64),
        ),
        (
            "nvidia/Qwen2.5-32B-Instruct-NVFP4",
            "Qwen/Qwen2.5-32B-Instruct",
            Quantization(method="modelopt_fp4", bits=4, scheme="nvfp4", group_size=16),
        ),
        (
            "RedHatAI/Qwen3-32B-NVFP4A16",
            "Qwen/Qwen3-32B",
            Quantization(method="compressed-tensors", bits=4, scheme="nvfp4", group_size=16),
        ),
        ("unsloth/DeepSeek-R1-BF16", "deepseek-ai/DeepSeek-R1", None),
    ],
)  # fmt: skip
def test_a_quantised_sibling_has_its_base_models_shape(name, base, quantization):
    match, known = CATALOG.model(name), CATALOG.model(base)
    assert match.how == "sibling"
    assert match.facts.quantization == quantization
    assert (match.facts.layers, match.facts.hidden, match.facts.params) == (
        known.facts.layers,
        known.facts.hidden,
        known.facts.params,
    )
    assert base in match.said


def test_storage_that_depends_on_the_publisher_is_not_guessed():
    with pytest.raises(CatalogError) as caught:
        CATALOG.model("somebody/Qwen2.5-32B-Instruct-INT4")
    assert str(caught.value) == (
        "model 'Qwen2.5-32B-Instruct-INT4' is not known: "
        "how int4 is stored depends on the publisher"
    )
    assert caught.value.hint == "add it to models.yaml in /etc/omnipilot with its quantization"


def test_siblings_of_different_context_leave_the_context_open():
    assert CATALOG.model("Qwen/Qwen2.5-7B-Instruct").facts.max_model_len == 32768
    assert CATALOG.model("Qwen/Qwen2.5-7B").facts.max_model_len == 131072
    assert CATALOG.model("Qwen/Qwen2.5-7B-Chat").facts.max_model_len is None


def test_every_id_and_alias_resolves_to_itself():
    for model_id in CATALOG.model_ids():
        facts = CATALOG.model(model_id).facts
        assert facts.id == model_id
        for alias in facts.aliases:
            assert CATALOG.model(alias).facts.id == model_id


GPU_NAMES = [
    ("a100-40g", "A100-40G", "A100-40GB", "nvidia_a100-sxm4-40gb", "A100-SXM4-40GB"),
    ("a100-40g-pcie", "nvidia_a100-pcie-40gb", "A100-PCIE-40GB"),
    ("a100-80g", "A100-80G", "A100-80GB", "nvidia_a100-sxm4-80gb", "a100_80gb", "A100 80 GB"),
    ("a100-80g-pcie", "A100-80GB-PCIe", "nvidia_a100_80gb_pcie"),
    ("a800-80g", "A800-80GB"),
    ("h100", "H100", "H100-80GB", "nvidia_h100_80gb_hbm3", "H100_SXM5"),
    ("h100-pcie", "nvidia_h100_pcie", "H100-PCIe-80GB"),
    ("h100-nvl", "H100-NVL", "nvidia_h100_nvl", "H100-94GB"),
    ("h200", "H200", "H200-141GB", "nvidia_h200"),
    ("h800", "H800-80GB"),
    ("h20", "H20", "nvidia_h20"),
    ("gh200", "GH200", "nvidia_gh200_480gb", "GH200-96GB"),
    ("gh200-144g", "GH200-144GB"),
    ("b200", "B200", "nvidia_b200"),
    ("b300", "B300"),
    ("gb200", "GB200"),
    ("l4", "L4", "nvidia_l4"),
    ("l40", "L40-48GB"),
    ("l40s", "L40S", "nvidia_l40s"),
    ("a10", "A10"),
    ("a10g", "A10G-24GB"),
    ("a30", "nvidia_a30"),
    ("a40", "A40"),
    ("rtx-a6000", "RTX A6000", "rtx_a6000", "nvidia_rtx_a6000", "a6000"),
    ("v100-16g", "V100-16GB", "tesla_v100-sxm2-16gb"),
    ("v100-32g", "V100-32GB", "Tesla V100-PCIE-32GB"),
    ("t4", "T4", "T4-16GB", "tesla_t4"),
    ("rtx-3090", "RTX3090-24GB", "rtx_3090", "nvidia_geforce_rtx_3090", "3090"),
    ("rtx-4090", "RTX-4090", "rtx4090"),
    ("rtx-5090", "RTX 5090"),
    ("rtx-5090-d", "RTX5090D-32GB"),
    ("rtx-5070-ti", "RTX5070Ti-16GB", "NVIDIA GeForce RTX 5070 Ti"),
    ("mi210", "MI210"),
    ("mi250", "MI250"),
    ("mi300x", "MI300X", "AMD Instinct MI300X"),
    ("mi325x", "MI325X"),
    ("gaudi2", "Gaudi2", "Gaudi-2"),
    ("max1550", "Max1550"),
    ("pvc", "PVC"),
]


@pytest.mark.parametrize(
    ("name", "gpu"), [(name, names[0]) for names in GPU_NAMES for name in names]
)
def test_every_name_of_a_gpu_finds_it(name, gpu):
    assert CATALOG.gpu(name).id == gpu


@pytest.mark.parametrize(
    "name",
    [
        "a100_1g.5gb", "nvidia_a100_3g.20gb", "1g.10gb", "h100_1g.10gb", "a100l", "a100l.3",
        "h100-96", "h100-47", "a100-20", "gpu", "", "a100-mig", "nvidia", "gtx_1080_ti",
        "h100-40gb", "A100-160GB", "mi250-192gb",
    ],
)  # fmt: skip
def test_a_slice_or_a_sites_own_word_is_no_card(name):
    with pytest.raises(CatalogError):
        CATALOG.gpu(name)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("RTX3090-24G", "rtx-3090"), ("RTX 3090 24 GB", "rtx-3090"), ("H100-80G", "h100"),
        ("L4-24GiB", "l4"), ("A10-24GB", "a10"), ("V100-SXM2-32GB", "v100-32g"),
        ("RTX 5000 16GB", "quadro-rtx-5000"), ("RTX-5000-32G", "rtx-5000-ada"),
        ("RTX4080Super", "rtx-4080"), ("RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
    ],
)  # fmt: skip
def test_a_memory_size_may_stand_behind_any_card_that_is_sold_with_it(name, gpu):
    assert CATALOG.gpu(name).id == gpu


def test_a_name_that_several_cards_share_says_so():
    with pytest.raises(CatalogError) as caught:
        CATALOG.gpu("A100")
    assert str(caught.value) == "gpu 'A100' may be a100-40g or a100-80g"
    assert caught.value.hint == (
        "say which in cluster.gpu_map, or write its memory behind the name"
    )
    assert CATALOG.gpu("A100", mem_gb=80).id == "a100-80g"
    assert CATALOG.gpu("V100", mem_gb=16).id == "v100-16g"


def test_a_mig_slice_is_named_as_one():
    with pytest.raises(CatalogError) as caught:
        CATALOG.gpu("nvidia_a100_1g.10gb")
    assert str(caught.value) == ("gpu 'nvidia_a100_1g.10gb' is a MIG slice, which is no whole card")


def test_a_measured_memory_is_what_torch_reports_not_what_is_sold():
    assert CATALOG.gpu("h100").mem_gib == 79.18
    assert CATALOG.gpu("a100-40g").mem_gib == 39.38
    for gpu_id in CATALOG.gpu_ids():
        facts = CATALOG.gpu(gpu_id)
        assert facts.capability is None or facts.vendor == "nvidia"
        assert facts.source
