"""The records of a launch check: where a server is to run, and what was found about it.

`Place` goes into `launch.assess`, `LaunchReport` comes out; the decision, `omnipilot fit` and the
benchmark of launches read it. Memory is per GPU, in GiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.records import Interval, Reason, Starts


class CheckKind(StrEnum):
    """What a check is about, so that a policy can tell one failure from another."""

    MEMORY = "memory"
    DIVISIBILITY = "divisibility"
    CAPABILITY = "capability"
    LENGTH = "length"
    WORLD_SIZE = "world_size"
    FLAG = "flag"
    FEATURE = "feature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a job holds for one server; None: not known.

    `n_gpus` is what the server's process sees on its node, `gpus_per_node` what the node has or
    the job holds there, `n_nodes` the nodes the server may span. `shared` says that another
    server of the same job starts on the same GPUs.
    """

    n_gpus: int | None = None
    gpus_per_node: int | None = None
    n_nodes: int = 1
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One start-up check: its stable id, what it is about, its outcome, its arithmetic.

    `refused_in` has a bit for each version in which it is known to fail, where versions differ.
    """

    id: str
    kind: CheckKind
    ok: Starts
    detail: Reason
    refused_in: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """One GPU's memory at start-up, in GiB; the fullest GPU where they differ.

    `kv` is what is left for the cache inside `budget` (negative: nothing), `kv_need` what one
    request of the full length takes, `free` what stays unused outside the budget.
    """

    weights: Interval
    activation: Interval
    cuda_graphs: Interval
    non_torch: Interval
    kv: Interval
    kv_need: Interval
    free: Interval
    total: Interval
    budget: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """Whether a server starts, every check that applied, and the memory behind it.

    `max_model_len_that_fits` is the longest length that starts for certain as far as memory goes
    (0: none; None: not computed), `n_full_requests` how many requests of the full length the
    cache holds at once, `p_starts` the probability where the verdict is unsure.
    """

    verdict: Starts
    checks: tuple[Check, ...]
    memory: MemoryPlan | None
    max_model_len_that_fits: int | None
    n_full_requests: Interval | None
    p_starts: float | None
