"""`omnipilot train`: rows in, a model and its card out, with progress; or the reason why not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.train import ensembles, fit

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.train.dataset import Dataset


@pytest.fixture
def half(tmp_path: Path, serving_csv: Path) -> tuple[Path, Path]:
    """The rows in two files, and fewer of them."""
    header, *lines = serving_csv.read_text().splitlines(keepends=True)
    halves = tmp_path / "a.csv", tmp_path / "b.csv"
    halves[0].write_text("".join([header, *lines[0:150]]))
    halves[1].write_text("".join([header, *lines[150:240]]))
    return halves


def test_a_model_and_its_card_are_written(
    tmp_path: Path,
    half: tuple[Path, Path],
    measured_rows: Dataset,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit, "N_CENTRE_FOLDS", 3)
    monkeypatch.setattr(fit, "N_BAND_FOLDS", 2)
    out = tmp_path / "model"
    code = main(["train", "--data", str(half[0]), str(half[1]), "--out", str(out), "--seed", "3"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == [
        "output_tok_s", "ttft_ms", "tpot_ms", "power_w",
    ]  # fmt: skip
    assert lines[3] == "power_w       not learned: too few rows measure it"
    assert lines[4] == f"wrote {out}/model.npz and {out}/card.json"
    said = printed.err.splitlines()
    assert said[0] == "232 rows of vLLM, 8 of other engines left out"
    assert said[2:4] == ["roofline", "kernel"]
    assert said[-2] == "final trees"
    assert said[-1].endswith(" s")
    card = json.loads((out / "card.json").read_text())
    assert card["settings"] == {
        "forest_trees": ensembles.Settings().forest_trees,
        "forest_features": 0.6,
        "band_trees": 40,
        "band_leaves": 6,
        "band_min_rows": 20,
        "band_rate": 0.1,
        "seed": 3,
    }
    found = Predictor(artifact.read(out)[0]).predict(measured_rows.rows[:100])
    assert {each.tier for each in found.support} >= {"in"}


def test_rows_outside_the_schema_are_refused_with_their_lines(
    tmp_path: Path, serving_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "model"
    lines = serving_csv.read_text().splitlines()
    lines[4] = lines[4].replace(",minimax,", ",,")
    data.write_text("\n".join(lines))
    assert main(["train", "--data", str(data), "--out", str(out)]) == 1
    assert capsys.readouterr().err == (
        f"error: {data}:5: family: must not be empty\n"
        "hint: mend or drop the rows named; nothing was used\n"
    )
    assert not out.exists()


def test_a_file_that_is_not_there_is_a_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(tmp_path / "no.csv"), "--out", str(tmp_path)]) == 2
    assert "no.csv' does not exist" in capsys.readouterr().err
