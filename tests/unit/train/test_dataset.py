"""Repeats merge to their median, groups are those of the docs, GPUs come from the catalog."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.train.dataset import GROUPS, dataset, feature_row
from omnipilot_slurm.train.load import gpu_finder, load_dataset
from omnipilot_slurm.train.schema import read_csv

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.train.dataset import Dataset
    from omnipilot_slurm.train.schema import Measurement


@pytest.fixture(scope="module")
def measurements(serving_csv: Path) -> list[Measurement]:
    return read_csv([serving_csv]).rows


@pytest.fixture
def first(serving_csv: Path) -> dict[str, str]:
    with serving_csv.open(newline="") as stream:
        return next(csv.DictReader(stream))


def load(tmp_path: Path, *rows: dict[str, str]) -> Dataset:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return load_dataset([path], lambda _: None)


def test_repeats_of_an_arm_in_a_cell_merge_to_their_median(
    tmp_path: Path, first: dict[str, str]
) -> None:
    times = [first | {"ttft_ms": text} for text in ("100", "300", "110", "")]
    data = load(tmp_path, *times)
    assert len(data) == 1
    assert data.measured["ttft_ms"].tolist() == [110.0]
    assert data.n_repeats.tolist() == [4.0]
    assert np.isnan(data.measured["power_w"]).all()


@pytest.mark.parametrize(
    "change",
    [
        {"engine_version": "0.20.0"},
        {"kv_dtype": "fp8"},
        {"tp": "2.0", "n_gpus": "2"},
        {"dtype": "bf16"},
        {"cell": "another"},
    ],
)
def test_another_version_cache_arm_or_cell_is_no_repeat(
    tmp_path: Path, first: dict[str, str], change: dict[str, str]
) -> None:
    data = load(tmp_path, first, first | change)
    assert data.n_repeats.tolist() == [1.0, 1.0]


def test_groups_hold_together_what_they_name(measured_rows: Dataset) -> None:
    groups = measured_rows.groups
    assert set(groups) == set(GROUPS)
    for cell, workload in zip(groups["cell"], groups["workload"], strict=True):
        assert cell.startswith(f"{workload}|c")
    by_workload: dict[str, set[str]] = {}
    for workload, architecture in zip(groups["workload"], groups["architecture"], strict=True):
        by_workload.setdefault(workload, set()).add(architecture)
    assert all(len(architectures) == 1 for architectures in by_workload.values())
    # the FP8 checkpoint of a model is another cell of the same architecture
    assert len(set(groups["architecture"])) < len(set(groups["workload"]))


def test_the_hash_tells_what_was_measured_whatever_the_order(
    measurements: list[Measurement],
) -> None:
    find = gpu_finder()
    shuffled = random.Random(0).sample(measurements, len(measurements))
    hashes = {dataset(rows, find).data_hash for rows in (measurements, shuffled)}
    assert len(hashes) == 1
    assert dataset(measurements[1:], find).data_hash not in hashes


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        dataset([], gpu_finder())
    assert str(caught.value) == "there is no row of vLLM with a measured target"


def test_facts_of_a_known_gpu_are_the_catalogs_and_of_an_unknown_one_the_rows(
    tmp_path: Path, first: dict[str, str]
) -> None:
    known = load(tmp_path, first).rows[0]
    assert (known.gpu, known.vendor, known.bandwidth_gb_s) == ("b300", "nvidia", 8000.0)
    unknown = load(tmp_path, first | {"gpu": "X9000"}).rows[0]
    assert (unknown.gpu, unknown.vendor) == ("x9000-270gb", "unknown")
    assert unknown.mem_gib == pytest.approx(0.99 * 270)
    assert unknown.peak_tflops == pytest.approx(8000 * 989 / 3350)


def test_a_card_of_another_size_is_not_taken_for_the_catalogs_of_that_name(
    tmp_path: Path, first: dict[str, str]
) -> None:
    card = load(tmp_path, first | {"gpu": "MI250", "gpu_mem_gb": "128"}).rows[0]
    die = gpu_finder()("mi250", 64)
    assert card.gpu == "mi250-128gb"
    assert card.gpu != die.id
    assert card.mem_gib == pytest.approx(0.99 * 128)


def test_gpus_that_share_a_layer_are_those_of_one_replica(
    tmp_path: Path, first: dict[str, str]
) -> None:
    row = load(tmp_path, first | {"n_gpus": "8", "dp": "4", "tp": "2", "ep": "8"}).rows[0]
    assert (row.tensor_parallel, row.data_parallel, row.expert_parallel) == (2.0, 4.0, 1.0)
    assert row.max_num_seqs == row.concurrency / 4


def test_prompts_of_unstated_length_are_estimated_by_their_kind(
    tmp_path: Path, first: dict[str, str]
) -> None:
    row = load(tmp_path, first | {"input_len": "", "workload": "image-chat"}).rows[0]
    assert (row.isl, row.vision) == (1000.0, 1.0)


def test_a_latent_cache_is_told_by_its_size(measurements: list[Measurement]) -> None:
    find = gpu_finder()
    latent = {row.texts["family"] for row in measurements if feature_row(row, find).latent_kv}
    assert latent == {"kimi"}


def test_rows_taken_keep_everything_of_theirs(measured_rows: Dataset) -> None:
    some = measured_rows.take(np.array([7, 3]))
    assert len(some) == 2
    assert some.rows == (measured_rows.rows[7], measured_rows.rows[3])
    for name in GROUPS:
        assert some.groups[name].tolist() == measured_rows.groups[name][[7, 3]].tolist()
    assert some.arms.tolist() == measured_rows.arms[[7, 3]].tolist()


def test_loading_says_what_it_found(serving_csv: Path) -> None:
    said: list[str] = []
    data = load_dataset([serving_csv], said.append)
    n_cells = len(set(data.groups["cell"].tolist()))
    assert said == [
        "465 rows of vLLM, 8 of other engines left out",
        f"{len(data)} after merging repeats, {n_cells} cells",
    ]
