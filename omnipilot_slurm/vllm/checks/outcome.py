"""How a check says what it found: its state from a condition or from version bits.

Called by the check modules only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.records import Reason, Starts
from omnipilot_slurm.vllm.report import Check

if TYPE_CHECKING:
    from omnipilot_slurm.vllm.report import CheckKind


def outcome(check_id: str, kind: CheckKind, state: Starts, text: str, refused_in: int = 0) -> Check:
    """Return a check with its arithmetic in one line."""
    detail = Reason(code=check_id, text=text)
    return Check(id=check_id, kind=kind, ok=state, detail=detail, refused_in=refused_in)


def by_version(check_id: str, kind: CheckKind, refusing: int, here: int, text: str) -> Check:
    """Return a check that fails in the versions `refusing`; `here` are those in question."""
    return outcome(check_id, kind, fails_in(refusing, here), text, refusing & here)


def fails_if(*, condition: bool) -> Starts:
    """Return fails where a condition holds that stops every version."""
    return Starts.FAILS if condition else Starts.STARTS


def fails_in(refusing: int, here: int) -> Starts:
    """Return fails where all versions in question (bits `here`) refuse, unsure where some do."""
    if not refusing & here:
        return Starts.STARTS
    return Starts.UNSURE if here & ~refusing else Starts.FAILS
