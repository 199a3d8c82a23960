"""What checks say together: versions that one of them lets pass, another may refuse.

In: all checks of a launch, the versions in question. Out: the checks, those that leave no version
between them as failures; and how likely a doubt is cleared. Called by `launch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnipilot_slurm.records import Reason, Starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.vllm.report import Check


def combined(checks: Sequence[Check], here: int) -> Sequence[Check]:
    """Return the checks; where some of them together stop every version, each of those fails."""
    partly = [check for check in checks if check.ok is Starts.UNSURE and check.refused_in]
    passed = here
    for check in partly:
        passed &= ~check.refused_in
    if passed or len(partly) < 2:  # noqa: PLR2004 (one alone would have failed)
        return checks
    return [_failed(check, partly) if check in partly else check for check in checks]


def _failed(check: Check, partly: Sequence[Check]) -> Check:
    others = " or ".join(dict.fromkeys(c.id for c in partly if c is not check))
    text = f"{check.detail.text}; the versions that pass this fail by {others}"
    return replace(check, ok=Starts.FAILS, detail=Reason(code=check.id, text=text))


def p_cleared(check: Check, here: int) -> float:
    """Return the probability that a check which is unsure lets the server start."""
    if not check.refused_in:
        return 1 / 2
    return 1 - (check.refused_in & here).bit_count() / here.bit_count()
