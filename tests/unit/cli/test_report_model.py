"""`omnipilot report model`: the numbers on stdout, the pictures in files."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.cli.model_charts import Pen, draw_curve
from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train import kept
from omnipilot_slurm.train.curves import CurvePoint
from omnipilot_slurm.train.ensembles import Settings
from omnipilot_slurm.train.evaluate import Held, outer_folds
from omnipilot_slurm.train.load import load_dataset


@pytest.fixture
def known(tmp_path, monkeypatch, serving_csv):
    """A folder with predictions by cell, as if they had been made before."""
    data = load_dataset([serving_csv], lambda _: None)

    def held_out(rows, split, settings, *, seed, progress):
        return Held(
            targets={name: Bounds(0.95 * y, 1.1 * y, 1.2 * y) for name, y in rows.measured.items()},
            physics={},
            nearest=np.full(len(rows), -1),
            tiers=np.full(len(rows), "in"),
            axes=np.full(len(rows), ""),
            folds=outer_folds(rows, split, seed),
        )

    with monkeypatch.context() as patched:
        patched.setattr(kept, "held_out", held_out)
        kept.kept(tmp_path, data, "cell", Settings())
    return tmp_path


def test_numbers_are_printed_and_pictures_written(known, serving_csv, capsys):
    out = known / "pictures"
    arguments = ["--data", str(serving_csv), "--keep", str(known), "--out", str(out)]
    assert main(["report", "model", *arguments, "--no-learning-curve"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert rows[0][:2] == ["output_tok_s", "all"]
    assert rows[0][2:] == ["0.000"] * 5 + ["1.000"] * 5
    b200 = next(row for row in rows if row[:3] == ["output_tok_s", "gpu", "b200"])
    assert b200[5:] == ["10.00", "10.00"]
    files = {path.name: path.read_text() for path in out.iterdir()}
    assert set(files) == {"reliability.svg", "parity.svg", "error-by-axis.svg"}
    assert "TTFT p50, ms" in files["reliability.svg"]
    assert "predicted out of fold" in files["parity.svg"]
    assert all(f">{axis}<" in files["error-by-axis.svg"] for axis in ("gpu", "family", "params_b"))
    assert printed.err.splitlines()[-1].startswith(f"wrote {out / 'reliability.svg'}, ")


def test_the_same_numbers_make_the_same_picture(known, serving_csv):
    arguments = ["--data", str(serving_csv), "--keep", str(known), "--no-learning-curve"]
    folders = [known / "one", known / "two"]
    for out in folders:
        assert main(["report", "model", *arguments, "--out", str(out)]) == 0
    one, two = ((out / "reliability.svg").read_bytes() for out in folders)
    assert one == two


def test_a_learning_curve_is_drawn_by_share_of_the_cells(tmp_path):
    points = [
        CurvePoint(target="output_tok_s", share=share, mape=9.0, median=4.0) for share in (0.5, 1.0)
    ]
    pen = Pen(tmp_path, "png")
    draw_curve(pen, points)
    assert pen.written == [tmp_path / "learning-curve.png"]
    assert pen.written[0].read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_written_is_told(known, serving_csv, capsys):
    out = known / "taken"
    out.write_text("a file")
    arguments = ["--data", str(serving_csv), "--keep", str(known), "--out", str(out / "x")]
    assert main(["report", "model", *arguments, "--no-learning-curve"]) == 1
    assert f"error: {out / 'x' / 'reliability.svg'}: cannot be written: " in capsys.readouterr().err


def test_without_matplotlib_it_is_said_what_to_install(serving_csv, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", "model", "--data", str(serving_csv), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "error: report model needs matplotlib, which is not installed here\n"
        "hint: pip install 'omnipilot_slurm[plots]'\n"
    )
