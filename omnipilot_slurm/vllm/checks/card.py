"""Whether vLLM runs on the card at all, by its compute capability and the version.

In: the capability, the versions in question. Out: a Check or None: nothing stands against it.
Called by `launch`. Source: vLLM's installation page (7.0 and newer); the torch that each version's
wheel asks for, whose builds have kernels for Blackwell from 2.7 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Starts
from omnipilot_slurm.vllm.checks.outcome import outcome
from omnipilot_slurm.vllm.grammar import before
from omnipilot_slurm.vllm.report import CheckKind

if TYPE_CHECKING:
    from omnipilot_slurm.vllm.report import Check

_OLDEST = 70
_BLACKWELL = 100
_BEFORE_BLACKWELL = before("0.9.0")


def card_check(capability: int | None, here: int) -> Check | None:
    """Return what stands against the card; `capability` as 80 for 8.0, None: not known."""
    if capability is None:
        return None
    dotted = f"{capability // 10}.{capability % 10}"
    if capability < _OLDEST:
        text = f"vLLM runs from compute capability 7.0 on, the card has {dotted}"
        return outcome("gpu_capability", CheckKind.CAPABILITY, Starts.FAILS, text)
    if capability >= _BLACKWELL and not here & ~_BEFORE_BLACKWELL:
        text = f"before vLLM 0.9.0 only builds of one's own run at compute capability {dotted}"
        return outcome("gpu_capability", CheckKind.CAPABILITY, Starts.UNSURE, text)
    return None
