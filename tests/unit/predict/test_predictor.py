"""Figures of one row agree with each other, and a row out of support has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from feature_rows import BASE
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.predict.conformal import Offsets
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Bounds, Predictor, derived
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import IN, LOW, OUT

if TYPE_CHECKING:
    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.predict.predictor import Predictions
    from omnipilot_slurm.train.dataset import Dataset

TARGETS = (*LEARNED, "req_s", "total_tok_s", "e2e_ms", "energy_per_tok_j")


@pytest.fixture(scope="module")
def found(small_model: CostModel, measured_rows: Dataset) -> Predictions:
    return Predictor(small_model).predict(measured_rows.rows)


def test_every_target_has_rising_positive_bounds(found: Predictions) -> None:
    assert set(found.targets) == set(TARGETS)
    for bounds in found.targets.values():
        assert (bounds.lo > 0).all()
        assert (bounds.lo <= bounds.mid).all()
        assert (bounds.mid <= bounds.hi).all()


def test_measured_rows_are_predicted_near_what_was_measured(
    found: Predictions, measured_rows: Dataset
) -> None:
    for target in LEARNED:
        error = np.abs(found.targets[target].mid / measured_rows.measured[target] - 1)
        assert np.median(error) < 0.1


def test_derived_targets_follow_from_learned_ones(
    found: Predictions, measured_rows: Dataset
) -> None:
    x, of = measured_rows.table.numbers, found.targets
    for bound in ("lo", "mid", "hi"):
        output = getattr(of["output_tok_s"], bound)
        np.testing.assert_allclose(getattr(of["req_s"], bound), output / x["osl"])
        total = getattr(of["total_tok_s"], bound)
        np.testing.assert_allclose(total, output * (x["isl"] + x["osl"]) / x["osl"])
        assert (total >= output).all()
    # Little's law, with the ends of one interval turned round in the other
    np.testing.assert_allclose(of["e2e_ms"].mid / 1e3 * of["req_s"].mid, x["concurrency"])
    np.testing.assert_allclose(of["e2e_ms"].lo / 1e3 * of["req_s"].hi, x["concurrency"])
    np.testing.assert_allclose(of["e2e_ms"].hi / 1e3 * of["req_s"].lo, x["concurrency"])
    joules = of["power_w"].mid / of["output_tok_s"].mid
    np.testing.assert_allclose(of["energy_per_tok_j"].mid, joules)


def test_latency_end_to_end_agrees_with_its_parts(
    found: Predictions, measured_rows: Dataset
) -> None:
    of, steps = found.targets, measured_rows.table.numbers["osl"] - 1
    parts = of["ttft_ms"].mid + steps * of["tpot_ms"].mid
    ratio = of["e2e_ms"].mid / parts
    measured = measured_rows.measured
    own = measured["e2e_ms"] / (measured["ttft_ms"] + steps * measured["tpot_ms"])
    # medians do not add up exactly in what was measured either
    assert abs(np.median(np.log(ratio)) - np.median(np.log(own))) < 0.03
    assert np.quantile(np.abs(np.log(ratio / own)), 0.9) < 0.2


@given(
    st.floats(1e-3, 1e6), st.floats(0, 3), st.floats(0, 3), st.floats(1, 1e5), st.floats(0, 2),
)  # fmt: skip
@settings(max_examples=50)
def test_energy_is_at_least_as_uncertain_as_power_and_as_throughput(
    middle: float, below: float, above: float, power: float, width: float
) -> None:
    output = _bounds(middle, below, above)
    drawn = _bounds(power, width, width)
    energy = derived(table([BASE]), {"output_tok_s": output, "power_w": drawn})["energy_per_tok_j"]
    up, down = np.log(energy.hi / energy.mid), np.log(energy.mid / energy.lo)
    assert up >= max(width, below) - 1e-6
    assert down >= max(width, above) - 1e-6
    assert up <= width + below + 1e-6


def _bounds(middle: float, below: float, above: float) -> Bounds:
    mid = np.array([middle])
    return Bounds(mid * np.exp(-below), mid, mid * np.exp(above))


def test_low_confidence_doubles_the_width_in_log_space(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    rows = [row for row in measured_rows.rows if row.engine_version][:40]
    # nothing but support looks at the name of a version that has the same number
    newer = [replace(row, engine_version=row.engine_version + "+site") for row in rows]
    known, new = Predictor(small_model).predict(rows), Predictor(small_model).predict(newer)
    inside = np.array([each.tier == IN for each in known.support])
    assert inside.any()
    assert {each.tier for each in new.support} == {LOW}
    for target in LEARNED:
        before, after = known.targets[target], new.targets[target]
        np.testing.assert_allclose(before.mid, after.mid)
        for one, other in ((before.mid / before.lo, after.mid / after.lo),
                           (before.hi / before.mid, after.hi / after.mid)):  # fmt: skip
            np.testing.assert_allclose(2 * np.log(one)[inside], np.log(other)[inside], atol=1e-9)


def test_a_row_out_of_support_has_no_number(small_model: CostModel, measured_rows: Dataset) -> None:
    row = replace(measured_rows.rows[0], concurrency=1e6)
    found = Predictor(small_model).predict([row, measured_rows.rows[0]])
    assert found.support[0].tier == OUT
    for bounds in found.targets.values():
        for values in (bounds.lo, bounds.mid, bounds.hi):
            assert np.isnan(values[0])
            assert np.isfinite(values[1])


def test_a_target_without_an_offset_is_not_answered(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    offsets = small_model.offsets
    of_power = {**offsets.by_target, "power_w": {"": np.inf}}
    model = replace(small_model, offsets=Offsets(of_power, offsets.n_cells))
    found = Predictor(model).predict(measured_rows.rows[:2])
    for target in ("power_w", "energy_per_tok_j"):
        assert np.isnan(found.targets[target].mid).all()
    assert np.isfinite(found.targets["output_tok_s"].mid).all()


def test_a_wider_offset_never_gives_a_narrower_interval(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    offsets = small_model.offsets
    wider = {
        target: {group: q + 0.1 for group, q in groups.items()}
        for target, groups in offsets.by_target.items()
    }
    model = replace(small_model, offsets=Offsets(wider, offsets.n_cells))
    rows = measured_rows.rows[:50]
    before, after = Predictor(small_model).predict(rows), Predictor(model).predict(rows)
    for target in TARGETS:
        assert (after.targets[target].lo <= before.targets[target].lo).all()
        assert (after.targets[target].hi >= before.targets[target].hi).all()
        np.testing.assert_array_equal(after.targets[target].mid, before.targets[target].mid)


def test_a_row_is_predicted_alike_alone_and_among_others(
    small_model: CostModel, measured_rows: Dataset, found: Predictions
) -> None:
    for i in range(0, len(measured_rows), 37):
        alone = Predictor(small_model).predict([measured_rows.rows[i]])
        for target in TARGETS:
            for bound in ("lo", "mid", "hi"):
                together = getattr(found.targets[target], bound)[i]
                assert getattr(alone.targets[target], bound)[0] == pytest.approx(together, rel=1e-4)


def test_no_rows_have_no_predictions(small_model: CostModel) -> None:
    found = Predictor(small_model).predict([])
    assert found.support == ()
    assert found.targets["ttft_ms"].mid.shape == (0,)
