"""One question of `omnipilot fit`, with and without a card, a model, a version."""

from dataclasses import replace

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.checks.outcome import outcome
from omnipilot_slurm.vllm.fit import Question, Told, answer, judge, weaker
from omnipilot_slurm.vllm.report import CheckKind, Place

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
CARDS = tuple(CATALOG.gpu(gpu_id) for gpu_id in CATALOG.gpu_ids())


def question(model="meta-llama/Llama-3.1-8B-Instruct", gpu=None, *, place=None, **engine):
    return Question(
        model=CATALOG.model(model).facts if model else None,
        gpu=CATALOG.gpu(gpu) if gpu else None,
        engine=EngineArgs(**engine),
        place=place or Place(),
        cards=CARDS,
    )


def test_without_a_card_a_failure_on_every_card_is_certain():
    asked = question("meta-llama/Llama-3.1-405B-Instruct", max_model_len=8192)
    report = judge(asked, COEFFICIENTS)
    assert report.verdict is Starts.FAILS
    assert report.checks[-1].id == "card"
    assert report.checks[-1].detail.text.startswith("no card is named: starts on 0 of ")


def test_without_a_card_what_some_cards_hold_is_unsure_with_their_share():
    report = judge(question(max_model_len=8192), COEFFICIENTS)
    assert report.verdict is Starts.UNSURE
    assert 0.5 < report.p_starts < 1.0


def test_a_capability_narrows_the_cards_in_question():
    narrowed = replace(question(max_model_len=8192), capability=90)
    texts = [judge(q, COEFFICIENTS).checks[-1].detail.text for q in (question(), narrowed)]
    assert texts[0] != texts[1]


def test_of_a_mixed_pair_the_smaller_memory_and_the_lower_capability_count():
    both = weaker(CATALOG.gpu("L40S"), CATALOG.gpu("A100-80GB"))
    assert both.mem_gib == CATALOG.gpu("L40S").mem_gib
    assert both.capability == (8, 0)
    assert both.name.endswith(" + " + CATALOG.gpu("A100-80GB").name)


def test_of_a_model_that_is_not_known_the_heads_and_the_gpus_held_are_judged():
    asked = replace(
        question(None, tensor_parallel=4, place=Place(n_gpus=2)), heads=14, capability=80
    )
    report = judge(asked, COEFFICIENTS)
    assert report.verdict is Starts.FAILS
    assert [(check.id, check.ok) for check in report.checks] == [
        ("heads", Starts.FAILS),
        ("world_size", Starts.FAILS),
    ]
    open_question = replace(asked, heads=16, place=Place(n_gpus=4))
    assert judge(open_question, COEFFICIENTS).verdict is Starts.UNSURE


@pytest.mark.parametrize("state", [Starts.FAILS, Starts.UNSURE])
def test_what_reading_the_command_line_found_counts_as_a_check(state):
    told = Told(outcome("options", CheckKind.FLAG, state, "--x: unrecognized"), "--x")
    asked = replace(question(gpu="H100-80GB", max_model_len=8192), told=(told,))
    report = judge(asked, COEFFICIENTS)
    assert report.verdict is state
    assert report.checks[0] is told.check
    assert report.p_starts == (0.5 if state is Starts.UNSURE else None)


@pytest.mark.parametrize("version", ["0.6.3", "0.10.2", "0.33.0", None])
@pytest.mark.parametrize("length", [4096, 20000, 131072])
@pytest.mark.parametrize("gpu", ["L4", "A10", "A100-40GB"])
def test_the_longest_context_agrees_with_the_verdict(version, length, gpu):
    asked = question(gpu=gpu, max_model_len=length, vllm_version=version)
    report = answer(asked, COEFFICIENTS)
    longest = report.max_model_len_that_fits
    starts = {check.id: check.ok for check in report.checks}["kv_cache"] is Starts.STARTS
    assert starts == (longest >= length)
    if longest:
        at = replace(asked, engine=replace(asked.engine, max_model_len=longest))
        states = {check.id: check.ok for check in judge(at, COEFFICIENTS).checks}
        assert states["kv_cache"] is Starts.STARTS


def test_a_context_that_vllm_refuses_is_no_limit_to_look_at():
    asked = question("Qwen/Qwen2.5-7B-Instruct", "H100-80GB", max_model_len=1_000_000)
    report = answer(asked, COEFFICIENTS)
    assert report.verdict is Starts.FAILS
    assert report.max_model_len_that_fits == 32768


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0", "0.20.2"])
def test_a_shorter_context_also_shortens_the_video_that_a_tower_profiles(version):
    asked = question("Qwen/Qwen2.5-VL-7B-Instruct", "rtx-3090", vllm_version=version)
    report = answer(asked, COEFFICIENTS)
    longest = report.max_model_len_that_fits
    assert report.verdict is Starts.FAILS
    assert longest > 16384
    shorter = replace(asked, engine=replace(asked.engine, max_model_len=longest))
    assert answer(shorter, COEFFICIENTS).verdict is Starts.STARTS
