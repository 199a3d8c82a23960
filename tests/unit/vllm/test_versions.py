from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.vllm.versions import Pin, find_key, find_version, parse_version


def test_versions_sort_as_they_were_released() -> None:
    released = [
        "0.5.5",
        "0.6.0",
        "0.8.5rc1",
        "0.8.5",
        "0.8.5.post1",
        "0.9.0",
        "0.9.0.1",
        "0.9.2",
        "0.10.0",
        "0.10.1.1",
        "0.15.2rc1",
        "0.33.0",
    ]
    assert sorted(set(released), key=parse_version) == released


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("v0.9.2", "0.9.2"),
        ("0.9.2+cu126", "0.9.2"),
        ("0.15.2rc1.dev77+gabc", "0.15.2rc1"),
        ("0.8.5-post1", "0.8.5.post1"),
    ],
)
def test_marks_that_do_not_change_the_release_are_read_over(text: str, same: str) -> None:
    assert parse_version(text) == parse_version(same)


@pytest.mark.parametrize("text", ["latest", "nightly", "", "v1", "gptoss", "0.9.x"])
def test_what_is_no_version_has_no_key(text: str) -> None:
    assert find_key(text) is None


def test_parsing_what_is_no_version_says_so() -> None:
    text = "vllm version must be like '0.10.2' or '0.8.5.post1', not 'nightly'"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        parse_version("nightly")


@settings(deadline=None)
@given(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)))
def test_a_release_is_read_back_as_its_numbers(release: tuple[int, int, int]) -> None:
    key = parse_version(".".join(map(str, release)))
    assert key.release == release
    assert not key.is_partial


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("docker://vllm/vllm-openai:v0.10.2", "0.10.2"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("/images/vllm-openai_0.9.2.sif", "0.9.2"),
        ("$SIFDIR/vllm-openai-v0.11.0-x86_64.sif", "0.11.0"),
        ("vllm_openai_0.11.0.sqsh", "0.11.0"),
        ("rocm/vllm:rocm6.3.1_vllm_0.8.5_20250415", "0.8.5"),
        ("/images/rocm-pytorch-vllm-0.8.sif", "0.8"),
        ("module load python/3.11 cuda/12.4 vllm/0.8.5", "0.8.5"),
        ("module load vLLM/0.10.1.1-foss-2025a-CUDA-12.8.0", "0.10.1.1"),
        ("/opt/vllm-0.11.0/bin/activate", "0.11.0"),
        ("/envs/vllm-0.9.1-cuda12.4-python3.11/bin", "0.9.1"),
        ("source ~/venvs/vllm0.8.5/bin/activate", "0.8.5"),
        ("conda activate vllm_0_9_2", "0.9.2"),
        ('pip install "vllm==0.11.2"', "0.11.2"),
        ("uv run --with vllm[audio]==0.9.0 vllm serve m", "0.9.0"),
        ("uvx vllm@0.10.1 serve m", "0.10.1"),
        ("export VLLM_VERSION=v0.10.0", "0.10.0"),
        ("pip install git+https://github.com/vllm-project/vllm.git@v0.9.2", "0.9.2"),
    ],
)
def test_a_pin_is_found(text: str, version: str) -> None:
    pin = find_version([text])
    assert pin is not None
    assert pin.version == version


@pytest.mark.parametrize(
    "text",
    [
        "/images/vllm-openai.sif",
        "/envs/vllm-py3.11/bin",
        "/envs/vllm-cuda12.4/bin",
        "/envs/vllm-12.4/bin",
        "/envs/vllm-3.11/bin",
        "nvcr.io/nvidia/vllm:25.09-py3",
        "lmcache/vllm-openai:v0.3.3",
        "quay.io/ascend/vllm-ascend:v0.9.1",
        "pip install vllm-flash-attn==0.2.6",
        "pip install vllm>=0.9",
        "conda activate vllm092",
        "trl[vllm]==0.19.0",
        "vllm/vllm-openai:latest",
        "mytool-0.8.5/bin with vllm",
        "vllm-0.8.5.1.2",
    ],
)
def test_what_may_be_another_programs_number_is_not_taken(text: str) -> None:
    assert find_version([text]) is None


def test_pins_that_agree_give_the_longer_one() -> None:
    texts = ["vllm/0.8", "/opt/vllm-0.8.5/bin", "vllm==0.8.5"]
    assert find_version(texts) == Pin(version="0.8.5", text="vllm-0.8.5")


def test_pins_that_contradict_each_other_give_none() -> None:
    assert find_version(["vllm==0.8.5", "vllm/vllm-openai:v0.9.2"]) is None
    assert find_version(["vllm/0.8", "vllm==0.9.2"]) is None
    assert find_version(["vllm==0.8.1", "vllm==0.8.10"]) is None


def test_an_image_without_a_version_beside_a_pin_gives_none() -> None:
    assert find_version(["vllm/vllm-openai:latest", "pip install vllm==0.9.2"]) is None


def test_a_pin_of_two_numbers_is_partial() -> None:
    pin = find_version(["vllm/0.8"])
    assert pin is not None
    assert pin.is_partial


@settings(deadline=None)
@given(st.text())
def test_any_text_is_searched_without_an_error(text: str) -> None:
    found = find_version([text, "vllm" + text])
    assert found is None or find_key(found.version) is not None
