"""The site's models: one in force, the one before put back, nothing half written in force."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.errors import ArtifactError
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.site_model import in_force, numbers, promote, roll_back, writing

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.predict.model import CostModel


def put(folder: Path, model: CostModel) -> int:
    with writing(folder):
        return promote(folder, model, {"said": "by a test"})


def back(folder: Path) -> int | None:
    with writing(folder):
        return roll_back(folder)


def test_without_a_folder_the_shipped_model_is_in_force(tmp_path: Path) -> None:
    assert in_force(tmp_path / "none") is None
    assert numbers(tmp_path / "none") == []


def test_the_latest_is_in_force_and_all_are_kept(tmp_path: Path, small_model: CostModel) -> None:
    assert [put(tmp_path, small_model) for _ in range(3)] == [1, 2, 3]
    assert in_force(tmp_path) == tmp_path / "3"
    assert numbers(tmp_path) == [1, 2, 3]
    assert artifact.read(tmp_path / "3")[1]["said"] == "by a test"


def test_everybody_may_read_a_model(tmp_path: Path, small_model: CostModel) -> None:
    old = os.umask(0o077)
    try:
        put(tmp_path / "models", small_model)
    finally:
        os.umask(old)
    folder = tmp_path / "models"
    modes = [
        each.stat().st_mode & 0o777 for each in (folder, folder / "1", *(folder / "1").iterdir())
    ]
    assert modes == [0o755, 0o755, 0o644, 0o644]


def test_rolling_back_ends_at_the_shipped_model(tmp_path: Path, small_model: CostModel) -> None:
    for _ in range(2):
        put(tmp_path, small_model)
    assert back(tmp_path) == 1
    assert in_force(tmp_path) == tmp_path / "1"
    assert back(tmp_path) is None
    assert in_force(tmp_path) is None
    told = re.escape(f"{tmp_path}: the shipped model is in force, there is none before it")
    with pytest.raises(ArtifactError, match=f"^{told}$"):
        back(tmp_path)


def test_a_new_model_after_a_rollback_has_a_number_of_its_own(
    tmp_path: Path, small_model: CostModel
) -> None:
    for _ in range(2):
        put(tmp_path, small_model)
    back(tmp_path)
    assert put(tmp_path, small_model) == 3
    assert back(tmp_path) == 2


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path, small_model: CostModel) -> None:
    put(tmp_path, small_model)
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "model.npz").write_bytes(b"half")
    (tmp_path / "current.new").symlink_to("7")
    assert in_force(tmp_path) == tmp_path / "1"
    assert put(tmp_path, small_model) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == [".lock", "1", "2", "current"]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    told = re.escape(f"{tmp_path}: another `omnipilot adapt` is at work")
    with writing(tmp_path), pytest.raises(ArtifactError, match=f"^{told}$"), writing(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = re.escape(f"{tmp_path / 'file'}: cannot be written: File exists")
    with pytest.raises(ArtifactError, match=f"^{told}$"), writing(tmp_path / "file"):
        pass
