"""Predictions out of fold: what is held out cannot reach what is predicted for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train import evaluate, kept
from omnipilot_slurm.train import fit as fit_module
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.fit import fit
from omnipilot_slurm.train.folds import grouped_folds

TINY = Settings(forest_trees=2, band_trees=5, band_leaves=4, n_jobs=1)


@pytest.fixture(scope="module", autouse=True)
def few_inner_folds():
    """Fewer folds inside a fit: what is tested here is what reaches a fit, not how good it is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fit_module, "N_CENTRE_FOLDS", 4)
        patched.setattr(fit_module, "N_BAND_FOLDS", 3)
        yield


@pytest.fixture(scope="module")
def rows(measured_rows):
    """A part of the rows, of two sources."""
    source = measured_rows.groups["source"]
    chosen = [np.flatnonzero(source == name)[:120] for name in np.unique(source)]
    return measured_rows.take(np.sort(np.concatenate(chosen)))


@pytest.fixture(scope="module")
def two_folds():
    """Two outer folds, so that a split by cell costs two fits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluate, "N_FOLDS", 2)
        yield


def poisoned(rows, fold):
    """The same rows, with the measurements of one fold multiplied by anything from 1/20 to 20."""
    factors = np.exp(np.random.default_rng(0).uniform(-3, 3, len(rows)))
    factor = np.where(fold, factors, 1.0)
    return replace(rows, measured={name: y * factor for name, y in rows.measured.items()})


def moved(predict, rows):
    """Which bounds of answered rows move when only measurements of their own fold change."""
    fold = evaluate.outer_folds(rows, "cell") == 0
    clean, changed = predict(rows)[fold], predict(poisoned(rows, fold))[fold]
    answered = np.isfinite(clean).all(axis=1)
    assert answered.sum() > 20
    return ~np.isclose(clean, changed, rtol=1e-6)[answered]


def bounds_of(predictions):
    found = predictions.targets["output_tok_s"]
    return np.column_stack([found.lo, found.mid, found.hi])


def out_of_fold(rows):
    return bounds_of(evaluate.held_out(rows, "cell", TINY))


def with_all_rows(rows):
    """A leak: the model has seen the rows that it is asked for."""
    return bounds_of(Predictor(fit(rows, TINY).model).predict_table(rows.table))


def with_offsets_of_all_rows(rows):
    """A subtler leak: everything is fitted without the fold but the offsets."""
    folds = evaluate.outer_folds(rows, "cell")
    model = fit(rows.take(np.flatnonzero(folds != 0)), TINY).model
    leaky = replace(model, offsets=fit(rows, TINY).model.offsets)
    return bounds_of(Predictor(leaky).predict_table(rows.table))


@pytest.mark.usefixtures("two_folds")
def test_no_prediction_moves_with_what_was_measured_on_the_rows_held_out(rows):
    assert not moved(out_of_fold, rows).any()


@pytest.mark.usefixtures("two_folds")
def test_a_model_that_saw_the_rows_is_caught_by_the_same_check(rows):
    assert moved(with_all_rows, rows)[:, 1].mean() > 0.9


@pytest.mark.usefixtures("two_folds")
def test_offsets_that_saw_the_rows_are_caught_by_the_same_check(rows):
    lo_moved, mid_moved, hi_moved = moved(with_offsets_of_all_rows, rows).mean(axis=0)
    assert min(lo_moved, hi_moved) > 0.9
    assert mid_moved == 0


@pytest.mark.parametrize("split", ["family", "gpu"])
def test_no_row_of_an_unseen_family_or_gpu_is_in_support(measured_rows, split):
    tiers = evaluate.tiers_out_of_fold(measured_rows, split)
    assert set(tiers.tolist()) <= {"low", "out"}


@pytest.mark.parametrize("split", ["cell", "workload", "architecture", "family", "gpu", "source"])
def test_no_split_has_a_group_on_both_sides(rows, split):
    folds = evaluate.outer_folds(rows, split)
    groups = rows.groups[split]
    assert all(len(set(folds[groups == name].tolist())) == 1 for name in np.unique(groups))
    evaluate.check_apart(groups, folds, split)


def test_cells_stay_whole_in_a_split_by_workload(rows):
    evaluate.check_apart(rows.groups["cell"], evaluate.outer_folds(rows, "workload"), "cell")


def test_folds_that_split_a_group_are_refused(rows, monkeypatch):
    def leaking(data, split, seed):
        return np.arange(len(data)) % 5

    monkeypatch.setattr(evaluate, "outer_folds", leaking)
    with pytest.raises(DataError, match="must be held out whole") as caught:
        evaluate.held_out(rows, "gpu", TINY)
    assert str(caught.value) == (
        f"split by gpu: a group must be held out whole, {str(rows.groups['gpu'][0])!r} is in the "
        "folds 0, 1, 2, 3, 4"
    )


def test_one_group_alone_cannot_be_held_out(rows):
    one = rows.take(np.flatnonzero(rows.groups["source"] == "inferencex"))
    with pytest.raises(DataError) as caught:
        evaluate.held_out(one, "source", TINY)
    assert str(caught.value) == (
        "split by source: must have at least 2 groups, all rows are of 'inferencex'"
    )


def test_a_seed_makes_other_folds_and_the_same_ones_again(rows):
    cells = rows.groups["cell"]
    first, again, plain = (grouped_folds(cells, 5, seed) for seed in (1, 1, None))
    assert (first == again).all()
    assert (first != plain).any()


@pytest.mark.usefixtures("two_folds")
def test_neighbours_and_tiers_are_those_of_the_other_fold(rows):
    held = evaluate.held_out(rows, "cell", TINY)
    asked = np.flatnonzero(held.nearest >= 0)
    near = held.nearest[asked]
    assert len(asked) > len(rows) / 2
    assert (rows.arms[asked] == rows.arms[near]).all()
    assert (held.folds[asked] != held.folds[near]).all()
    assert (evaluate.tiers_out_of_fold(rows, "cell") == held.tiers).all()


@pytest.mark.usefixtures("two_folds")
def test_what_is_kept_is_what_was_made_and_is_made_once(rows, tmp_path):
    said = []
    arguments = (tmp_path, rows, "cell", TINY)
    made = kept.kept(*arguments, progress=said.append)
    n_said = len(said)
    read = kept.kept(*arguments, progress=said.append)
    assert len(said) == n_said
    for name in made.targets:
        np.testing.assert_array_equal(read.targets[name].mid, made.targets[name].mid)
    np.testing.assert_array_equal(read.axes, made.axes)
    assert read.physics.keys() == made.physics.keys()


def test_what_was_kept_of_other_rows_settings_or_folds_is_not_used(rows):
    base = kept.key_of(rows, "cell", TINY, None)
    fold = np.arange(len(rows)) == 0
    assert kept.key_of(poisoned(rows, fold), "cell", TINY, None) != base
    assert kept.key_of(rows, "cell", replace(TINY, seed=1), None) != base
    assert kept.key_of(rows, "cell", TINY, 1) != base
    assert kept.key_of(rows, "gpu", TINY, None) != base
    assert kept.key_of(rows, "cell", replace(TINY, n_jobs=2), None) == base


@pytest.mark.usefixtures("two_folds")
def test_a_file_that_was_cut_off_is_made_again(rows, tmp_path):
    made = kept.kept(tmp_path, rows, "cell", TINY)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:1000])
    said = []
    again = kept.kept(tmp_path, rows, "cell", TINY, progress=said.append)
    assert said[0].startswith(f"{path}: cannot be read, made again: ")
    np.testing.assert_array_equal(again.tiers, made.tiers)
