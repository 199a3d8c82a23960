"""`omnipilot predict`: one row out for each row in, whatever it says; never a crash."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.train.schema import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.predict.model import CostModel

Rows = list[dict[str, str]]
#: exactly this, in this order: whoever scores us reads it
HEADER = (
    "total_tok_s_lo,total_tok_s_mid,total_tok_s_hi,output_tok_s_lo,output_tok_s_mid,"
    "output_tok_s_hi,req_s_lo,req_s_mid,req_s_hi,ttft_ms_lo,ttft_ms_mid,ttft_ms_hi,tpot_ms_lo,"
    "tpot_ms_mid,tpot_ms_hi,e2e_ms_lo,e2e_ms_mid,e2e_ms_hi,power_w_lo,power_w_mid,power_w_hi,"
    "tier,axis"
)


@pytest.fixture
def rows(serving_csv: Path) -> Rows:
    with serving_csv.open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["engine"] == "vLLM"][:4]


class Predict:
    """Runs the command on rows; keeps what it wrote and said."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data, self.out, self.capsys = folder / "rows.csv", folder / "out.csv", capsys

    def __call__(self, rows: Rows, *options: str, header: list[str] | None = None) -> Rows:
        with self.data.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, header or list(rows[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        self.code = main(["predict", "--data", str(self.data), "--out", str(self.out), *options])
        self.printed = self.capsys.readouterr()
        assert self.code == 0, self.printed.err
        with self.out.open(newline="") as stream:
            return list(csv.DictReader(stream))


@pytest.fixture
def predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Predict:
    return Predict(tmp_path, capsys)


def is_blank(row: dict[str, str]) -> bool:
    return all(value == "" for name, value in row.items() if name not in {"tier", "axis"})


def test_the_columns_are_exactly_these(predict: Predict, rows: Rows) -> None:
    predict(rows)
    text = predict.out.read_text()
    assert text.splitlines()[0] == HEADER
    assert "\r" not in text
    assert predict.printed.out == f"wrote 4 rows to {predict.out}: 4 in, 0 low, 0 out\n"
    assert predict.printed.err == "4 rows of vLLM, 0 of other engines left out\n"


def test_numbers_rise_and_come_near_what_was_measured(predict: Predict, rows: Rows) -> None:
    for predicted, measured in zip(predict(rows), rows, strict=True):
        assert (predicted["tier"], predicted["axis"]) == ("in", "")
        for target in TARGETS:
            lo, mid, hi = (float(predicted[f"{target}_{end}"]) for end in ("lo", "mid", "hi"))
            assert 0 < lo <= mid <= hi
            if measured[target]:
                assert 0.5 < mid / float(measured[target]) < 2


def test_columns_of_targets_may_be_absent(predict: Predict, rows: Rows) -> None:
    header = [column for column in rows[0] if column not in TARGETS]
    assert predict(rows, header=header) == predict(rows)


def test_every_row_is_answered_in_its_place(predict: Predict, rows: Rows) -> None:
    whole = predict(rows)
    mixed = [
        rows[0],
        rows[1] | {"engine": "SGLang"},
        rows[1] | {"hidden": "?"},
        rows[2] | {"family": "brand-new", "params_b": "5000", "active_b": "4000"},
        rows[2] | {"gpu": "X9000", "gpu_bw_gbs": "100"},
        rows[2] | {"dtype": "fp2"},
        rows[3] | {"concurrency": "900000"},
        rows[3] | {"input_len": "1e12", "output_len": "1e-6"},
        rows[3] | {"load_mode": "offline_static_batch", "engine_version": "9.9"},
        rows[3],
    ]
    found = predict(mixed)
    assert [(row["tier"], row["axis"]) for row in found] == [
        ("in", ""),
        ("out", "engine"),
        ("out", "hidden"),
        ("out", "family"),
        ("out", "gpu"),
        ("out", "precision"),
        ("out", "concurrency"),
        ("out", "context"),
        ("low", "engine_version"),
        ("in", ""),
    ]
    assert [is_blank(row) for row in found] == [row["tier"] == "out" for row in found]
    # sums in 32 bit depend a little on what is asked beside
    for one, other in ((found[0], whole[0]), (found[-1], whole[3])):
        assert float(one["ttft_ms_mid"]) == pytest.approx(float(other["ttft_ms_mid"]), rel=1e-4)
    assert predict.printed.out.endswith(": 2 in, 1 low, 7 out\n")
    assert predict.printed.err == (
        f"{predict.data}:4: hidden: must be a number from 1e-06 to 1e+12, was '?'\n"
        "8 rows of vLLM, 1 of other engines left out\n"
    )


def test_a_file_without_a_row_of_ours_is_answered(predict: Predict, rows: Rows) -> None:
    (found,) = predict([rows[0] | {"engine": "TGI"}])
    assert (found["tier"], found["axis"], is_blank(found)) == ("out", "engine", True)


def test_another_model_can_be_named(
    predict: Predict, rows: Rows, tmp_path: Path, small_model: CostModel
) -> None:
    artifact.write(tmp_path / "small", small_model, {})
    own = predict(rows, "--artifact", str(tmp_path / "small"))
    assert {row["tier"] for row in own} == {"in"}
    assert own != predict(rows)


def test_a_file_of_another_schema_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "x.csv", tmp_path / "out.csv"
    data.write_text("gpu,engine\nH100,vLLM\n")
    assert main(["predict", "--data", str(data), "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith(
        f"error: {data}:1: the header lacks the columns source, model, family, "
    )
    assert not out.exists()


def test_a_model_that_must_not_be_used_is_refused(
    tmp_path: Path, serving_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(serving_csv), "--out", str(tmp_path / "out.csv")]
    assert main(["predict", *words, "--artifact", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path}/card.json: cannot be read: No such file or directory\n"
    )
