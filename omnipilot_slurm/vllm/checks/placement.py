"""Whether the GPUs that a job holds are those that the server asks for.

In: EngineArgs, Place, the versions in question. Out: Checks. Called by `launch`.
Source: config/parallel.py. From 0.11.1 a server that is given no executor refuses a world larger
than the GPUs of its node unless --nnodes says otherwise; before, it turned to Ray by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import fails_in, outcome
from omnipilot_slurm.vllm.grammar import EVERY, since
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnipilot_slurm.records import EngineArgs
    from omnipilot_slurm.vllm.report import Check, Place

_NO_RAY_BY_ITSELF = since("0.11.1")


def placement_checks(engine: EngineArgs, place: Place, here: int) -> Iterator[Check]:
    """Yield whether the world fits what is held, and whether it fits the node."""
    visible = place.n_gpus if place.n_gpus is not None else place.gpus_per_node
    if visible is None:
        return
    stage = engine.tensor_parallel * engine.prefill_context_parallel
    world = stage * engine.pipeline_parallel
    replicas = engine.data_parallel
    if engine.data_parallel_rank is not None:
        replicas = 1
    elif engine.data_parallel_local is not None:
        replicas = engine.data_parallel_local
    yield _held(engine, world * replicas, visible, place.n_nodes)
    if world > visible and place.n_nodes > 1:
        yield _across_nodes(engine, world, visible, here)


def _held(engine: EngineArgs, world: int, visible: int, n_nodes: int) -> Check:
    held = visible * n_nodes
    parts = [
        f"TP {engine.tensor_parallel}",
        *([f"PP {engine.pipeline_parallel}"] if engine.pipeline_parallel > 1 else []),
        *([f"DP {engine.data_parallel}"] if engine.data_parallel > 1 else []),
    ]
    text = f"{' x '.join(parts)} = {world} of {held} GPUs held"
    if world < held:
        text += f", {held - world} stay idle"
    state = Starts.FAILS if world > held else Starts.STARTS
    return outcome("world_size", CheckKind.WORLD_SIZE, state, text)


def _across_nodes(engine: EngineArgs, world: int, visible: int, here: int) -> Check:
    text = f"{world} GPUs of one server, {visible} on its node"
    if engine.executor == "ray" or engine.n_nodes > 1:
        return outcome("node_gpus", CheckKind.WORLD_SIZE, Starts.STARTS, text)
    refusing = EVERY if engine.executor in {"mp", "uni"} else _NO_RAY_BY_ITSELF
    state = fails_in(refusing, here)
    if state is Starts.STARTS:
        state = Starts.UNSURE
    text += ": needs --nnodes, or a Ray cluster and --distributed-executor-backend ray"
    return outcome("node_gpus", CheckKind.WORLD_SIZE, state, text, refusing & here)
