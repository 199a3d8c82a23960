"""Whether the model's class can do what is asked: exist in this version, be split, hold experts.

In: ModelFacts, EngineArgs, the versions in question. Out: Checks. Called by `launch`.
Source: model_executor/models/registry.py and the classes' interfaces (architectures.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import by_version, fails_if, fails_in, outcome
from omnipilot_slurm.vllm.eras import registered, without_pipelines
from omnipilot_slurm.vllm.grammar import EVERY, before
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.facts import ModelFacts
    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check

#: later versions hand a model without a class of its own to Transformers
_NO_TRANSFORMERS = before("0.7.0")


def feature_checks(
    model: ModelFacts, engine: EngineArgs, here: int, *, version_known: bool
) -> Iterator[Check]:
    """Yield the checks of features; a version that is not known is one that has the model."""
    if version_known and model.architecture is not None:
        yield from _architecture(model.architecture, here)
    if engine.pipeline_parallel > 1:
        lacking = without_pipelines(model.architecture)
        text = f"pipeline parallelism of {model.architecture or 'the model'}"
        yield by_version("pipeline", CheckKind.FEATURE, lacking, here, text)
    if engine.expert_parallel:
        text = "expert parallelism: "
        text += (
            "the model has no experts"
            if model.experts is None
            else f"{model.experts.n_experts} experts"
        )
        state = fails_if(condition=model.experts is None)
        yield outcome("experts", CheckKind.FEATURE, state, text)


def _architecture(architecture: str, here: int) -> Iterator[Check]:
    lacking = EVERY & ~registered(architecture)
    if not lacking & here:
        return
    text = f"{architecture} has no class of its own in this vLLM version"
    refusing = lacking & _NO_TRANSFORMERS & here
    state = fails_in(refusing, here)
    if state is Starts.STARTS:
        state, text = Starts.UNSURE, f"{text}; Transformers may run it"
    yield outcome("architecture", CheckKind.FEATURE, state, text, refusing)
