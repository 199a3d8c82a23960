"""What a stretch of decisions comes to: how many of which kind, and what acting on them is worth.

In: Briefs of decisions. Out: a DecisionReport. Called by `omnipilot report decisions`; pure.

Two kinds of saving are counted, each for the decisions that were acted on, for those that would be
in enforce mode, and for advice, which is the user's to follow:
- starts that fail for certain: each would hold its GPUs for `failed_launch_hours`, at their price;
- moves to where a run is worth more: the sum of their gains. The interval adds up the 80 % bounds
  of each, as if all errors went the same way, since one cost model makes them all.
At risk is what the same moves lose where they are wrong: a proposed server that does not come up
holds its GPUs for `failed_launch_hours`, and a gain may be a loss: E[max(0, -gain)] of a normal
with the gain's bounds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnipilot_slurm.store.decisions import Brief

#: how many standard deviations the 0.1 and 0.9 quantiles of a normal lie from its median
_Z_90: Final = 1.2815515655446004


@dataclass(slots=True, kw_only=True)
class Effect:
    """What some decisions change; GPU-hours and dollars.

    `gpu_hours_asked` and `gpu_hours_moved` are of the moves that are worth more, over their whole
    time limit.
    """

    n_rewrites: int = 0
    n_rejects: int = 0
    n_failing: int = 0
    failing_gpu_hours: float = 0.0
    failing_usd: float = 0.0
    n_gains: int = 0
    gain_usd_lo: float = 0.0
    gain_usd_mid: float = 0.0
    gain_usd_hi: float = 0.0
    gpu_hours_asked: float = 0.0
    gpu_hours_moved: float = 0.0
    risk_gpu_hours: float = 0.0
    risk_usd: float = 0.0

    def add(self, brief: Brief, failed_launch_hours: float) -> None:
        """Count one decision whose verdict would be to rewrite, reject or advise."""
        self.n_rewrites += brief.would_be == "rewrite"
        self.n_rejects += brief.would_be == "reject"
        if brief.asked_starts == "fails":
            held = (brief.asked_n_gpus or 0) * failed_launch_hours
            self.n_failing += 1
            self.failing_gpu_hours += held
            self.failing_usd += (brief.asked_price or 0.0) * failed_launch_hours
        self._add_move(brief, failed_launch_hours)

    def _add_move(self, brief: Brief, failed_launch_hours: float) -> None:
        if brief.chosen_p_launch is not None:
            p_fails = 1.0 - brief.chosen_p_launch
            self.risk_gpu_hours += p_fails * failed_launch_hours * (brief.chosen_n_gpus or 0)
            self.risk_usd += p_fails * failed_launch_hours * (brief.chosen_price or 0.0)
        lo, mid, hi = brief.gain_usd_lo, brief.gain_usd_mid, brief.gain_usd_hi
        if lo is None or mid is None or hi is None:
            return
        self.n_gains += 1
        self.gain_usd_lo += lo
        self.gain_usd_mid += mid
        self.gain_usd_hi += hi
        self.gpu_hours_asked += (brief.hours or 0.0) * (brief.asked_n_gpus or 0)
        self.gpu_hours_moved += (brief.hours or 0.0) * (brief.chosen_n_gpus or 0)
        self.risk_usd += expected_loss(mid, (hi - lo) / (2 * _Z_90))


def expected_loss(mean: float, spread: float) -> float:
    """Return E[max(0, -X)] of a normal X with this mean and standard deviation."""
    if spread <= 0:
        return max(0.0, -mean)
    z = mean / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return spread * density - mean * 0.5 * math.erfc(z / math.sqrt(2))


@dataclass(slots=True, kw_only=True)
class DecisionReport:
    """Counts of decisions; `by_mode` of what each would be in enforce mode, by (verdict, mode)."""

    n: int = 0
    first_at: float | None = None
    last_at: float | None = None
    by_mode: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_verdict: Counter[str] = field(default_factory=Counter)
    #: how often each code came up for a verdict other than pass, and one of its texts
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)
    abstained: Counter[str] = field(default_factory=Counter)
    axes: Counter[str] = field(default_factory=Counter)
    opted_out: Counter[str] = field(default_factory=Counter)
    users: set[str] = field(default_factory=set)
    done: Effect = field(default_factory=Effect)
    not_done: Effect = field(default_factory=Effect)
    advised: Effect = field(default_factory=Effect)

    def add(self, brief: Brief, failed_launch_hours: float) -> None:
        """Count one decision."""
        self.n += 1
        self.first_at = brief.at if self.first_at is None else min(self.first_at, brief.at)
        self.last_at = brief.at if self.last_at is None else max(self.last_at, brief.at)
        would_be, code = brief.would_be or brief.verdict, brief.code or ""
        self.users.add(brief.user_name or "")
        self.by_mode[would_be, brief.mode or "unknown"] += 1
        self.by_verdict[brief.verdict] += 1
        if code == "opted_out":
            self.opted_out[brief.user_name or ""] += 1
        if would_be == "pass":
            return
        self.reasons[would_be, code] += 1
        self.texts.setdefault(code, brief.reason_text or "")
        if would_be == "abstain":
            self.abstained[code] += 1
            self.axes.update(brief.axes)
        else:
            self._effect(would_be, brief.verdict).add(brief, failed_launch_hours)

    def _effect(self, would_be: str, verdict: str) -> Effect:
        if would_be == "advise":
            return self.advised
        return self.done if verdict == would_be else self.not_done


def report_on(decisions: Iterable[Brief], *, failed_launch_hours: float) -> DecisionReport:
    """Return what decisions come to."""
    report = DecisionReport()
    for brief in decisions:
        report.add(brief, failed_launch_hours)
    return report
