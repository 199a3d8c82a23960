"""Which eras a version may belong to."""

import pytest

from omnipilot_slurm.vllm.eras import in_question, possible_eras, registered, without_pipelines
from omnipilot_slurm.vllm.grammar import EVERY, candidates

LLAMA = "LlamaForCausalLM"


def eras(version, architecture=LLAMA):
    found = possible_eras(version, architecture)
    return [era.name for _, of_version in found for era in of_version]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.6.3", ["reserved"]),
        ("0.6.6", ["v0"]),
        ("0.8.5", ["v0", "absolute"]),
        ("0.9.2", ["v0", "sorting"]),
        ("0.11.0", ["sorting"]),
        ("0.19.0", ["triton"]),
        ("0.27.0", ["fused"]),
        ("0.33.0", ["second"]),
    ],
)
def test_a_version_runs_the_engines_it_has(version, names):
    assert sorted(eras(version)) == sorted(names)


def test_an_unknown_version_may_be_of_any_era():
    assert set(eras(None)) == {
        "reserved",
        "v0",
        "absolute",
        "sorting",
        "triton",
        "fused",
        "second",
    }


def test_an_unknown_version_is_one_that_has_the_model():
    assert "reserved" not in eras(None, "GptOssForCausalLM")
    assert in_question(None, "GptOssForCausalLM") == registered("GptOssForCausalLM")
    assert in_question("0.9.2", "GptOssForCausalLM") == candidates("0.9.2")


def test_a_version_newer_than_all_that_were_read_shares_what_all_do():
    assert in_question("0.99.0", LLAMA) == EVERY
    assert eras("0.99.0") == ["second"]


def test_a_model_without_a_row_may_be_in_every_version_and_be_split():
    assert registered("NoSuchForCausalLM") == EVERY
    assert without_pipelines("NoSuchForCausalLM") == 0
