"""What the shim is told: a Decision as the Outcome that goes over the socket.

In: a Decision. Out: an Outcome. Called by the daemon's state.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.records import Outcome, Verdict

if TYPE_CHECKING:
    from omnipilot_slurm.decide.decision import Decision


def outcome_of(decision: Decision) -> Outcome:
    """Return what is done with the job; only a rewrite that is really made carries changes.

    A job that passes gets no tag: nothing of it is changed or said.
    """
    finding = decision.finding
    change = finding.change if decision.verdict is Verdict.REWRITE else None
    return Outcome(
        verdict=decision.verdict,
        messages=decision.messages,
        fields=change.fields if change is not None else {},
        env=change.env if change is not None else {},
        edits=change.edits if change is not None else (),
        tag=decision.verdict is not Verdict.PASS,
        code=finding.reason.code,
        # worked out when it is stored, which is after the answer has left
        record=partial(as_json, decision, brief=True),
        lasting=finding.reason.code != "model_pending",
    )
