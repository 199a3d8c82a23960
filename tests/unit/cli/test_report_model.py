"""`omnipilot report model`: the numbers on stdout, the pictures in files."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict.predictor import Bounds
from omnipilot_slurm.train import kept
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


class FakeFigure(MagicMock):
    """A figure that writes the number of its panels where a picture would be."""

    def savefig(self, path, **options):
        path.write_text(f"{options['format']} {self.add_subplot.call_count}")


@pytest.fixture
def fake_matplotlib(monkeypatch):
    package, figures = ModuleType("matplotlib"), ModuleType("matplotlib.figure")
    package.rc_context = nullcontext
    figures.Figure = FakeFigure
    monkeypatch.setitem(sys.modules, "matplotlib", package)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", figures)


@pytest.mark.usefixtures("fake_matplotlib")
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
    assert files == {
        "reliability.svg": "svg 4",
        "parity.svg": "svg 4",
        "error-by-axis.svg": "svg 8",
    }
    assert printed.err.splitlines()[-1].startswith(f"wrote {out / 'reliability.svg'}, ")


@pytest.mark.usefixtures("fake_matplotlib")
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
