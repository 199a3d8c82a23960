"""vLLM's own variables: what they change of an engine, and of a verdict."""

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs
from omnipilot_slurm.vllm.effective import effective_engines
from omnipilot_slurm.vllm.variables import with_variables

CATALOG = Catalog.load(site=None)


@pytest.mark.parametrize(
    ("environment", "v1", "allow_long"),
    [
        ({}, None, False),
        ({"VLLM_USE_V1": "0"}, False, False),
        ({"VLLM_USE_V1": "1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, True, False),
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, None, True),
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "True"}, None, True),
        ({"VLLM_USE_V1": None, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": None}, None, False),
    ],
)
def test_the_variables_are_read_as_vllm_does(environment, v1, allow_long):
    engine = with_variables(EngineArgs(), environment)
    assert (engine.v1, engine.allow_long_context) == (v1, allow_long)


@pytest.mark.parametrize(
    ("version", "v1", "eras"),
    [
        ("0.8.5", None, ["absolute"]),
        ("0.8.5", False, ["v0"]),
        ("0.10.2", False, ["v0"]),
        ("0.11.0", False, ["sorting"]),
        ("0.7.3", True, ["v0"]),
    ],
)
def test_the_older_engine_runs_where_it_is_asked_for_and_exists(version, v1, eras):
    model = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").facts
    engine = EngineArgs(vllm_version=version, v1=v1)
    found = effective_engines(model, CATALOG.gpu("H100-80GB"), engine)
    assert [of_era.era for of_era in found] == eras
