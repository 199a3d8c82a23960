"""Savings and risks of decisions are sums that can be checked by hand, or by integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.store.decision_report import expected_loss, report_on
from omnipilot_slurm.store.decisions import Brief

MOVE = Brief(
    id="a",
    at=1.0,
    verdict="rewrite",
    would_be="rewrite",
    code="worth_more",
    user_name="alice",
    mode="enforce",
    reason_text="worth more there",
    hours=10.0,
    asked_starts="starts",
    asked_n_gpus=4,
    asked_price=8.0,
    chosen_n_gpus=1,
    chosen_price=3.0,
    chosen_p_launch=0.9,
    gain_usd_lo=50.0,
    gain_usd_mid=50.0,
    gain_usd_hi=50.0,
    axes=(),
)


def test_gains_add_up_bound_by_bound() -> None:
    wide = MOVE._replace(gain_usd_lo=-10.0, gain_usd_mid=5.0, gain_usd_hi=20.0)
    done = report_on([MOVE, wide], failed_launch_hours=0.1).done
    assert (done.n_gains, done.gain_usd_lo, done.gain_usd_mid, done.gain_usd_hi) == (2, 40, 55, 70)
    assert (done.gpu_hours_asked, done.gpu_hours_moved) == (80, 20)


def test_a_proposal_that_may_not_start_risks_its_gpus_for_a_failed_launch() -> None:
    done = report_on([MOVE], failed_launch_hours=0.5).done
    assert done.risk_gpu_hours == pytest.approx(0.1 * 0.5 * 1)
    assert done.risk_usd == pytest.approx(0.1 * 0.5 * 3.0)


def test_advice_and_what_was_only_observed_are_kept_apart() -> None:
    advised = MOVE._replace(verdict="advise", would_be="advise")
    observed = MOVE._replace(verdict="pass", mode="observe")
    report = report_on([MOVE, advised, observed], failed_launch_hours=0.1)
    assert [each.n_gains for each in (report.done, report.not_done, report.advised)] == [1, 1, 1]
    assert (report.not_done.n_rewrites, report.advised.n_rewrites) == (1, 0)


def test_abstentions_are_counted_by_axis() -> None:
    out = MOVE._replace(would_be="abstain", code="out_of_support", axes=("family", "context"))
    report = report_on([out, out._replace(axes=("context",))], failed_launch_hours=0.1)
    assert report.axes == {"context": 2, "family": 1}
    assert report.abstained == {"out_of_support": 2}
    assert report.done.n_gains == 0


@given(mean=st.floats(-50, 50), spread=st.floats(0.01, 50))
def test_the_expected_loss_is_the_integral_of_the_losing_side(mean: float, spread: float) -> None:
    x = np.linspace(mean - 9 * spread, mean + 9 * spread, 20_001)
    density = np.exp(-(((x - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
    wanted = float(np.sum(np.maximum(0.0, -x) * density) * (x[1] - x[0]))
    assert expected_loss(mean, spread) == pytest.approx(wanted, abs=1e-4 * spread)


def test_a_certain_gain_loses_nothing_and_a_certain_loss_itself() -> None:
    assert (expected_loss(5.0, 0.0), expected_loss(-5.0, 0.0)) == (0.0, 5.0)
