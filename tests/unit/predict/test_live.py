"""A live arm is predicted as a measured row with the same facts, and remembered as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.predict import live
from omnipilot_slurm.predict.live import ArmPredictor, ArmSetup, predict_arms
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.predict.rows import OFFLINE
from omnipilot_slurm.predict.support import IN, LOW, OUT
from omnipilot_slurm.records import Arm, Prediction, Workload

if TYPE_CHECKING:
    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.predict.model import CostModel

LOAD = Workload(isl=1024, osl=1024, concurrency=16)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load(site=None)


@pytest.fixture(scope="module")
def model(catalog: Catalog) -> ModelFacts:
    return catalog.model("openai/gpt-oss-120b").facts


@pytest.fixture
def predictor(small_model: CostModel) -> ArmPredictor:
    return ArmPredictor(Predictor(small_model))


@pytest.fixture(scope="module")
def arms(catalog: Catalog) -> list[ArmSetup]:
    return [
        setup(catalog, gpu, degree) for gpu in ("h100", "h200", "b200") for degree in (1, 2, 4, 8)
    ]


def setup(catalog: Catalog, gpu: str, degree: int, precision: str = "mxfp4") -> ArmSetup:
    arm = Arm(
        partition="p", gpu=gpu, gres_type=gpu, n_gpus=degree, tensor_parallel=degree,
        precision=precision,
    )  # fmt: skip
    return ArmSetup(arm, catalog.gpu(gpu), 256, 8192, 0.9)


def test_arms_of_a_measured_model_have_every_target(
    predictor: ArmPredictor, model: ModelFacts, arms: list[ArmSetup]
) -> None:
    found = predictor.predict(model, arms, LOAD)
    assert len(found) == len(arms)
    inside = [each for each in found if each.tier in {IN, LOW}]
    assert inside
    for prediction in inside:
        assert set(prediction.targets) == {
            "output_tok_s", "ttft_ms", "tpot_ms", "power_w", "req_s", "total_tok_s", "e2e_ms",
            "energy_per_tok_j",
        }  # fmt: skip
        assert prediction.calibrated
        for interval in prediction.targets.values():
            assert 0 < interval.lo <= interval.mid <= interval.hi


def test_an_arm_out_of_support_has_its_axes_and_notes_and_no_numbers(
    predictor: ArmPredictor, model: ModelFacts, catalog: Catalog
) -> None:
    (found,) = predictor.predict(model, [setup(catalog, "a100-80g", 1)], LOAD)
    assert (found.tier, found.targets) == (OUT, {})
    assert found.axes[0] == "gpu"
    assert found.notes[0] == (
        "gpu 'a100-80g' was not measured; measured were b200, b300, h100, h200"
    )


def test_a_repeated_question_is_answered_from_memory_with_the_same(
    predictor: ArmPredictor,
    model: ModelFacts,
    arms: list[ArmSetup],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = predictor.predict(model, arms, LOAD, engine_version="0.12.0")
    monkeypatch.setattr(live, "predict_arms", None)
    assert predictor.predict(model, arms, LOAD, engine_version="0.12.0") is first


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"workload": replace(LOAD, isl=2048)}, id="prompt"),
        pytest.param({"workload": replace(LOAD, osl=2048)}, id="output"),
        pytest.param({"workload": replace(LOAD, concurrency=17)}, id="concurrency"),
        pytest.param({"engine_version": "0.19.0"}, id="version"),
        pytest.param({"load_mode": OFFLINE}, id="load mode"),
        pytest.param({"mem_util": 0.5}, id="memory utilisation"),
        pytest.param({"max_num_seqs": 8}, id="sequences"),
        pytest.param({"max_num_batched_tokens": 512}, id="batched tokens"),
        pytest.param({"precision": "bf16"}, id="precision"),
        pytest.param({"vocab": 1000}, id="another model of the same name"),
        pytest.param({"bandwidth_gb_s": 1.0}, id="another GPU of the same name"),
    ],
)
def test_another_question_is_not_answered_from_memory(
    other: dict[str, object],
    predictor: ArmPredictor,
    model: ModelFacts,
    catalog: Catalog,
) -> None:
    arm = setup(catalog, "b200", 4)
    first = predictor.predict(model, [arm], LOAD, engine_version="0.12.0")
    keywords: dict[str, object] = {"engine_version": "0.12.0"}
    load = LOAD
    for name, value in other.items():
        if name == "workload":
            load = value
        elif name in {"engine_version", "load_mode"}:
            keywords[name] = value
        elif name == "precision":
            arm = arm._replace(arm=replace(arm.arm, precision=value))
        elif name == "vocab":
            model = replace(model, vocab=value)
        elif name == "bandwidth_gb_s":
            arm = arm._replace(gpu=replace(arm.gpu, bandwidth_gb_s=value))
        else:
            arm = arm._replace(**{name: value})
    again = predictor.predict(model, [arm], load, **keywords)
    assert again is not first
    assert again == predict_arms(predictor.predictor, model, [arm], load, **keywords)


def test_only_the_last_questions_are_remembered(
    predictor: ArmPredictor, model: ModelFacts, catalog: Catalog
) -> None:
    arm = [setup(catalog, "b200", 4)]
    first = predictor.predict(model, arm, LOAD)
    for concurrency in range(100, 164):
        predictor.predict(model, arm, replace(LOAD, concurrency=concurrency))
    assert len(predictor._answers) == 64
    again = predictor.predict(model, arm, LOAD)
    assert again == first
    assert again is not first


def test_no_arms_have_no_predictions(predictor: ArmPredictor, model: ModelFacts) -> None:
    none: tuple[Prediction, ...] = ()
    assert predictor.predict(model, [], LOAD) == none
