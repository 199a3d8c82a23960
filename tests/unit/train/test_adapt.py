"""A site's own rows move the shipped model as far as they say it is off, and no further."""

from __future__ import annotations

import pickle
from dataclasses import replace
from math import inf, isfinite
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_site import made_site

from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.model import LEARNED
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.predict.rows import table
from omnipilot_slurm.predict.support import IN, OUT
from omnipilot_slurm.train.adapt import adapted, corrected, site_of, taught
from omnipilot_slurm.train.correct import MIN_ROWS, fit_correction

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.adapt import Site
    from omnipilot_slurm.train.dataset import Dataset


def error(site: Site, model: CostModel) -> float:
    found = Predictor(model).predict_table(site.data.table).targets["output_tok_s"].mid
    return float(np.nanmean(np.abs(found / site.data.measured["output_tok_s"] - 1)))


@pytest.fixture(scope="module")
def site(small_model: CostModel, measured_rows: Dataset) -> Site:
    return made_site(small_model, measured_rows, 60)


@pytest.mark.parametrize(("n_rows", "at_most"), [(MIN_ROWS, 0.35), (15, 0.15), (40, 0.08)])
def test_rows_pull_what_was_not_seen_towards_the_site(
    site: Site, small_model: CostModel, n_rows: int, at_most: float
) -> None:
    rows = np.arange(n_rows)
    rest = np.arange(n_rows, len(site.data))
    correction = fit_correction(site.shipped, site.data, rows)
    z = site.shipped.z[rest, 0]
    before = np.mean(np.abs(np.expm1(site.shipped.mid[rest, 0] - z)))
    after = np.mean(np.abs(np.expm1(corrected(site, correction, rest)[:, 0] - z)))
    assert before > 0.5
    assert after < at_most


def test_many_rows_are_followed_closely(small_model: CostModel, measured_rows: Dataset) -> None:
    many = made_site(small_model, measured_rows, 330)
    correction = fit_correction(many.shipped, many.data, np.arange(305))
    rest = np.arange(305, 330)
    missed = corrected(many, correction, rest)[:, 0] - many.shipped.z[rest, 0]
    # the site scatters by 3 %
    assert np.mean(np.abs(missed)) < 0.06


def test_fewer_rows_leave_a_target_as_shipped(site: Site) -> None:
    correction = fit_correction(site.shipped, site.data, np.arange(MIN_ROWS - 1))
    np.testing.assert_array_equal(corrected(site, correction, np.arange(9)), site.shipped.mid[:9])


def test_targets_that_the_site_does_not_measure_stay_as_shipped(
    site: Site, small_model: CostModel
) -> None:
    model = adapted(site, np.arange(len(site.data)))
    before = Predictor(small_model).predict_table(site.data.table)
    after = Predictor(model).predict_table(site.data.table)
    for name in ("ttft_ms", "tpot_ms", "power_w"):
        np.testing.assert_allclose(after.targets[name].mid, before.targets[name].mid, rtol=1e-9)
        assert model.offsets.by_target[name] == small_model.offsets.by_target[name]
    assert error(site, model) < error(site, small_model) / 5


def test_the_shipped_model_is_not_changed(site: Site, small_model: CostModel) -> None:
    before = pickle.dumps((small_model, site.shipped.model))
    adapted(site, np.arange(20))
    assert small_model.site is None
    assert pickle.dumps((small_model, site.shipped.model)) == before


def test_adapting_an_adapted_model_starts_from_the_shipped_one(
    site: Site, small_model: CostModel
) -> None:
    once = adapted(site, np.arange(len(site.data)))
    again = adapted(site_of(once, site.data), np.arange(len(site.data)))
    assert error(site, again) == pytest.approx(error(site, once), rel=1e-6)


def test_intervals_cover_rows_that_were_not_seen(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    wide = made_site(small_model, measured_rows, min(len(measured_rows), 120), scatter=0.3)
    rows, rest = np.arange(60), np.arange(60, len(wide.data))
    found = Predictor(adapted(wide, rows)).predict_table(wide.data.table.take(rest))
    true, bounds = wide.data.measured["output_tok_s"][rest], found.targets["output_tok_s"]
    answered = np.isfinite(bounds.mid)
    inside = (bounds.lo <= true) & (true <= bounds.hi)
    # 60 rows: four standard errors of 0.8
    assert inside[answered].mean() > 0.8 - 4 * (0.16 / answered.sum()) ** 0.5


def test_too_few_cells_keep_the_shipped_offsets(site: Site, small_model: CostModel) -> None:
    cells = np.array(["one"] * len(site.data))
    narrow = replace(site, data=replace(site.data, groups={**site.data.groups, "cell": cells}))
    offsets = taught(narrow, np.arange(len(site.data))).offsets
    assert offsets.by_target["output_tok_s"] == small_model.offsets.by_target["output_tok_s"]


def test_a_smaller_miscoverage_gives_wider_intervals(site: Site) -> None:
    rows = np.arange(len(site.data))
    usual, careful = (taught(site, rows, alpha).offsets.by_target for alpha in (0.2, 0.05))
    assert careful["output_tok_s"][""] > usual["output_tok_s"][""]
    assert careful["tpot_ms"] == usual["tpot_ms"]


def test_groups_that_the_site_never_measured_are_no_narrower_than_shipped(
    site: Site, small_model: CostModel
) -> None:
    offsets = taught(site, np.arange(len(site.data))).offsets.by_target["output_tok_s"]
    met = set(site.data.table.labels["gpu"].tolist())
    for group, shipped in small_model.offsets.by_target["output_tok_s"].items():
        if group.split("|")[-1] not in met and "|" in group:
            assert offsets[group] >= shipped
    assert all(isfinite(q) for q in offsets.values())
    assert offsets[""] < inf


def test_support_grows_by_what_the_site_measured_alone(
    small_model: CostModel, measured_rows: Dataset
) -> None:
    chosen = np.arange(12)
    rows = tuple(
        replace(measured_rows.rows[i], gpu="rig-1", vendor="rigs", concurrency=2.0**i)
        for i in chosen
    )
    cells = np.array([f"cell {i}" for i in chosen])
    data = replace(
        measured_rows.take(chosen),
        rows=rows,
        table=table(rows),
        groups={**measured_rows.take(chosen).groups, "cell": cells},
    )
    model = adapted(site_of(small_model, data), chosen)
    other = replace(rows[0], gpu="rig-2")
    asked = table((rows[0], other))
    assert [each.tier for each in Predictor(small_model).predict_table(asked).support] == [OUT, OUT]
    tiers = [each.tier for each in Predictor(model).predict_table(asked).support]
    assert tiers == [IN, OUT]


def test_a_corrected_model_is_read_back_as_it_was_written(site: Site, tmp_path: Path) -> None:
    model = adapted(site, np.arange(len(site.data)))
    artifact.write(tmp_path, model, {})
    again, _ = artifact.read(tmp_path)
    before, after = (Predictor(each).predict_table(site.data.table) for each in (model, again))
    for name in LEARNED:
        np.testing.assert_array_equal(before.targets[name].mid, after.targets[name].mid)
    assert again.envelope == model.envelope
    assert again.site is not None
    assert model.site is not None
    assert again.site.coefficients == model.site.coefficients
