"""Rows are checked before anything is used, and refused with file, line, column and reason."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.train.schema import KNOWN, REQUIRED, TARGETS, read_csv

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[dict[str, str]]


@pytest.fixture
def rows(serving_csv: Path) -> Rows:
    with serving_csv.open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["engine"] == "vLLM"][:3]


def written(path: Path, rows: Rows, header: list[str] | None = None) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, header or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def refusal(*paths: Path) -> list[str]:
    with pytest.raises(DataError) as caught:
        read_csv(paths)
    assert caught.value.hint == "mend or drop the rows named; nothing was used"
    return [line.replace(f"{paths[0].parent}/", "") for line in str(caught.value).splitlines()]


def test_good_rows_are_read_with_their_lines(serving_csv: Path) -> None:
    reading = read_csv([serving_csv])
    assert (len(reading.rows), reading.n_other_engines, reading.remarks) == (465, 8, [])
    lines = serving_csv.read_text().splitlines()
    for row in reading.rows[::50]:
        assert lines[row.line - 1].startswith(f"{row.texts['source']},")
        assert f",{row.texts['model']}," in lines[row.line - 1]
    places = [place for place in reading.places if isinstance(place, int)]
    assert places == list(range(465))


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        pytest.param({"gpu": ""}, ["gpu: must not be empty"], id="no GPU"),
        pytest.param(
            {"load_mode": "online"},
            [
                (
                    "load_mode: must be one of online_closed_loop, offline_static_batch, "
                    "online_saturated, was 'online'"
                )
            ],
            id="a load mode that does not exist",
        ),
        pytest.param(
            {"hidden": "wide", "ttft_ms": "-3"},
            [
                "hidden: must be a number from 1e-06 to 1e+12, was 'wide'",
                "ttft_ms: must be a number from 1e-06 to 1e+12, was '-3'",
            ],
            id="words and negative times",
        ),
        pytest.param(
            {"concurrency": "nan", "output_len": "inf", "tpot_ms": "1e300", "layers": "0"},
            [
                "layers: must be a number from 1e-06 to 1e+12, was '0'",
                "concurrency: must be a number from 1e-06 to 1e+12, was 'nan'",
                "output_len: must be a number from 1e-06 to 1e+12, was 'inf'",
                "tpot_ms: must be a number from 1e-06 to 1e+12, was '1e300'",
            ],
            id="no number at all",
        ),
        pytest.param(
            {"active_b": "9999", "topk": "3000", "n_gpus": "3", "pp": "2"},
            [
                "active_b: must be <= params_b 229, was 9999",
                "topk: must be <= n_exp 256, was 3000",
                "n_gpus: must be a multiple of pp x dp = 2, was 3",
            ],
            id="contradictions",
        ),
        pytest.param(
            {"input_len": ""},
            [
                (
                    "input_len: must be a number > 0 unless workload is one of lm-arena-chat, "
                    "gpqa, sourcegraph-fim, image-chat, video-chat, was ''"
                )
            ],
            id="a prompt of unknown length",
        ),
    ],
)
def test_a_row_outside_the_schema_is_refused_at_its_line(
    tmp_path: Path, rows: Rows, changes: dict[str, str], faults: list[str]
) -> None:
    rows[1] |= changes
    assert refusal(written(tmp_path / "x.csv", rows)) == [f"x.csv:3: {fault}" for fault in faults]


def test_faults_of_all_files_are_told_at_once(tmp_path: Path, rows: Rows) -> None:
    good = written(tmp_path / "good.csv", rows)
    rows[2]["family"] = ""
    bad = written(tmp_path / "bad.csv", rows)
    short = tmp_path / "short.csv"
    short.write_text(good.read_text() + "inferencex,only,three\n")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"source,\xff\xfe\n")
    nul = tmp_path / "nul.csv"
    nul.write_text(good.read_text() + '"' + "x" * 200_000 + '"\n')
    missing = tmp_path / "missing.csv"
    told = refusal(bad, short, other, binary, nul, missing)
    assert told == [
        f"other.csv:1: the header lacks the columns {', '.join(REQUIRED)}",
        "binary.csv: must be UTF-8 text: invalid start byte at byte 7",
        "nul.csv: must be a CSV file: field larger than field limit (131072)",
        "missing.csv: cannot be read: No such file or directory",
        "bad.csv:4: family: must not be empty",
        f"short.csv:5: row: must have {len(rows[0])} cells, has 3",
    ]


def test_thousands_of_faults_do_not_fill_the_screen(tmp_path: Path, rows: Rows) -> None:
    many = [row | {"gpu": ""} for row in rows * 30]
    told = refusal(written(tmp_path / "x.csv", many))
    assert len(told) == 51
    assert told[-1] == "... and 40 more faults"


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, rows: Rows) -> None:
    path = written(tmp_path / "x.csv", rows)
    path.write_text(path.read_text().replace("request_rate", "concurrency", 1))
    assert refusal(path) == ["x.csv:1: the header has more than once concurrency"]


def test_a_misspelt_column_is_remarked(tmp_path: Path, rows: Rows) -> None:
    path = written(tmp_path / "x.csv", rows)
    path.write_text(path.read_text().replace("ttft_ms", "ttft_m", 1).replace("date", "zzz", 1))
    assert [remark.removeprefix(f"{path}") for remark in read_csv([path]).remarks] == [
        ":1: column 'zzz' is not of the schema and is not read",
        ":1: column 'ttft_m' is not of the schema and is not read; did you mean 'ttft_ms'",
    ]


def test_targets_may_be_absent_and_blank_lines_are_nothing(tmp_path: Path, rows: Rows) -> None:
    header = [column for column in rows[0] if column not in TARGETS]
    path = written(tmp_path / "x.csv", rows, header)
    path.write_text("\n\n".join(path.read_text().splitlines()) + "\n\n", encoding="utf-8-sig")
    reading = read_csv([path])
    assert reading.places == [0, 1, 2]
    assert [row.line for row in reading.rows] == [3, 5, 7]
    assert all(row.numbers["ttft_ms"] != row.numbers["ttft_ms"] for row in reading.rows)


def test_faulty_rows_can_be_left_out_with_a_remark_instead(tmp_path: Path, rows: Rows) -> None:
    rows[0]["engine"] = "SGLang"
    rows[1]["hidden"] = "?"
    reading = read_csv([written(tmp_path / "x.csv", rows)], drop_faulty=True)
    assert reading.places == ["engine", "hidden", 0]
    assert reading.remarks == [
        f"{tmp_path}/x.csv:3: hidden: must be a number from 1e-06 to 1e+12, was '?'"
    ]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_text_in_any_cell_is_read_or_refused(
    tmp_path: Path, rows: Rows, data: st.DataObject
) -> None:
    column = data.draw(st.sampled_from(sorted(KNOWN & set(rows[0]))))
    text = data.draw(st.text(st.characters(exclude_categories=["Cs"])) | st.floats().map(str))
    changed = [rows[0] | {column: text}, rows[1]]
    path = tmp_path / "x.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(changed)
    reading = read_csv([path], drop_faulty=True)
    assert len(reading.places) == 2
    if any(isinstance(place, str) and place != "engine" for place in reading.places):
        with pytest.raises(DataError, match=r"x\.csv:\d+: "):
            read_csv([path])
    else:
        assert read_csv([path]).places == reading.places
